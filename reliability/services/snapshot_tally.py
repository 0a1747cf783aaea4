"""Counts what the copies of snapshots come to, in the transaction that changed one of them.

Whoever writes copies calls `recount` before the transaction ends; lists, restore points and floors read only what is
counted here. It counts anew from the copies, so that it may be called once too often and by anybody. Within `once` it
is done at the end, for all copies that one transaction changed.
"""

import threading
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from itertools import islice

from django.db import transaction
from django.db.models import Exists, F, OuterRef, Q, QuerySet

from reliability.domain import ledger
from reliability.domain.ledger import CopyFacts, Standing, Tally, TierTally
from reliability.models import Snapshot, SnapshotCopy, SnapshotTier

CHUNK = 50
FEW = 8
_COLUMNS = (
    "snapshot_id", "rank", "tier", "state", "size_bytes", "committed_at", "verified_at", "trial_restored_at", "stall_s",
    "drain_s", "superseded",
)  # fmt: skip
_COUNTED = (
    "ranks", "verified", "trial_restored", "corrupt", "lost", "removed", "ever", "size_bytes", "stall_s", "drain_s",
    "superseded",
)  # fmt: skip
_GONE = ("corrupt", "lost", "removed")
"""Counts, and standings of the same names."""
UNFINISHED = (Standing.ABSENT, Standing.WRITING)
"""Standings that a later snapshot, once it is complete there, turns into superseded."""
_REPLACED = ("state", "complete_at", *_COUNTED)


def lock(snapshots: Iterable[int]) -> None:
    """Lock these snapshots (primary keys) until the transaction ends: whoever changes copies, before it reads them.

    All that one transaction will need in one call: the order is always the same, so that no two wait for each other.
    """
    for chunk in _chunks(sorted(set(snapshots))):
        list(_these(chunk).select_for_update(no_key=True).values_list("pk", flat=True))


class _Block:
    """What waits for the end of a block: snapshots to count, then what needs the counts, each thing once."""

    def __init__(self) -> None:
        self.snapshots: set[int] = set()
        self.work: dict[Hashable, Callable[[], object]] = {}


_local = threading.local()
"""`block`: the `_Block` that this thread is in, if it is in one."""


@contextmanager
def once() -> Iterator[None]:
    """Within the block, which is in one transaction, `recount` and `then` wait for its end and are done once.

    So within it nobody may decide by what is counted: `SnapshotTier`, `held`, `durable`. Nothing is done at the end of
    a block that raises: its transaction is undone.
    """
    outer: _Block | None = getattr(_local, "block", None)
    if outer is not None:
        yield
        return
    block = _local.block = _Block()
    try:
        yield
    finally:
        _local.block = None
    recount(block.snapshots)
    for work in block.work.values():
        work()


def recount(snapshots: Iterable[int]) -> None:
    """Count the copies of these snapshots (primary keys) anew, each snapshot under its lock."""
    block: _Block | None = getattr(_local, "block", None)
    if block is not None:
        block.snapshots.update(snapshots)
        return
    for chunk in _chunks(sorted(set(snapshots))):
        with transaction.atomic():
            locked = _these(chunk).select_for_update(of=("self",), no_key=True)
            rows = list(locked.select_related("job"))
            _write(rows, _facts(rows))


def then(key: Hashable, work: Callable[[], object]) -> None:
    """Do what needs the counts: now, or at the end of the block, once for all calls with the same key."""
    block: _Block | None = getattr(_local, "block", None)
    if block is None:
        work()
    else:
        block.work[key] = work


def _these(keys: Iterable[int]) -> QuerySet[Snapshot]:
    return Snapshot.objects.filter(pk__in=keys).order_by("pk")


def recount_all() -> int:
    """Count every snapshot anew, as after copies were written past the services; returns how many there are."""
    keys = list(Snapshot.objects.values_list("pk", flat=True))
    recount(keys)
    return len(keys)


def _chunks(keys: Sequence[int]) -> Iterator[list[int]]:
    source = iter(keys)
    while chunk := list(islice(source, CHUNK)):
        yield chunk


def _facts(rows: Iterable[Snapshot]) -> dict[int, list[CopyFacts]]:
    found: dict[int, list[CopyFacts]] = defaultdict(list)
    copies = SnapshotCopy.objects.filter(snapshot__in=[row.pk for row in rows]).order_by()
    for key, rank, tier, state, size, committed, verified, trial, stall, drain, passed in copies.values_list(*_COLUMNS):
        found[key].append(
            CopyFacts(
                rank=rank,
                tier=tier,
                state=state,
                size_bytes=size,
                committed_s=committed.timestamp(),
                verified=verified is not None,
                trial_restored=trial is not None,
                stall_s=stall,
                drain_s=drain,
                superseded=passed,
            )
        )
    return found


