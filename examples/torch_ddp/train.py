"""Trains a small transformer on Python's own sources with PyTorch DistributedDataParallel on CPUs.

Runs as it is (`python train.py --steps 50`), under torchrun, or guarded by Stepkeeper. Restored from a snapshot it ends
with exactly the weights of a run that was never interrupted. That needs, besides the fixed gradient layout of
group.py: one thread (more threads share sums differently), deterministic algorithms, and in the snapshot the
optimizer, the schedule, the random generator of each rank (dropout) and the data position.
"""

import argparse
import math
import os
import time

import stepkeeper
import torch
import torch.distributed as dist
from group import guard_layout, join, mean
from model import LanguageModel, weights_digest
from records import SampleLog, write_result
from text import VOCABULARY, ShuffledSampler, Text
from torch import nn


def options() -> argparse.Namespace:
    """Read the command line; each option may also come from the environment, such as LM_STEPS for --steps."""
    parser = argparse.ArgumentParser(description=__doc__)

    def add(name: str, kind: type, default: object, text: str) -> None:
        variable = "LM_" + name.upper().replace("-", "_")
        parser.add_argument(f"--{name}", type=kind, default=os.environ.get(variable, default), help=text)

    add("steps", int, 200, "number of steps")
    add("batch", int, 8, "samples of one rank in a step")
    add("context", int, 32, "symbols the model sees")
    add("hidden", int, 64, "width of the model")
    add("layers", int, 2, "number of blocks")
    add("rate", float, 0.003, "highest learning rate")
    add("seed", int, 1, "seed of weights, dropout and order of samples")
    add("step-sleep", float, 0.0, "seconds to wait in each step, to make a long run of a small model")
    add("timeout", float, 60.0, "seconds after which a silent rank counts as lost")
    add("out", str, "", "folder for result-<rank>.json")
    add("samples", str, "", "folder for the record of consumed samples")
    return parser.parse_args()


def schedule_of(optimizer: torch.optim.Optimizer, steps: int) -> torch.optim.lr_scheduler.LambdaLR:
    """Return the learning-rate schedule: warm up over a tenth of the steps, then half a cosine down to a tenth."""
    warm_up = steps // 10 + 1

    def factor(done: int) -> float:
        if done < warm_up:
            return (done + 1) / warm_up
        return 0.1 + 0.9 * (1 + math.cos(math.pi * (done - warm_up) / max(1, steps - warm_up))) / 2

    return torch.optim.lr_scheduler.LambdaLR(optimizer, factor)


def main() -> None:
    """Train, and write down the result."""
    args = options()
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    run = stepkeeper.attach()

    text = Text()
    torch.manual_seed(args.seed)  # the same weights on all ranks
    model = LanguageModel(
        vocabulary=VOCABULARY, context=args.context, width=args.hidden, layers=args.layers, dropout=0.1
    )
    torch.manual_seed(args.seed + 1000 * (run.rank + 1))  # a different dropout on each
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.rate)
    schedule = schedule_of(optimizer, args.steps)
    data = ShuffledSampler(
        text.samples(args.context), batch=args.batch, rank=run.rank, world_size=run.world_size, seed=args.seed
    )
    log = SampleLog(args.samples, run.rank, run.epoch)

    for name, state in {"model": model, "optimizer": optimizer, "schedule": schedule, "data": data}.items():
        run.register(name, state, part="replicated")  # the same bits on every rank: any of them can give it back
    run.register("consumed", log, part="local")
    run.register("random", get=torch.get_rng_state, set=torch.set_rng_state, part="local")
    start = run.restore()

    join(args.timeout)
    parallel = guard_layout(model)  # after the restore: it sends rank 0's weights to the others
    loss = math.nan
    skipped = stepkeeper.skipped_steps()  # batches that a person decided to leave out, the same on every rank
    for step in range(start + 1, args.steps + 1):
        ids = next(data)
        if step in skipped:
            schedule.step()
            run.step(step)
            continue
        log.take(step, ids.tolist())
        inputs, targets = text.windows(ids, args.context)
        optimizer.zero_grad()
        own_loss = nn.functional.cross_entropy(parallel(inputs).flatten(0, 1), targets.flatten())
        with run.collective():  # gradients are summed in it: forward pass and update tell a slow rank from the others
            own_loss.backward()
        optimizer.step()
        schedule.step()
        loss = mean(own_loss)
        time.sleep(args.step_sleep)
        run.step(step, loss=loss)
        if step % 50 == 0 or step == args.steps:
            print(f"step {step} loss {loss:.4f}", flush=True)

    if args.out:
        final = {"steps": args.steps, "loss": None if math.isnan(loss) else loss}
        write_result(args.out, run.rank, **final, weights_sha256=weights_digest(model), consumed_sha256=log.digest)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
