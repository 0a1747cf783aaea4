"""Is there room for the slots? Asked before a byte is reserved: a container that passes its limit is killed."""

import os
from pathlib import Path

from .errors import SlotMemory

_CGROUP = Path("/sys/fs/cgroup")
_MEMINFO = Path("/proc/meminfo")
SPARE = 0.05


def check(folder: Path, needed: int) -> None:
    """Raise SlotMemory, which names what there is, when `needed` bytes cannot be reserved in the memory tier."""
    for what, free in _limits(folder).items():
        if needed > free:
            raise SlotMemory(
                f"the slots for snapshots need {_mb(needed)} MB more, but {what} has {_mb(free)} MB free",
                hint=f"Give the node's memory tier ({folder}) and the container more memory, or train a smaller state.",
            )


def _limits(folder: Path) -> dict[str, int]:
    tier = os.statvfs(folder)
    found = {"the memory tier": tier.f_bavail * tier.f_frsize}
    available = _available()
    if available is not None:
        found["the host's memory"] = int(available * (1 - SPARE))
    left = _left_in_container()
    if left is not None:
        found["the container's memory limit"] = left
    return found


def _available() -> int | None:
    try:
        text = _MEMINFO.read_text()
    except OSError:
        return None
    fields = {line.partition(":")[0]: line.partition(":")[2].split() for line in text.splitlines()}
    return int(fields["MemAvailable"][0]) * 1024 if fields.get("MemAvailable") else None


def _left_in_container() -> int | None:
    try:
        limit = (_CGROUP / "memory.max").read_text().strip()
        used = int((_CGROUP / "memory.current").read_text())
        stat = (_CGROUP / "memory.stat").read_text()
    except (OSError, ValueError):
        return None
    if not limit.isdigit():
        return None
    cache = next((int(line.split()[1]) for line in stat.splitlines() if line.startswith("inactive_file ")), 0)
    return int(limit) - used + cache


def _mb(size: int) -> str:
    return f"{size / 1e6:.1f}"
