"""When was a state taken, so that another process of this machine can tell how long ago, whatever the clock was set to?

A moment is the machine's start, by a mark of it, and seconds since some time in it by the clock that nobody sets. It
means nothing on another machine, nor after another start of this one.
"""

import time
from pathlib import Path
from typing import Any

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def this_boot() -> str:
    """Return the mark of the machine's present start; empty where the system tells none."""
    try:
        return _BOOT_ID.read_text().strip()[:8]
    except OSError:
        return ""


BOOT = this_boot()


def moment(at: float) -> list[Any]:
    """Return the moment of `at`, seconds of time.monotonic()."""
    return [BOOT, round(at, 6)]


def since(said: Any) -> float | None:
    """Return the seconds from a moment until now; None for one of another machine or start, and for what is none."""
    if not isinstance(said, list) or len(said) != 2:
        return None
    boot, at = said
    if not BOOT or boot != BOOT or not isinstance(at, int | float) or isinstance(at, bool):
        return None
    passed = time.monotonic() - at
    return passed if passed >= 0 else None
