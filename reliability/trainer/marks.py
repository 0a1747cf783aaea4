"""What can a program mark from anywhere, without handing its run around: `with stepkeeper.phase("eval", limit_s=600)`?

The run is the one that `attach` gave last in this process; without one the marks are checked and do nothing.
"""

import contextlib

from .run import Run

_attached: list[Run] = []


def keep(run: Run) -> Run:
    """Have the marks go to this run from now on."""
    _attached[:] = [run]
    return run


def _run() -> Run:
    return _attached[0] if _attached else Run({})


def phase(name: str, *, limit_s: float) -> contextlib.AbstractContextManager[None]:
    """Announce what may take longer than a step; see `Run.phase`."""
    return _run().phase(name, limit_s=limit_s)


def collective() -> contextlib.AbstractContextManager[None]:
    """Mark where this rank waits for others; see `Run.collective`."""
    return _run().collective()


def role(name: str) -> None:
    """Say what this rank is for; see `Run.role`."""
    _run().role(name)
