"""A program whose ranks each hold a piece of their own, as under sharding: what one loses nobody else can give back."""

import hashlib
import json
import sys
import time
from pathlib import Path

import numpy as np

WORDS = 50_000


def piece(rank: int) -> np.ndarray:
    """Return what a rank begins with."""
    return np.random.default_rng(rank).standard_normal(WORDS)


def advance(state: np.ndarray, step: int) -> None:
    """Make one step: every bit depends on all steps before."""
    state *= 0.999
    state += np.roll(state, step) * 1e-3 + np.sin(step)


def digest(state: np.ndarray) -> str:
    """Return what tells one state from another."""
    return hashlib.sha256(state.tobytes()).hexdigest()


def main() -> None:
    """Run under guard: sharded.py STEPS OUT."""
    import stepkeeper

    steps, out = int(sys.argv[1]), Path(sys.argv[2])
    run = stepkeeper.attach()
    state = piece(run.rank)

    def put(saved: dict[str, np.ndarray]) -> None:
        state[:] = saved["piece"]

    run.register("piece", get=lambda: {"piece": state}, set=put)
    for step in range(run.restore() + 1, steps + 1):
        time.sleep(0.1)
        run.before_update()
        advance(state, step)
        run.step(step)
    (out / f"result-{run.rank}.json").write_text(json.dumps({"weights_sha256": digest(state)}))


if __name__ == "__main__":
    main()
