"""Where do a framework's own checkpoints go, when are they due, and which one does this attempt begin from?

For jobs with a `snapshot_folder`: each step is a folder below STEPKEEPER_SNAPSHOT_DIR. It is gathered under a hidden
name and gets its own when it is whole; a marker file says so too. Outside a guarded job the same program saves
nothing and begins anew.
"""

import contextlib
import os
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..client import attach
from ..errors import ConfigurationError, describe
from ..folder import JobFolder
from ..hints import Hints
from ..run import Run

SAVE_LIMIT_S = 1800.0
"""How long a framework may write a checkpoint before it counts as a hang."""
VALIDATION_LIMIT_S = 3600.0
"""How long a validation of a framework may take before it counts as a hang, unless a callback is told otherwise."""


class Steps:
    """The step folders of one rank, and its word to the node about how far it is."""

    def __init__(self, environment: Mapping[str, str] | None = None, *, run: Run | None = None) -> None:
        """Raises ConfigurationError when the job is guarded and has no snapshot folder."""
        environment = os.environ if environment is None else environment
        self.run = run or attach(environment)
        folder = environment.get("STEPKEEPER_SNAPSHOT_DIR", "")
        if self.run.guarded and not folder:
            raise ConfigurationError(
                "the job has no snapshot folder, so the framework's checkpoints would not be kept",
                hint="Add the table [snapshot_folder] to the job file; it may be empty.",
            )
        self.folder = Path(folder) if folder else None
        restored = environment.get("STEPKEEPER_RESTORE_DIR", "")
        self.restored = Path(restored) if restored else None
        self.start = self.run.restore()
        self._marker = environment.get("STEPKEEPER_SNAPSHOT_MARKER") or "STEPKEEPER_DONE"
        self._reported = self.start
        self._hints = Hints(JobFolder(Path(environment["STEPKEEPER_DIR"])).agent_socket) if self.run.guarded else None

    def due(self, step: int) -> bool:
        """Return whether a snapshot follows the finished step `step`; all ranks get the same answer."""
        return self.folder is not None and self.run.due(step)

    def report(self, step: int, loss: Any = None) -> None:
        """Tell that `step` steps are finished. A step that was told already is not told again."""
        if step > self._reported:
            self._reported = step
            self.run.step(step, loss=loss)

    def gathering(self, step: int, *, own: bool = True) -> Path:
        """Return the folder in which a step is gathered. `own`: this rank makes it, empty, and removes what is left of
        steps that were gathered before and never got their name. Raises OSError."""
        path = self._in_folder(_gathered(step))
        if own:
            for left in path.parent.glob(_gathered("*")):
                _remove(left)
            path.mkdir(parents=True)
        return path

    def seal(self, step: int) -> Path:
        """Say that a step which was gathered is whole; return where it is now. One rank of the folder does it.

        Raises OSError, also when the folder is not there: then the step failed.
        """
        path, final = self._in_folder(_gathered(step)), self._in_folder(f"step-{step}")
        (path / self._marker).touch()
        path.rename(final)
        return final

    def mark(self, step_folder: Path) -> None:
        """Say that a folder which has its final name is whole, also where this node had nothing to write into it."""
        step_folder.mkdir(parents=True, exist_ok=True)
        (step_folder / self._marker).touch()

    def saving(self) -> contextlib.AbstractContextManager[None]:
        """Announce that a framework's checkpoint is being written: no hang for as long as that may take."""
        return self.run.phase("snapshot", limit_s=SAVE_LIMIT_S)

    def failed(self, step: int, error: BaseException) -> None:
        """Tell that a step could not be saved, and remove what was gathered of it; training goes on without it."""
        if self.folder is not None:
            _remove(self._in_folder(_gathered(step)))
        code, message, hint = describe(error)
        hint = "Free space on the node's SSD, or have the program keep fewer steps." if code == "tier_full" else hint
        text = f"no snapshot after step {step}, training goes on: {message}. {hint}"
        print(f"stepkeeper: rank {self.run.rank}: {text}", file=sys.stderr, flush=True)  # noqa: T201
        if self._hints is not None:
            where = {"epoch": self.run.epoch, "rank": self.run.rank, "step": step, "snapshot_epoch": self.run.epoch}
            self._hints.send("snapshot_problem", **where, tier="ssd", code=code, message=message, hint=hint)

    def _in_folder(self, name: str) -> Path:
        if self.folder is None:
            raise ConfigurationError("there is no snapshot folder: the program runs outside a guarded job")
        return self.folder / name


def _gathered(step: int | str) -> str:
    return f".step-{step}.part"


def _remove(path: Path) -> None:
    """Remove a file or folder as far as that goes: what stays is in nobody's way but its own name's."""
    shutil.rmtree(path, ignore_errors=True)
    with contextlib.suppress(OSError):
        path.unlink()
