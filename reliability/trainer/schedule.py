"""After which steps is a snapshot due?

The plan is a list of entries (from_step, every_steps), oldest first. The newest entry whose `from_step` has been
reached holds. The answer depends on the step alone, so all ranks agree without talking to each other.
"""

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class PlanEntry:
    """From step `from_step` on, take a snapshot after every step that is a multiple of `every_steps`."""

    from_step: int
    every_steps: int


def due(plan: Sequence[PlanEntry], step: int) -> bool:
    """Return whether a snapshot follows step `step` (number of finished steps, from 1)."""
    for entry in reversed(plan):
        if entry.from_step <= step:
            return step % entry.every_steps == 0
    return False


def parse(raw: Any) -> tuple[int, tuple[PlanEntry, ...]]:
    """Return (version, plan) of the decoded period file. Raises ValueError, which names the field."""
    if not isinstance(raw, dict):
        raise ValueError("the period plan must be an object")
    entries = raw.get("plan")
    if not isinstance(entries, list):
        raise ValueError("plan must be a list")
    plan = tuple(_entry(index, entry) for index, entry in enumerate(entries))
    return _whole(raw, "version", "version", 0), plan


def _entry(index: int, raw: Any) -> PlanEntry:
    where = f"plan[{index}]"
    if not isinstance(raw, dict):
        raise ValueError(f"{where} must be an object")
    return PlanEntry(
        _whole(raw, "from_step", f"{where}.from_step", 0), _whole(raw, "every_steps", f"{where}.every_steps", 1)
    )


def _whole(raw: dict[str, Any], key: str, where: str, least: int) -> int:
    value = raw.get(key)
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise ValueError(f"{where} must be a whole number of at least {least}, not {value!r}")
    return value


class Schedule:
    """The plan in the job's folder, taken over anew whenever the file is replaced."""

    def __init__(self, path: Path) -> None:
        self.version = 0
        self.problem = ""
        self._path = path
        self._place = os.fspath(path)
        self._plan: tuple[PlanEntry, ...] = ()
        self._seen: tuple[int, int, int] | None = None

    def due(self, step: int) -> bool:
        """Return whether a snapshot follows `step`, by the newest readable plan."""
        self._refresh()
        return due(self._plan, step)

    def _refresh(self) -> None:
        """Keep the last good plan when the file is missing or wrong; `problem` then says why."""
        try:
            stat = os.stat(self._place)  # noqa: PTH116 - at every step: a path object takes longer than the question
            seen = (stat.st_ino, stat.st_mtime_ns, stat.st_size)
            if seen == self._seen:
                return
            self.version, self._plan = parse(json.loads(self._path.read_bytes()))
        except FileNotFoundError:
            return
        except (OSError, ValueError) as error:
            self.problem = f"{self._path}: {error}"
            return
        self._seen = seen
        self.problem = ""
