"""Which stored snapshots may go when a person asks for it? By the rule that the server itself decides by."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from reliability.domain import retention
from reliability.domain.planner import durations
from reliability.domain.retention import Held, TierRule
from reliability.domain.snapshots import SnapshotId, Tier, in_lineage
from reliability.errors import NoRestorePoint
from reliability.models import Job, PlannedRemoval, Snapshot
from reliability.retention_forms import size_bytes
from reliability.selectors import core
from reliability.selectors import retention as selected
from reliability.tiers.catalogue import Stored


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What goes with the reason, abandoned lines first, then the oldest first; and the newest that stays."""

    gone: Sequence[tuple[Stored, str]]
    newest: Stored

    @property
    def size_bytes(self) -> int:
        """Bytes of all that goes."""
        return sum(each.size_bytes for each, _ in self.gone)


@dataclass(frozen=True, kw_only=True)
class Ledger:
    """What the ledger knows beside what is stored: when each was recorded, and which are never restored again."""

    recorded: Mapping[SnapshotId, float]
    distrusted: Collection[SnapshotId] = ()


def ledger_of(job: Job | None) -> Ledger:
    """Return what the ledger knows; nothing where no database is asked: every age is unknown then, which is young."""
    if job is None:
        return Ledger(recorded={})
    rows = Snapshot.objects.filter(job=job).values_list("epoch", "step", "created_at")
    recorded = {SnapshotId(epoch, step): created_at.timestamp() for epoch, step, created_at in rows}
    return Ledger(recorded=recorded, distrusted=core.distrusted(job))


def planned(job: Job) -> set[SnapshotId]:
    """Return the snapshots that nodes were told to remove from storage."""
    rows = PlannedRemoval.objects.filter(job=job, tier=Tier.STORAGE)
    places = rows.values_list("snapshot__epoch", "snapshot__step").distinct()
    return {SnapshotId(epoch, step) for epoch, step in places}


def rule_of(job: Job | None, options: Mapping[str, Any], found: Sequence[Stored]) -> TierRule:
    """Return the job's rule for storage, or the default, with what the command line says instead.

    A cap that is given has room for one snapshot at least. Raises InvalidInput naming the option.
    """
    rule = selected.rules_of(job)[Tier.STORAGE] if job else retention.DEFAULTS[Tier.STORAGE]
    if options["keep"] is not None:
        rule = replace(rule, keep_newest=options["keep"])
    if options["every_steps"] is not None:
        rule = replace(rule, every_steps=options["every_steps"])
    if options["younger"] is not None:
        rule = replace(rule, keep_for_s=durations.seconds(options["younger"], "--younger"))
    if options["cap"] is not None:
        rule = replace(rule, cap_bytes=size_bytes(options["cap"], "--cap"))
    retention.check(rule, prefix="the rule's ", snapshot_bytes=_one(job, found) if options["cap"] is not None else None)
    return rule


def _one(job: Job | None, found: Sequence[Stored]) -> int | None:
    """Return the size of one snapshot on storage, None when none is whole."""
    known = selected.snapshot_bytes(job, Tier.STORAGE) if job else None
    return known or next((each.size_bytes for each in found if each.whole), None)


def plan(
    found: Sequence[Stored], *, rule: TierRule, line: Mapping[int, int | None], ledger: Ledger, now: float
) -> Plan:
    """Return what may go of snapshots sorted newest first.

    `line` are the ceilings of the line that goes on; empty when it is not known: then attempts are not told apart.
    Raises InvalidInput for a rule that makes no sense, NoRestorePoint when there is no whole snapshot to stay.
    """
    known = line or dict.fromkeys((each.snapshot.epoch for each in found), None)
    current = [each for each in found if in_lineage(each.snapshot, known)]
    whole = [each for each in current if each.whole and each.snapshot not in ledger.distrusted]
    if not whole:
        raise NoRestorePoint("No whole snapshot of the line that goes on is stored.", hint="Nothing is removed.")
    by_snapshot = {each.snapshot: each for each in found}
    held = [_held(each, ledger) for each in found]
    removals = retention.decide(held, tier=Tier.STORAGE, rule=rule, line=known, now=now)
    newest = max(whole, key=lambda each: (each.snapshot.step, each.snapshot.epoch))
    return Plan(gone=[(by_snapshot[each.snapshot], each.words) for each in removals], newest=newest)


def _held(each: Stored, ledger: Ledger) -> Held:
    return Held(
        snapshot=each.snapshot,
        recorded_at=ledger.recorded.get(each.snapshot),
        size_bytes={Tier.STORAGE: each.size_bytes},
        complete=(Tier.STORAGE,) if each.whole else (),
        durable=each.whole,
        distrusted=each.snapshot in ledger.distrusted,
    )
