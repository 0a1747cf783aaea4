"""A training program that knows nothing of Stepkeeper: it saves to --output-dir and goes on from the newest step there.

What it trains is a chain of digests, so that each step's value shows whether every step before it was the right one.
"""

import argparse
import hashlib
import json
import sys
import threading
from pathlib import Path

PAUSE = threading.Event()


def trained(value: str, step: int) -> str:
    return hashlib.sha256(f"{value}{step}".encode()).hexdigest()


def save(folder: Path, step: int, value: str, pause_s: float) -> None:
    """Several files, in the open, with pauses between them: a kill leaves any of them behind, or half of one."""
    (folder / "parts").mkdir(parents=True)
    content = value.encode() * 4000
    (folder / "parts" / "empty").touch()
    with (folder / "weights.bin").open("wb") as file:
        file.write(content[:100_000])
        file.flush()
        PAUSE.wait(pause_s)
        file.write(content[100_000:])
    PAUSE.wait(pause_s)
    (folder / "parts" / "state.json").write_text(json.dumps({"step": step, "value": value}))


def load(folder: Path) -> tuple[int, str]:
    """Ends with an error for anything that was not saved whole."""
    state = json.loads((folder / "parts" / "state.json").read_text())
    if (folder / "weights.bin").read_bytes() != state["value"].encode() * 4000 or not (folder / "parts/empty").exists():
        sys.exit(f"{folder} is damaged")
    return state["step"], state["value"]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--output-dir", type=Path, required=True)
    parser.add_argument("--steps", type=int, default=100_000)
    parser.add_argument("--every", type=int, default=10)
    parser.add_argument("--step-s", type=float, default=0.01)
    parser.add_argument("--pause-s", type=float, default=0.0)
    parser.add_argument("--history", type=Path, required=True)
    parser.add_argument("--rename", action="store_true")
    given = parser.parse_args()
    step, value = 0, ""
    known = [path for path in given.output_dir.glob("checkpoint-*") if path.name.partition("-")[2].isdecimal()]
    if known:
        step, value = load(max(known, key=lambda path: int(path.name.partition("-")[2])))
    with given.history.open("a") as history:
        print("from", step, file=history, flush=True)
        while step < given.steps:
            PAUSE.wait(given.step_s)
            step += 1
            value = trained(value, step)
            print(step, value, file=history, flush=True)
            if step % given.every == 0:
                final = given.output_dir / f"checkpoint-{step}"
                save(final.with_name(f"tmp-{step}") if given.rename else final, step, value, given.pause_s)
                if given.rename:
                    final.with_name(f"tmp-{step}").rename(final)


if __name__ == "__main__":
    main()
