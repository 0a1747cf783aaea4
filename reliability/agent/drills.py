"""How is something broken on purpose, for real? (docs/protocol.md section 2, order `drill`)"""

import logging
import os
import signal
from collections.abc import Callable

from reliability.agent import processes
from reliability.agent.localjob import LocalJob
from reliability.agent.reporter import Reporter
from reliability.errors import ContainerMissing, InvalidInput, RuntimeFailure

log = logging.getLogger("stepkeeper.agent")


def kill_rank(part: LocalJob, rank: int | None) -> None:
    """Kill a rank's process with SIGKILL; without a number, the first one of this node."""
    running = part.folder.pids(part.record.started_epoch) or {}
    ended = part.files.exits()
    candidates = [number for number in sorted(running) if number not in ended]
    chosen = rank if rank is not None else next(iter(candidates), None)
    if chosen is None or chosen not in candidates:
        raise InvalidInput("payload.rank", f"rank {rank} does not run here", hint=f"Running are: {candidates}.")
    info = part.container.inspect()
    if info is None:
        raise ContainerMissing(f"There is no container {part.container.name}.")
    pid = processes.outside_number(info.pid, running[chosen])
    if pid is None:
        raise RuntimeFailure(
            f"The process of rank {chosen} cannot be seen from the agent.",
            hint="Run the agent in the host's process namespace.",
        )
    os.kill(pid, signal.SIGKILL)
    log.warning("drill: killed rank: job=%s rank=%s pid=%s", part.record.job, chosen, pid)


def kill_node(parts: list[LocalJob], reporter: Reporter, seconds: float, said: Callable[[], None]) -> None:
    """End the job's containers as a power loss would and be silent for a while.

    The answer to the order goes out first (`said`): a lost node says nothing afterwards.
    """
    said()
    reporter.flush(1.0)
    reporter.silence(seconds)
    for part in parts:
        try:
            part.container.kill()
        except RuntimeFailure as error:
            log.error("drill: container not ended: job=%s reason=%s", part.record.job, error.message)
    log.warning("drill: node plays dead: seconds=%s jobs=%s", seconds, [part.record.job for part in parts])
