"""What is demanded of snapshots, and how is each of it computed from the rows that the workers print?"""

import math
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from bench._snapshots.busy import BUSY_CORES
from bench._table import Row, enough

SYNC, LAZY = "ours sync", "ours lazy"

Facts = dict[str, Any]
Numbers = tuple[list[float], int, bool]
"""Values, of how many, and whether they may be judged."""


@dataclass(frozen=True)
class Ratio:
    """A ratio of two facts of the same save or restore, of one contender; `peers` have it shown beside."""

    what: str
    mine: str
    kind: str
    above: str
    below: str
    must: float | None = None
    stretch: float | None = None
    peers: bool = True


@dataclass(frozen=True)
class Against:
    """A fact of ours in units of the same fact of a peer, turn by turn."""

    what: str
    kind: str
    fact: str
    peer: str
    must: float
    stretch: float


RATIOS = (
    Ratio("stall, sync / memcpy", SYNC, "save", "stall", "memcpy", 1.10, 0.75),
    Ratio("stall, lazy / memcpy", LAZY, "save", "stall", "memcpy", 0.05, 0.01, peers=False),
    Ratio("of it within save(), lazy / memcpy", LAZY, "save", "begin", "memcpy", 0.05, 0.01, peers=False),
    Ratio("first save, sync / memcpy", SYNC, "first", "stall", "memcpy", 1.3, 1.1),
    Ratio("first save, lazy / memcpy", LAZY, "first", "stall", "memcpy", 1.3, 1.1, peers=False),
    Ratio("lost per save, lazy / memcpy", LAZY, "save", "lost", "memcpy", 1.0, 0.7),
    Ratio("lost per save, sync / memcpy", SYNC, "save", "lost", "memcpy", peers=False),
    Ratio("durable, lazy / O_DIRECT limit", LAZY, "durable", "durable", "disk", 1.5, 1.2),
    Ratio("durable, sync / O_DIRECT limit", SYNC, "durable", "durable", "disk", 1.5, 1.2, peers=False),
    Ratio("restore from memory / memcpy", LAZY, "restore", "memory", "memcpy", 1.2, 1.05),
    Ratio("restore from SSD, cold / disk's reading limit", LAZY, "restore", "cold", "read"),
)
AGAINST = (
    Against("lost per save, lazy / DLRover", "save", "lost", "dlrover", 0.8, 0.4),
    Against("durable, lazy / DLRover", "durable", "durable", "dlrover", 0.6, 0.4),
    Against("restore from SSD, warm / torch.load", "restore", "warm", "torch.save", 0.35, 0.25),
    Against("restore from SSD, cold / torch.load", "restore", "cold", "torch.save", 0.7, 0.5),
)


def table(size: str, facts: Sequence[Facts]) -> Iterator[Row]:
    """Yield every row for one size of state."""
    for ratio in RATIOS:
        samples, taken, judged = _quiet(
            facts, ratio.kind, ratio.mine, lambda row, it=ratio: row[it.above] / row[it.below]
        )
        peers = _peers(facts, ratio) if ratio.peers else {}
        yield Row(
            what=f"{size} {ratio.what}",
            samples=samples,
            taken=taken,
            judged=judged,
            must=ratio.must,
            stretch=ratio.stretch,
            peers=peers,
        )
    for against in AGAINST:
        yield _against(size, facts, against)
    yield from _memory(size, facts)
    yield from _cadence(size, facts)


def _of(facts: Sequence[Facts], kind: str, name: str) -> list[Facts]:
    """Return one contender's rows of a kind; saves that it left out do not count."""
    return [row for row in facts if row["kind"] == kind and row["name"] == name and row.get("taken", True)]


def _quiet(facts: Sequence[Facts], kind: str, name: str, value: Callable[[Facts], float]) -> Numbers:
    """Return the values of the undisturbed rows; of all of them, not to be judged, where too few were undisturbed."""
    rows = _of(facts, kind, name)
    everything = [value(row) for row in rows]
    undisturbed = [found for found, row in zip(everything, rows, strict=True) if row["others"] <= BUSY_CORES]
    judged = enough(undisturbed, everything)
    return undisturbed if judged else everything, len(rows), judged


def _peers(facts: Sequence[Facts], ratio: Ratio) -> dict[str, float]:
    found = {}
    for name in dict.fromkeys(row["name"] for row in facts if row["kind"] == ratio.kind):
        rows = [row for row in _of(facts, ratio.kind, name) if ratio.above in row and ratio.below in row]
        if rows and not name.startswith("ours"):
            found[name] = statistics.median(row[ratio.above] / row[ratio.below] for row in rows)
    return found


def _against(size: str, facts: Sequence[Facts], it: Against) -> Row:
    """The ratio of the two medians: of a small difference of times, single ratios would say nothing.

    Both are in units of the memcpy (or of the disk's limit) of the same moment, so that a change of the machine's
    speed between their turns is none of the ratio.
    """
    unit = "disk" if it.kind == "durable" else "memcpy"
    mine, _, quiet = _quiet(facts, it.kind, LAZY, lambda row: row[it.fact] / row[unit])
    theirs, _, quiet_too = _quiet(facts, it.kind, it.peer, lambda row: row[it.fact] / row[unit])
    ours, other = statistics.median(mine or [math.nan]), statistics.median(theirs or [math.nan])
    return Row(
        what=f"{size} {it.what}",
        samples=[ours / other] if other > 0 else [],
        taken=1,
        judged=quiet and quiet_too,
        must=it.must,
        stretch=it.stretch,
        note=f"medians {ours:.3g} and {other:.3g} of the {unit}, n={len(mine)} and {len(theirs)}",
    )


def _memory(size: str, facts: Sequence[Facts]) -> Iterator[Row]:
    for name in (SYNC, LAZY):
        used = [row["used"] / row["state"] for row in _of(facts, "memory", name)]
        if used:
            yield Row(
                what=f"{size} extra memory, {name.removeprefix('ours ')} / state",
                samples=used,
                taken=len(used),
                must=2.1,
                stretch=2.05,
            )


def _cadence(size: str, facts: Sequence[Facts]) -> Iterator[Row]:
    rows = _of(facts, "cadence", LAZY)
    if not rows:
        return
    theirs = _of(facts, "cadence", "dlrover")
    for what, value, must, stretch in (
        ("kept in memory, asked each step", lambda row: row["kept"] / row["asked"], 1.0, None),
        ("goodput then", lambda row: row["goodput"], None, 0.90),
    ):
        peers = {"dlrover": statistics.median(map(value, theirs))} if theirs else {}
        yield Row(
            what=f"{size} {what}",
            samples=[value(row) for row in rows],
            taken=len(rows),
            must=must,
            stretch=stretch,
            at_least=True,
            peers=peers,
            note=f"silent skips {sum(row.get('silent', 0) for row in rows)}" if must else "",
        )
