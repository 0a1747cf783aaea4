"""Which processes belong to an attempt, how do they start, and how are all of them ended?"""

import contextlib
import os
import signal
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..folder import JobFolder, write_json
from ..hints import Hints
from . import linux
from .orders import EpochOrder, RankOrder
from .output import RankOutput
from .rank import RankStart


@dataclass
class RunningRank:
    """A rank that was forked and has not been buried yet."""

    epoch: int
    rank: int
    pid: int
    output: RankOutput
    ended_by_launcher: bool = False
    reason: str = ""


class InRank(BaseException):
    """Raised in a forked child only: leaves the launcher's code and carries what the rank needs."""

    def __init__(self, start: RankStart) -> None:
        super().__init__()
        self.start = start


class Attempts:
    """The ranks of this node. Every method returns at once; `reap` is where ended processes are noticed."""

    def __init__(self, folder: JobFolder, client: str) -> None:
        """`client` is a folder for the ranks' module path, '' when they need none to import the client."""
        self._folder = folder
        self._client = client
        self._hints = Hints(folder.agent_socket)
        self._ranks: dict[int, RunningRank] = {}

    @property
    def outputs(self) -> dict[int, RankOutput]:
        """The pipes to listen to, by descriptor."""
        outputs = (rank.output for rank in self._ranks.values())
        return {output.read_end: output for output in outputs if not output.ended}

    def start(self, order: EpochOrder, private: Sequence[int]) -> None:
        """Fork the ranks of an attempt and tell the agent. Raises InRank in each child.

        `private` are descriptors of the launcher that no rank may hold.
        """
        for rank in order.ranks:
            self._fork(order, rank, private)
        pids = {rank.rank: rank.pid for rank in self._ranks.values()}
        self._write(f"run-{order.epoch}.json", {"epoch": order.epoch, "pids": pids})
        self._hints.send("run", epoch=order.epoch)

    def _fork(self, order: EpochOrder, rank: RankOrder, private: Sequence[int]) -> None:
        output = RankOutput(self._folder.log / f"{order.epoch}-{rank.rank}.log")
        launcher = os.getpid()
        others = [running.output.read_end for running in self._ranks.values()]
        try:
            pid = os.fork()
        except OSError as error:
            output.started()  # no rank will ever hold that side
            output.note(f"stepkeeper: cannot fork the rank: {error.strerror}")
            self._bury(RunningRank(order.epoch, rank.rank, 0, output), 1)
            return
        if pid == 0:
            raise InRank(
                RankStart(
                    program=order.program,
                    mode=order.mode,
                    workdir=order.workdir,
                    env=self._environment(rank.env),
                    output=output.write_end,
                    private=(*private, *others, output.read_end),
                    launcher=launcher,
                )
            )
        output.started()
        self._ranks[pid] = RunningRank(order.epoch, rank.rank, pid, output)

    def _environment(self, env: Mapping[str, str]) -> Mapping[str, str]:
        if not self._client:
            return env
        paths = [env.get("PYTHONPATH") or os.environ.get("PYTHONPATH", ""), self._client]
        return {**env, "PYTHONPATH": os.pathsep.join(path for path in paths if path)}

    def kill(self, reason: str = "") -> bool:
        """Kill every process below the launcher, hung and stopped ones too; return whether none is left.

        A `reason` is told with the end of each rank: one that nobody outside the launcher knows of.
        Whole process groups first. A process that left its group, and so its rank, is found by its ancestry.
        """
        if self.reap():
            return True
        for rank in self._ranks.values():
            rank.ended_by_launcher, rank.reason = True, rank.reason or reason
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(rank.pid, signal.SIGKILL)
        for pid in linux.descendants(os.getpid()):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return self.reap()

    def reap(self) -> bool:
        """Take note of every process that ended, ranks and orphans alike; return whether none is left.

        Orphans become children of the launcher, so without a child it has no descendant either.
        """
        while True:
            try:
                ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            except ChildProcessError:
                return True
            if ended is None:
                return False
            self._end(ended.si_pid)

    def _end(self, pid: int) -> None:
        """While the ended process is not collected its number cannot belong to another group."""
        rank = self._ranks.pop(pid, None)
        if rank is not None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(pid, signal.SIGKILL)  # what the rank left behind ends with it
        _pid, status = os.waitpid(pid, 0)
        if rank is not None:
            rank.output.drain(whole=True)
            self._bury(rank, os.waitstatus_to_exitcode(status))

    def _bury(self, rank: RunningRank, exit_code: int) -> None:
        number = max(0, -exit_code)
        if rank.reason:
            rank.output.note(f"stepkeeper: ended by the launcher: {rank.reason}")
        body = {
            "epoch": rank.epoch,
            "rank": rank.rank,
            "exit_code": 128 + number if number else exit_code,
            "signal": number,
            "at": time.time(),
            "tail": rank.output.tail,
            "ordered": rank.ended_by_launcher,
            "reason": rank.reason,
        }
        rank.output.close()
        self._write(f"exit-{rank.epoch}-{rank.rank}.json", body)
        self._hints.send("exit", epoch=rank.epoch, rank=rank.rank)

    def _write(self, name: str, body: dict[str, Any]) -> None:
        """A full memory tier must not end the launcher; without its tail the file may still find room."""
        path = self._folder.ctl / name
        try:
            write_json(path, body)
        except OSError:
            with contextlib.suppress(OSError):
                write_json(path, {**body, "tail": ""})


def forget_old_logs(log: Path, *, below: int) -> None:
    """Remove the output of attempts below an epoch."""
    for path in log.glob("*-*.log"):
        number = path.name.split("-", 1)[0]
        if number.isdigit() and int(number) < below:
            path.unlink(missing_ok=True)