class _Whole:
    """Keeps, while several snapshots are counted, after which of them a complete one was found on a tier, or none."""

    def __init__(self) -> None:
        self._there: dict[tuple[int, str], tuple[int, int]] = {}
        self._none_after: dict[tuple[int, str], tuple[int, int]] = {}

    def after(self, line: SnapshotTier, ranks: int) -> bool:
        """Return whether a later snapshot of the job is complete on this tier."""
        place, here = (line.job_id, line.tier), (line.epoch, line.step)
        if here < self._there.get(place, here):
            return True
        if here >= self._none_after.get(place, (here[0], here[1] + 1)):
            return False
        later = Q(epoch=line.epoch, step__gt=line.step) | Q(epoch__gt=line.epoch)
        whole = SnapshotTier.objects.filter(later, job=line.job_id, tier=line.tier, ranks__gte=ranks)
        found = whole.order_by("-step", "-epoch").values_list("epoch", "step")[:1]
        if not found:
            self._none_after[place] = here
            return False
        self._there[place] = found[0]
        return True


def _write(rows: Sequence[Snapshot], facts: dict[int, list[CopyFacts]]) -> None:
    before = {
        (each.snapshot_id, each.tier): each
        for each in SnapshotTier.objects.filter(snapshot__in=[row.pk for row in rows])
    }
    fresh: list[SnapshotTier] = []
    changed: list[SnapshotTier] = []
    whole = _Whole()
    for row in rows:
        found = ledger.tally(facts[row.pk])
        _write_snapshot(row, found)
        for tier, counted in found.tiers.items():
            kept = before.get((row.pk, tier.value))
            line = kept or SnapshotTier(
                snapshot=row, job_id=row.job_id, epoch=row.epoch, step=row.step, tier=tier.value
            )
            if _take(line, counted, row.job.world_size, whole) or kept is None:
                (changed if kept else fresh).append(line)
    SnapshotTier.objects.bulk_create(fresh)
    if len(changed) <= FEW:  # one statement each costs less than one with every value of every row in it
        for line in changed:
            SnapshotTier.objects.filter(pk=line.pk).update(**{name: getattr(line, name) for name in _REPLACED})
    else:
        SnapshotTier.objects.bulk_update(changed, _REPLACED)
    _look_again([line.pk for line in (*fresh, *changed) if line.state in UNFINISHED])
    for line in (*fresh, *changed):
        if line.ranks >= line.snapshot.job.world_size:
            _overtake(line)


def _write_snapshot(row: Snapshot, found: Tally) -> None:
    if (row.held, row.durable) != (found.held, found.durable):
        Snapshot.objects.filter(pk=row.pk).update(held=found.held, durable=found.durable)


def _take(line: SnapshotTier, counted: TierTally, ranks: int, whole: _Whole) -> bool:
    """Take the counts over; returns whether anything differs. Ranks that once had a copy stay counted."""
    values = {name: getattr(counted, name) for name in _COUNTED}
    complete_s = counted.complete_s
    values["complete_at"] = None if complete_s is None else datetime.fromtimestamp(complete_s, tz=UTC)
    values["ever"] = max(line.ever, counted.ever)
    values["superseded"] = max(line.superseded, counted.superseded)
    if line.ever and not counted.ever:  # the rows of copies that are gone were forgotten: what they came to stays
        values |= {name: getattr(line, name) for name in ("stall_s", "drain_s", "complete_at", *_GONE)}
        values["state"] = line.state if line.state in _GONE else Standing.REMOVED.value
    else:
        overtaken = counted.ranks < ranks and whole.after(line, ranks)
        values["state"] = ledger.standing(counted, ranks=ranks, overtaken=overtaken).value
    differs = any(getattr(line, name) != value for name, value in values.items())
    for name, value in values.items():
        setattr(line, name, value)
    return differs


def _overtake(line: SnapshotTier) -> None:
    """Every earlier snapshot that is not complete on this tier, and of which nothing was lost, was passed over."""
    earlier = Q(epoch=line.epoch, step__lt=line.step) | Q(epoch__lt=line.epoch)
    unfinished = SnapshotTier.objects.filter(earlier, job=line.job_id, tier=line.tier, state__in=UNFINISHED)
    unfinished.update(state=Standing.SUPERSEDED)


def _look_again(lines: Sequence[int]) -> None:
    """Lines just written as unfinished may have been overtaken since `_Whole` looked.

    Whoever completes a later snapshot changes these lines without their snapshots' locks. The write waited for one who
    did so first, and it is seen now; one who does so later waits for this write, and finds the line unfinished.
    """
    if not lines:
        return
    later = Q(epoch=OuterRef("epoch"), step__gt=OuterRef("step")) | Q(epoch__gt=OuterRef("epoch"))
    whole = SnapshotTier.objects.filter(later, job=OuterRef("job"), tier=OuterRef("tier"))
    whole = whole.filter(ranks__gte=F("job__nodes") * F("job__ranks_per_node"))
    overtaken = SnapshotTier.objects.filter(Exists(whole), pk__in=lines, state__in=UNFINISHED)
    overtaken.update(state=Standing.SUPERSEDED)
