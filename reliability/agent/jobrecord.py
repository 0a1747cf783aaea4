"""What does this node know of its part in a job, kept over restarts of the agent? The movers read it too."""

import json
import logging
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from reliability.domain.policy import LeaseRule
from reliability.domain.snapshots import EpochStart, SnapshotId
from reliability.tiers import copying

STARTS_KEPT = 200

log = logging.getLogger("stepkeeper.agent")
_said: set[tuple[Path, int]] = set()


@dataclass(kw_only=True)
class JobRecord:
    """This node's part in one job.

    `epoch` is the highest attempt known, `started_epoch` the attempt whose ranks were last started here. `starts`
    lists how attempts began, [epoch, restored epoch, restored step] with nulls for a start from nothing.
    `stopped` is a fact and set only when the end of the ranks is confirmed; `stopping` is the reason for which the
    lease demands their end until then. `adopted` marks a part of which only a container told, until the server does.
    """

    job: str
    epoch: int = 0
    started_epoch: int = 0
    slot: int | None = None
    ranks: list[int] = field(default_factory=list)
    lease_rule: str = LeaseRule.STOP_WHEN_STUCK
    storage_dir: str = ""
    job_key: str = ""
    world_size: int = 0
    storage_floor: int | None = None
    snapshot_folder: dict[str, Any] | None = None
    starts: list[list[int | None]] = field(default_factory=list)
    stopped: bool = True
    stopping: str = ""
    stopped_ranks: list[int] = field(default_factory=list)
    exits_reported: list[int] = field(default_factory=list)
    ended_well: list[int] = field(default_factory=list)
    first_steps_reported: list[int] = field(default_factory=list)
    released: bool = False
    adopted: bool = False

    @property
    def training(self) -> bool:
        """Whether ranks of the newest attempt were started here and neither are stopped nor shall be."""
        return self.started_epoch == self.epoch and self.unfenced and not self.stopping

    @property
    def unfenced(self) -> bool:
        """Whether ranks were started here whose end nobody has confirmed; some may have ended by themselves."""
        return self.started_epoch > 0 and not self.stopped

    def begin(self, epoch: int, ranks: list[int], restored: tuple[int, int] | None) -> None:
        """Take over that an attempt starts here."""
        self.epoch = self.started_epoch = epoch
        self.ranks = ranks
        self.stopped, self.stopping, self.released, self.adopted = False, "", False, False
        self.stopped_ranks, self.exits_reported, self.first_steps_reported, self.ended_well = [], [], [], []
        self.starts = [start for start in self.starts if start[0] != epoch][-STARTS_KEPT:]
        self.starts.append([epoch, *(restored or (None, None))])

    def end(self) -> None:
        """Take over that no rank of the started attempt runs any more."""
        self.stopped, self.stopping = True, ""

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
    """Yield all kept records. Fields of another version are ignored; what cannot be read is logged and left out."""
    known = {entry.name for entry in fields(JobRecord)}
    for path in sorted(folder.glob("*.json")):
        try:
            raw: dict[str, Any] = json.loads(path.read_bytes())
            yield JobRecord(**{name: value for name, value in raw.items() if name in known})
        except (OSError, ValueError, TypeError, AttributeError) as error:
            _say_once(path, error)


def _say_once(path: Path, error: Exception) -> None:
    """The movers read all records again and again: each state of a bad file is told once."""
    try:
        state = (path, path.stat().st_mtime_ns)
    except OSError:
        return  # it was replaced or removed at this moment
    if state not in _said:
        _said.add(state)
        log.error("job record cannot be read, it is left out: file=%s reason=%r", path, error)
