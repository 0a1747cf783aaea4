"""Is there room in shared memory, of the machine and of each job's container on it?

Looked at: dev/shm of the machine, and the one of each container, through root/dev/shm below /proc/<its main process>.
A program whose shared memory is full is ended by a bus error: this tells why.
"""

import os
from pathlib import Path

from reliability.agent.collectors.checking import Option, Outcome
from reliability.agent.collectors.checks.asked import Asked
from reliability.agent.collectors.checks.sheet import Sheet, Trouble

OPTIONS: dict[str, Option] = {
    "folder": "/dev/shm",  # noqa: S108 - looked at, nothing is written there
    "proc": "/proc",
    "full_share": 0.95,
    "containers": True,
}


def look(asked: Asked) -> Outcome:
    """Return how full shared memory is. `facts["containers"]`: [{"job", "pid"}] of those that run."""
    sheet = Sheet(asked.past)
    places = {"the machine": (str(asked.options["folder"]), "")} | _containers(asked)
    seen: set[int] = set()
    for place, (folder, job) in places.items():
        try:
            device, space = Path(folder).stat().st_dev, os.statvfs(folder)
        except (OSError, ValueError):
            continue  # a container that has gone meanwhile, or that may not be looked into, has nothing to tell
        if device not in seen:  # a container may share the machine's own
            seen.add(device)
            _judge(asked, sheet, place, space, job)
    if not sheet.measured:
        return sheet.outcome("Nothing to look at: there is no shared memory here.")
    return sheet.outcome(f"Shared memory has room in {len(sheet.measured)} places.")


def _containers(asked: Asked) -> dict[str, tuple[str, str]]:
    known = asked.facts.get("containers")
    found = {}
    for each in known if isinstance(known, list) and asked.options["containers"] else []:
        job, pid = (each.get("job"), each.get("pid")) if isinstance(each, dict) else (None, None)
        if isinstance(job, str) and isinstance(pid, int) and pid > 1:
            folder = str(Path(str(asked.options["proc"])) / str(pid) / "root/dev/shm")
            found[f"the container of job {job}"] = (folder, job)
    return found


def _judge(asked: Asked, sheet: Sheet, place: str, space: os.statvfs_result, job: str) -> None:
    total, free = space.f_blocks * space.f_frsize, space.f_bavail * space.f_frsize
    if total <= 0 or free > total:
        return
    sheet.measured[place] = {"total_bytes": total, "used_bytes": total - free}
    used = 1 - free / total
    if used >= asked.limit("full_share"):
        text = f"Shared memory of {place} is full to {100 * used:.0f} % of {total // 2**20} MiB."
        fields = {"device": f"shm {job}".strip(), **({"job": job} if job else {})}
        sheet.stands(Trouble(code="shared-memory-full", place=place, evidence=text, fields=fields))
