"""How did the attempts of a job begin? Kept beside the shards, so that the line that goes on is known without a ledger.

One small file for each attempt, written once by whichever of its nodes stores first; they all say the same.
"""

from collections.abc import Iterable

from reliability.domain.snapshots import EpochStart, SnapshotId, lineage_ceilings
from reliability.tiers import sealed

FOLDER = "epochs"
SUFFIX = ".json"


def name_of(epoch: int) -> str:
    """Return the name of an attempt's file, below the job's place."""
    return f"{FOLDER}/e{epoch}{SUFFIX}"


def composed(start: EpochStart) -> bytes:
    """Return what the file holds."""
    restored = [start.restored.epoch, start.restored.step] if start.restored else None
    return sealed.composed({"epoch": start.epoch, "restored": restored})


def parsed(raws: Iterable[bytes]) -> list[EpochStart]:
    """Return what files say; one that makes no sense says nothing."""
    found = []
    for raw in raws:
        said = sealed.parsed(raw)
        if said is not None:
            restored = SnapshotId(*said["restored"]) if said["restored"] else None
            found.append(EpochStart(epoch=said["epoch"], restored=restored))
    return found


def ceilings(starts: Iterable[EpochStart]) -> dict[int, int | None]:
    """Return the line that goes on; of an attempt whose own start is not known, up to where the line left it."""
    known = {start.epoch: start for start in starts}
    line = lineage_ceilings(known.values())
    for epoch in list(line):
        restored = known[epoch].restored
        if restored is not None and restored.epoch not in known:
            line[restored.epoch] = restored.step
    return line
