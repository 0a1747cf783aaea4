"""Where does a job's folder on the node keep what, and how is it read and written? (docs/protocol.md section 3)

The container may write everywhere in it, so nothing that lies there is trusted: no link is followed, no pipe waited
for, and a file that makes no sense counts as not there.
"""

import contextlib
import errno
import json
import re
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reliability.agent import progress
from reliability.errors import TierUnreachable
from reliability.tiers import copying, opening
from reliability.tiers.directory import DirectoryTier

LIMIT_BYTES = 4 * 2**20
_PARTS = ("ctl", "log", "run", "mem")
_PRIVATE = 0o600
_EPOCH = re.compile(r"epoch-(\d{1,9})\.json")
_EXIT = re.compile(r"exit-(\d{1,9})-(\d{1,9})\.json")


@dataclass(frozen=True)
class JobFolder:
    """The folder that agent, launcher and trainer share."""

    root: Path

    @property
    def memory(self) -> DirectoryTier:
        """The job's shards in the node's memory."""
        return DirectoryTier(self.root / "mem", owner="agent")

    @property
    def socket_path(self) -> Path:
        """Where hints come in."""
        return self.root / "run" / "agent.sock"

    def make(self) -> None:
        """Make the folder and its parts, for the agent's user alone: secrets of the job and its state lie in it.

        Raises TierUnreachable when the container put something else in the place of a part.
        """
        with copying.tier_errors(self.root):
            self.root.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            opening.make_private(self.root)
        for part in _PARTS:
            self._make_part(self.root / part)

    def _make_part(self, path: Path) -> None:
        try:
            opening.make_private(path)
        except OSError as error:
            if error.errno not in {errno.ENOTDIR, errno.ELOOP}:
                raise TierUnreachable(f"{path} cannot be made: {error.strerror}.") from error
            raise TierUnreachable(
                f"{path} is not a folder but something that the container put there.",
                hint=f"Remove {path}; the program must leave the folder at /stepkeeper to Stepkeeper.",
            ) from error

    def remove(self) -> None:
        """Remove the folder with all snapshots in it."""
        shutil.rmtree(self.root, ignore_errors=True)

    def write_epoch(self, epoch: int, order: Mapping[str, Any]) -> None:
        """Tell the launcher what this epoch is to be. Its environment may hold secrets: it is for one user alone."""
        self._write(f"epoch-{epoch}.json", {"epoch": epoch, **order})

    def highest_epoch(self) -> int:
        """Return the highest epoch the launcher was told of; 0 when none."""
        return max((int(match[1]) for match in self._matches(_EPOCH)), default=0)

    def epoch_order(self, epoch: int) -> dict[str, Any] | None:
        """Return what the launcher was told for an epoch."""
        return self._read(f"epoch-{epoch}.json")

    def forget_epochs_below(self, epoch: int) -> None:
        """Remove control files of epochs that are over; nobody reads them any more."""
        for name in self._names():
            match = re.fullmatch(r"(?:epoch|run|exit)-(\d{1,9})(?:-\d{1,9})?\.json", name)
            if match and int(match[1]) < epoch:
                with contextlib.suppress(OSError):
                    opening.remove(self.root / "ctl" / name)

    def write_period(self, *, version: int, plan: Any) -> None:
        """Tell the trainer at which steps to take snapshots."""
        self._write("period.json", {"version": version, "plan": plan})

    def ready(self) -> dict[str, Any] | None:
        """Return what the launcher said when it was ready."""
        return self._read("ready.json")

    def forget_ready(self) -> None:
        """Forget the word of a launcher that is gone."""
        with copying.tier_errors(self.root / "ctl"):
            opening.remove(self.root / "ctl" / "ready.json")

    def pids(self, epoch: int) -> dict[int, int] | None:
        """Return the processes of an epoch as the launcher sees them; None before it has answered."""
        run = self._read(f"run-{epoch}.json")
        if run is None or not isinstance(run.get("pids"), dict):
            return None
        try:
            return {int(rank): int(pid) for rank, pid in run["pids"].items()}
        except (ValueError, TypeError, OverflowError):
            return None

    def exits(self, epoch: int) -> dict[int, dict[str, Any]]:
        """Return the ranks of an epoch that ended, and how."""
        found = {}
        for match in self._matches(_EXIT):
            if int(match[1]) == epoch and (content := self._read(match[0])) is not None:
                found[int(match[2])] = content
        return found

    def progress(self, rank: int) -> progress.Progress | None:
        """Return how far a rank is."""
        return progress.read(self.progress_path(rank))

    def progress_path(self, rank: int) -> Path:
        """Where a rank keeps its progress."""
        return self.root / "run" / f"progress-{rank}"

    def log_path(self, epoch: int, rank: int) -> Path:
        """Where the output of a rank lies."""
        return self.root / "log" / f"{epoch}-{rank}.log"

    def skips_asked(self, rank: int) -> dict[str, Any] | None:
        """Return what a rank left when it asked which batches to skip: {epoch, steps}."""
        return self._content(self.root / "run" / f"skips-{rank}")

    def _matches(self, pattern: re.Pattern[str]) -> Iterator[re.Match[str]]:
        for name in self._names():
            if match := pattern.fullmatch(name):
                yield match

    def _names(self) -> list[str]:
        try:
            return opening.names(self.root / "ctl")
        except OSError:
            return []

    def _read(self, name: str) -> dict[str, Any] | None:
        return self._content(self.root / "ctl" / name)

    @staticmethod
    def _content(path: Path) -> dict[str, Any] | None:
        try:
            content = json.loads(opening.small(path, LIMIT_BYTES))
        except (OSError, ValueError, RecursionError):
            return None
        return content if isinstance(content, dict) else None

    def _write(self, name: str, content: Mapping[str, Any]) -> None:
        """Replace a file whole. It lies in memory and needs no sync: it is gone with the host either way."""
        target = self.root / "ctl" / name
        with copying.tier_errors(target):
            opening.replace(target, json.dumps(content).encode(), mode=_PRIVATE)
