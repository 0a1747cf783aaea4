"""What does the agent leave in a job's folder that holds beyond one order: the snapshot plan and the lease?

Both files are replaced whole and never go back: an order that comes late must not undo a newer plan.
"""

import contextlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from reliability.agent import lease
from reliability.agent.folder import JobFolder

_LEASE_BYTES = 512


def write_period(folder: JobFolder, *, version: int, plan: Sequence[Any]) -> None:
    """Tell the trainer at which steps to take snapshots, unless it was told a newer plan before."""
    known = _read(folder.root / "ctl" / "period.json").get("version")
    if not isinstance(known, int) or known <= version:
        folder.write_period(version=version, plan=list(plan))


def write_lease(folder: JobFolder, *, until: float, lease_s: float, rule: str) -> None:
    """Tell the launcher until when (seconds of CLOCK_BOOTTIME) the ranks may run, and what is to be afterwards.

    A memory tier without room for another file still takes new content of the same length in the old one.
    """
    content = {
        "until": until,
        "lease_s": lease_s,
        "rule": rule,
        "startup_s": lease.STARTUP_S,
        "slow_steps": lease.SLOW_STEPS,
    }
    path = _lease_path(folder)
    part = path.with_name("lease.json.agent.part")
    text = json.dumps(content).ljust(_LEASE_BYTES)
    try:
        part.write_text(text)
        part.replace(path)
    except OSError:
        part.unlink(missing_ok=True)
        with path.open("r+") as file:
            file.write(text)


def lease_until(folder: JobFolder) -> float | None:
    """Return until when the last lease of this job lasts, None when none was given since the machine started."""
    until = _read(_lease_path(folder)).get("until")
    return float(until) if isinstance(until, int | float) else None


def lease_rule(folder: JobFolder) -> str | None:
    """Return the rule the launcher was told."""
    rule = _read(_lease_path(folder)).get("rule")
    return rule if isinstance(rule, str) else None


def begin_lease(folder: JobFolder, lease: tuple[float, float] | None, *, rule: str) -> None:
    """Have new ranks begin with the lease that holds: (until, lease_s). An old one must not end them, so that none is
    there at all until the next renewal when there is none."""
    if lease is None:
        forget_lease(folder)
    else:
        write_lease(folder, until=lease[0], lease_s=lease[1], rule=rule)


def forget_lease(folder: JobFolder) -> None:
    """Remove a lease that nobody renews."""
    _lease_path(folder).unlink(missing_ok=True)


def _lease_path(folder: JobFolder) -> Path:
    return folder.root / "ctl" / "lease.json"


def _read(path: Path) -> Mapping[str, Any]:
    with contextlib.suppress(OSError, ValueError):
        content = json.loads(path.read_bytes())
        if isinstance(content, dict):
            return content
    return {}
