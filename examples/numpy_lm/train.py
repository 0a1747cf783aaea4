"""Trains a small language model on Python's own sources, data-parallel over all ranks, with NumPy alone.

Runs as it is (`python train.py --steps 50`), under torchrun-like variables, or guarded by Stepkeeper.
"""

import os

for _library in ("OMP", "OPENBLAS", "MKL"):  # the bits of a sum depend on the number of threads that share it
    os.environ.setdefault(f"{_library}_NUM_THREADS", "1")

import argparse  # noqa: E402
import time  # noqa: E402

import numpy as np  # noqa: E402
import stepkeeper  # noqa: E402
from allreduce import RankGroup  # noqa: E402
from model import LanguageModel  # noqa: E402
from optimizer import Adam, learning_rate  # noqa: E402
from records import SampleLog, write_result  # noqa: E402
from text import VOCABULARY, ShuffledSamples, Text  # noqa: E402


def options() -> argparse.Namespace:
    """Read the command line; each option may also come from the environment, such as LM_STEPS for --steps."""
    parser = argparse.ArgumentParser(description=__doc__)

    def add(name: str, kind: type, default: object, text: str) -> None:
        variable = "LM_" + name.upper().replace("-", "_")
        parser.add_argument(f"--{name}", type=kind, default=os.environ.get(variable, default), help=text)

    add("steps", int, 200, "number of steps")
    add("batch", int, 32, "samples of one rank in a step")
    add("context", int, 16, "symbols the model sees")
    add("embedding", int, 16, "width of the embedding")
    add("hidden", int, 128, "width of the hidden layers")
    add("rate", float, 0.003, "highest learning rate")
    add("seed", int, 1, "seed of the weights and of the order of samples")
    add("step-sleep", float, 0.0, "seconds to wait in each step, to make a long run of a small model")
    add("timeout", float, 60.0, "seconds after which a silent rank counts as lost")
    add("out", str, "", "folder for result-<rank>.json")
    add("samples", str, "", "folder for the record of consumed samples")
    return parser.parse_args()


def join(run: stepkeeper.Run, text: Text, args: argparse.Namespace) -> RankGroup:
    """Meet the other ranks; only those of the same attempt, with the same data and options, are let in."""
    greeting = {
        "world_size": run.world_size,
        "epoch": run.epoch,
        "text": text.digest,
        "options": [args.steps, args.batch, args.context, args.embedding, args.hidden, args.rate, args.seed],
    }
    return RankGroup(
        rank=run.rank,
        world_size=run.world_size,
        address=os.environ.get("MASTER_ADDR", "127.0.0.1"),
        port=int(os.environ.get("MASTER_PORT", "29500")),
        greeting=greeting,
        timeout_s=args.timeout,
    )


def mean_over_ranks(
    group: RankGroup, world_size: int, loss: float, gradients: dict[str, np.ndarray]
) -> tuple[float, dict[str, np.ndarray]]:
    """Average loss and gradients in one message, laid out the same way every time."""
    flat = np.concatenate([np.float32([loss]), *(gradient.reshape(-1) for gradient in gradients.values())])
    flat = group.sum(flat) / np.float32(world_size)
    means, place = {}, 1
    for name, gradient in gradients.items():
        means[name] = flat[place : place + gradient.size].reshape(gradient.shape)
        place += gradient.size
    return float(flat[0]), means


def main() -> None:
    """Train, and write down the result."""
    args = options()
    run = stepkeeper.attach()
    text = Text()
    model = LanguageModel(
        vocabulary=VOCABULARY, context=args.context, embedding=args.embedding, hidden=args.hidden, seed=args.seed
    )
    optimizer = Adam(model.parameters)
    data = ShuffledSamples(text.samples(args.context), args.seed)
    log = SampleLog(args.samples, run.rank, run.epoch)
    for name, state in (("model", model), ("optimizer", optimizer)):
        run.register(name, state, part="replicated")  # the same bits on every rank: any of them can give it back
    # The next samples are dealt before the next update. All ranks deal from the same order, and take their own share.
    run.register("data", data, part="replicated", early=True)
    run.register("consumed", log, part="local", early=True)

    start = run.restore()
    group = join(run, text, args)
    loss = float("nan")
    skipped = stepkeeper.skipped_steps()  # batches that a person decided to leave out, the same on every rank
    for step in range(start + 1, args.steps + 1):
        ids = data.deal(args.batch * run.world_size)[run.rank * args.batch :][: args.batch]
        if step in skipped:
            run.step(step)
            continue
        log.take(step, ids)
        own_loss, gradients = model.loss_and_gradients(*text.windows(ids, args.context))
        with run.collective():  # what was computed before it tells a slow rank from those that wait for it
            loss, gradients = mean_over_ranks(group, run.world_size, own_loss, gradients)
        run.before_update()  # a snapshot may have been copied beside all this
        optimizer.update(gradients, learning_rate(step, steps=args.steps, peak=args.rate, warm_up=args.steps // 10 + 1))
        time.sleep(args.step_sleep)
        run.step(step, loss=loss)
        if step % 50 == 0 or step == args.steps:
            print(f"step {step} loss {loss:.4f}", flush=True)

    group.close()
    if args.out:
        write_result(
            args.out,
            run.rank,
            steps=args.steps,
            loss=loss if loss == loss else None,
            weights_sha256=model.digest(),
            consumed_sha256=log.digest,
        )


if __name__ == "__main__":
    main()
