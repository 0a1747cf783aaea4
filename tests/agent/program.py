"""A training program for tests: steps at a given pace, snapshots, and whatever its environment asks it to do wrong."""

import contextlib
import os
import threading

import stepkeeper

PAUSE = threading.Event()


class State:
    """What is trained: one number that says which step it is."""

    def __init__(self) -> None:
        self.value = 0

    def state_dict(self) -> dict[str, int]:
        return {"value": self.value}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.value = state["value"]


def stuck() -> contextlib.AbstractContextManager[None]:
    """Return the phase in which it shall be stuck, if one was named."""
    name = os.environ.get("STUCK_PHASE", "")
    limit_s = float(os.environ.get("STUCK_LIMIT_S", "60"))
    return stepkeeper.phase(name, limit_s=limit_s) if name else contextlib.nullcontext()


def main() -> None:
    state = State()
    run = stepkeeper.attach()
    run.register("model", state)
    step = run.restore()
    last = int(os.environ.get("LAST_STEP", "100000"))
    stuck_at = int(os.environ.get("STUCK_AT", "-1"))
    bad_at = int(os.environ.get("BAD_LOSS_AT", "-1"))
    while step < last:
        PAUSE.wait(float(os.environ.get("STEP_S", "0.02")))
        if step == stuck_at:
            with stuck():
                PAUSE.wait(3600)
        step += 1
        state.value = step
        run.step(step, loss=float("nan") if step == bad_at else 1.0 / step)
    raise SystemExit(int(os.environ.get("EXIT_CODE", "0")))


main()
