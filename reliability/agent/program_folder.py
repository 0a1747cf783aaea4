"""Where does a job's program write its snapshots on this node, and whose attempt is it writing for?

    <ssd dir>/<job>.programs/out/rank-<R> or out/node   what a rank knows as STEPKEEPER_SNAPSHOT_DIR
    <ssd dir>/<job>.programs/aside/                     what an abandoned attempt left: moved here, never removed
    <ssd dir>/<job>.programs/attempt.json               written by the agent: the attempt that writes, what it restored
    <ssd dir>/<job>.programs/sealed.json                written by the second process: the steps it has sealed

Only `out` is seen by the container. It lies on the SSD, as files of a program do; a sealed step is one more copy there.
"""

import contextlib
import fcntl
import json
import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from reliability.domain.program_folders import FolderRule, SealedBy, Whose
from reliability.tiers import copying, opening

INSIDE = "/stepkeeper-snapshots"
RESTORED = ".stepkeeper-restored"
_LIMIT_BYTES = 64 * 2**20


@dataclass(kw_only=True)
class Attempt:
    """Which attempt writes, and what it found: the step it began from, its name in each folder, and the names of all
    that lay there before (place/name). Not `ready` while that is being brought there."""

    epoch: int = 0
    ready: bool = False
    job_key: str = ""
    step: int | None = None
    restored: dict[str, str] = field(default_factory=dict)
    before: list[str] = field(default_factory=list)


@dataclass(kw_only=True)
class Known:
    """What the second process has found out about a step: its stamp when it was sealed, or why it is passed over."""

    epoch: int
    step: int
    stamp: str = ""
    why_not: str = ""


@dataclass(frozen=True)
class ProgramFolder:
    """The folders of one job's program on this node."""

    root: Path

    @classmethod
    def of(cls, ssd_dir: Path, job: str) -> "ProgramFolder":
        """Return that of a job: no job's name has a dot."""
        return cls(ssd_dir / f"{job}.programs")

    @property
    def out(self) -> Path:
        """What the container sees."""
        return self.root / "out"

    @property
    def aside(self) -> Path:
        """Where abandoned steps go."""
        return self.root / "aside"

    def place(self, rule: FolderRule, rank: int) -> str:
        """Return the name, below `out`, of the folder that a rank writes to."""
        return f"rank-{rank}" if rule.of is Whose.RANK else "node"

    def places(self, rule: FolderRule, ranks: Sequence[int]) -> dict[str, list[int]]:
        """Return the folders below `out` and the ranks that write to each, in order."""
        found: dict[str, list[int]] = {}
        for rank in sorted(ranks):
            found.setdefault(self.place(rule, rank), []).append(rank)
        return found

    def make(self) -> None:
        """Make the folders for the agent's user alone. Raises TierFull, TierUnreachable."""
        with copying.tier_errors(self.root):
            self.root.parent.mkdir(parents=True, exist_ok=True)
            for path in (self.root, self.out, self.aside):
                opening.make_private(path)

    def make_places(self, rule: FolderRule, ranks: Sequence[int]) -> None:
        """Make the folders that ranks write to. Raises TierFull, TierUnreachable."""
        self.make()
        for place in self.places(rule, ranks):
            with copying.tier_errors(self.out / place):
                opening.make_private(self.out / place)

    def attempt(self) -> Attempt:
        """Return which attempt writes; none when nothing can be read."""
        raw = self._read("attempt.json")
        with contextlib.suppress(TypeError):
            return Attempt(**raw)
        return Attempt()

    def note_attempt(self, attempt: Attempt) -> None:
        """Keep which attempt writes, durable. Raises TierFull, TierUnreachable."""
        copying.write_json(self.root / "attempt.json", asdict(attempt))

    def known(self) -> dict[str, Known]:
        """Return what is known of steps, by place and name."""
        found = {}
        for key, value in self._read("sealed.json").items():
            with contextlib.suppress(TypeError):
                found[key] = Known(**value)
        return found

    def keep_known(self, known: Mapping[str, Known]) -> None:
        """Keep what is known of steps, durable. Raises TierFull, TierUnreachable."""
        copying.write_json(self.root / "sealed.json", {key: asdict(value) for key, value in known.items()})

    def unsealed(self, rule: FolderRule, ranks: Sequence[int], ended_well: Collection[int]) -> list[str]:
        """Return the steps, newer than any that was sealed, that are going to be, the ranks having ended."""
        attempt, known = self.attempt(), self.known()
        found = []
        for place, own in self.places(rule, ranks).items():
            sealed = (each.step for key, each in known.items() if key.startswith(f"{place}/") and each.stamp)
            newest = max((step for step in sealed), default=-1)
            ended = rule.sealed_by is SealedBy.RENAME or set(own) <= set(ended_well)
            for name in names(self.out / place):
                key, step = f"{place}/{name}", rule.step_of(name)
                if key in known or key in attempt.before or rule.is_unfinished(name) or step is None or step <= newest:
                    continue
                marked = has_marker(self.out / place, name, rule)
                if marked or (ended and rule.sealed_by is not SealedBy.MARKER):
                    found.append(key)
        return found

    def _read(self, name: str) -> dict[str, Any]:
        try:
            found = json.loads(opening.small(self.root / name, _LIMIT_BYTES))
        except (OSError, ValueError):
            return {}
        return found if isinstance(found, dict) else {}


def names(place: Path) -> list[str]:
    """Return what lies in a folder of a program, sorted; nothing when it is not there. Raises TierError."""
    with contextlib.suppress(FileNotFoundError, NotADirectoryError), copying.tier_errors(place):
        return sorted(opening.names(place)) if place.exists() else []
    return []


def has_marker(place: Path, name: str, rule: FolderRule) -> bool:
    """Return whether a step is marked as whole: in its folder, or beside it when it is a file."""
    return any(os.path.lexists(path) for path in (place / name / rule.marker, place / f"{name}.{rule.marker}"))


def is_alive(job_folder: Path, rank: int) -> bool:
    """Return whether a process of a rank lives: each holds a lock that the kernel takes away with the last of them."""
    try:
        handle = opening.regular(job_folder / "run" / f"alive-{rank}")
    except OSError:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(handle)
    return False
