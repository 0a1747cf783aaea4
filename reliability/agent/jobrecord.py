"""What does this node know of its part in a job, kept over restarts of the agent? The movers read it too."""

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from reliability.domain.policy import LeaseRule
from reliability.domain.snapshots import EpochStart, SnapshotId
from reliability.tiers import copying

STARTS_KEPT = 200


@dataclass(kw_only=True)
class JobRecord:
    """This node's part in one job.

    `epoch` is the highest attempt known, `started_epoch` the attempt whose ranks were last started here. `starts`
    lists how attempts began, [epoch, restored epoch, restored step] with nulls for a start from nothing.
    """

    job: str
    epoch: int = 0
    started_epoch: int = 0
    slot: int | None = None
    ranks: list[int] = field(default_factory=list)
    lease_rule: str = LeaseRule.STOP_WHEN_STUCK
    storage_dir: str = ""
    storage_floor: int | None = None
    starts: list[list[int | None]] = field(default_factory=list)
    stopped: bool = True
    stopped_ranks: list[int] = field(default_factory=list)
    exits_reported: list[int] = field(default_factory=list)
    first_steps_reported: list[int] = field(default_factory=list)
    released: bool = False

    @property
    def training(self) -> bool:
        """Whether ranks of the newest attempt were started here and not stopped since."""
        return self.started_epoch > 0 and self.started_epoch == self.epoch and not self.stopped

    def begin(self, epoch: int, ranks: list[int], restored: tuple[int, int] | None) -> None:
        """Take over that an attempt starts here."""
        self.epoch = self.started_epoch = epoch
        self.ranks = ranks
        self.stopped, self.released = False, False
        self.stopped_ranks, self.exits_reported, self.first_steps_reported = [], [], []
        self.starts = [start for start in self.starts if start[0] != epoch][-STARTS_KEPT:]
        self.starts.append([epoch, *(restored or (None, None))])

    def epoch_starts(self) -> list[EpochStart]:
        """Return how the attempts known here began."""
        return [
            EpochStart(
                epoch=int(epoch or 0),
                restored=None if restored is None or step is None else SnapshotId(restored, step),
            )
            for epoch, restored, step in self.starts
        ]


def save(folder: Path, record: JobRecord) -> None:
    """Keep a record, whole and durable."""
    copying.write_json(folder / f"{record.job}.json", asdict(record))


def load_all(folder: Path) -> Iterator[JobRecord]:
    """Yield all kept records; one that cannot be read, as after a crash of the disk, is left out."""
    for path in sorted(folder.glob("*.json")):
        try:
            raw: dict[str, Any] = json.loads(path.read_bytes())
            yield JobRecord(**raw)
        except (OSError, ValueError, TypeError):
            continue
