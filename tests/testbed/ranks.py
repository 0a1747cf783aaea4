"""Which process is rank N on this host? Found by its environment, or by what the launcher says of a rank it forked."""

import json
from pathlib import Path

from tests.testbed.commands import TestbedError
from tests.testbed.host import Host


def pid_of_rank(host: Host, rank: int, job: str = "") -> int:
    """Return the process id, as this machine counts, of a running rank.

    A forked rank keeps the environment its launcher was started with, so it is looked up in the launcher's newest
    `ctl/run-<epoch>.json`, whose ids are those of the innermost pid namespace.
    """
    pids = [pid for pid in host.group.pids() if pid > 0]
    by_environment = [pid for pid in pids if f"RANK={rank}" in environment(pid) and _of_job(pid, job)]
    if by_environment:
        return by_environment[0]
    inner = _said_by_launcher(host, rank, job)
    found = [(len(chain), pid) for pid in pids if (chain := namespace_pids(pid)) and chain[-1] == inner]
    if not found:
        raise TestbedError(f"host {host.name} runs no rank {rank}")
    return max(found)[1]


def environment(pid: int) -> list[str]:
    """Return the environment a process was started with."""
    try:
        return Path(f"/proc/{pid}/environ").read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return []


def namespace_pids(pid: int) -> list[int]:
    """Return the ids of one process in each pid namespace, outermost first."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return []
    return next(([int(part) for part in line.split()[1:]] for line in lines if line.startswith("NSpid:")), [])


def _of_job(pid: int, job: str) -> bool:
    return not job or f"STEPKEEPER_JOB={job}" in environment(pid)


def _said_by_launcher(host: Host, rank: int, job: str) -> int:
    newest: dict[Path, tuple[int, int]] = {}
    for path in host.outside(host.memory_dir).glob(f"{job or '*'}/ctl/run-*.json"):
        said = json.loads(path.read_text())
        pid = said["pids"].get(str(rank))
        if pid:
            newest[path.parent] = max(newest.get(path.parent, (0, 0)), (int(said["epoch"]), int(pid)))
    return max(newest.values())[1] if newest else 0
