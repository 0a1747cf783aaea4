"""A program with a batch that ends it: rank 1 fails at BAD_STEP, unless that batch is left out on all ranks."""

import json
import sys
import time
from pathlib import Path

BAD_STEP = 7


def main() -> None:
    """Run under guard: bad_batch.py STEPS OUT."""
    import stepkeeper

    steps, out = int(sys.argv[1]), Path(sys.argv[2])
    run = stepkeeper.attach()
    taken: list[int] = []
    run.register("taken", get=lambda: list(taken), set=lambda saved: taken.__setitem__(slice(None), saved))
    start = run.restore()
    skipped = stepkeeper.skipped_steps()
    for step in range(start + 1, steps + 1):
        time.sleep(0.05)
        if step not in skipped:
            if step == BAD_STEP and run.rank == 1:
                raise RuntimeError(f"CUDA error: device-side assert triggered in batch {step}")
            taken.append(step)
        run.step(step)
    (out / f"taken-{run.rank}.json").write_text(json.dumps(taken))


if __name__ == "__main__":
    main()
