"""Where does a job's folder on the node keep what, and how is it read and written? (docs/protocol.md section 3)"""

import contextlib
import json
import re
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reliability.agent import progress
from reliability.tiers.directory import DirectoryTier

_EPOCH = re.compile(r"epoch-(\d+)\.json")
_EXIT = re.compile(r"exit-(\d+)-(\d+)\.json")


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
        """Make the folder and its parts."""
        for part in ("ctl", "log", "run", "mem"):
            (self.root / part).mkdir(parents=True, exist_ok=True)

    def remove(self) -> None:
        """Remove the folder with all snapshots in it."""
        shutil.rmtree(self.root, ignore_errors=True)

    def write_epoch(self, epoch: int, order: Mapping[str, Any]) -> None:
        """Tell the launcher what this epoch is to be."""
        self._write(f"epoch-{epoch}.json", {"epoch": epoch, **order})

    def highest_epoch(self) -> int:
        """Return the highest epoch the launcher was told of; 0 when none."""
        return max((int(match[1]) for match in self._matches(_EPOCH)), default=0)

    def epoch_order(self, epoch: int) -> dict[str, Any] | None:
        """Return what the launcher was told for an epoch."""
        return self._read(f"epoch-{epoch}.json")

    def forget_epochs_below(self, epoch: int) -> None:
        """Remove control files of epochs that are over; nobody reads them any more."""
        for path in (self.root / "ctl").iterdir():
            match = re.fullmatch(r"(?:epoch|run|exit)-(\d+)(?:-\d+)?\.json", path.name)
            if match and int(match[1]) < epoch:
                path.unlink(missing_ok=True)

    def write_period(self, *, version: int, plan: Any) -> None:
        """Tell the trainer at which steps to take snapshots."""
        self._write("period.json", {"version": version, "plan": plan})

    def ready(self) -> dict[str, Any] | None:
        """Return what the launcher said when it was ready."""
        return self._read("ready.json")

    def forget_ready(self) -> None:
        """Forget the word of a launcher that is gone."""
        (self.root / "ctl" / "ready.json").unlink(missing_ok=True)

    def pids(self, epoch: int) -> dict[int, int] | None:
        """Return the processes of an epoch as the launcher sees them; None before it has answered."""
        run = self._read(f"run-{epoch}.json")
        if run is None or not isinstance(run.get("pids"), dict):
            return None
        return {int(rank): int(pid) for rank, pid in run["pids"].items()}

    def exits(self, epoch: int) -> dict[int, dict[str, Any]]:
        """Return the ranks of an epoch that ended, and how."""
        found = {}
        for match in self._matches(_EXIT):
            if int(match[1]) == epoch and (content := self._read(match[0])) is not None:
                found[int(match[2])] = content
        return found

    def progress(self, rank: int) -> progress.Progress | None:
        """Return how far a rank is."""
        return progress.read(self.root / "run" / f"progress-{rank}")

    def _matches(self, pattern: re.Pattern[str]) -> Iterator[re.Match[str]]:
        with contextlib.suppress(OSError):
            for path in (self.root / "ctl").iterdir():
                if match := pattern.fullmatch(path.name):
                    yield match

    def _read(self, name: str) -> dict[str, Any] | None:
        try:
            content = json.loads((self.root / "ctl" / name).read_bytes())
        except (OSError, ValueError):
            return None
        return content if isinstance(content, dict) else None

    def _write(self, name: str, content: Mapping[str, Any]) -> None:
        """Replace a file whole. It lies in memory and needs no sync: it is gone with the host either way."""
        target = self.root / "ctl" / name
        part = target.with_name(f"{name}.agent.part")
        part.write_text(json.dumps(content))
        part.replace(target)
