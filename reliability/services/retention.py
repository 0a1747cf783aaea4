"""What may go from the tiers of a job, who removes it, and is it gone?

The decision is domain/retention.decide on what the ledger says. It is kept as one row for each copy until the node that
was told says that the copy is gone; each round decides anew, and takes back what is no longer right. While a recovery
is open, and for a snapshot that is being tried, nothing is decided.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import islice
from typing import Any

from django.conf import settings
from django.db import transaction

from reliability.domain import retention as rules
from reliability.domain.health import NodeHealth
from reliability.domain.orders import OrderKind
from reliability.domain.retention import Held, Removal, TierRule
from reliability.domain.snapshots import CopyState, SnapshotId, Tier
from reliability.errors import InvalidInput
from reliability.models import (
    Job,
    Node,
    OrderRecord,
    PlannedRemoval,
    RetentionRule,
    ServiceBeat,
    Snapshot,
    SnapshotCopy,
    TrialRestore,
)
from reliability.selectors import core
from reliability.selectors import retention as selected
from reliability.services import boundary, clock, dispatch, snapshots

TURN = "retaining"
MOST_AT_ONCE = 2000
"""So many copies are planned in one round at most; the next goes on."""
MOST_PLANNED = 5000
"""So many copies of a job wait at most for nodes to remove them."""
CHUNK = 500


def set_rule(job: Job, tier: Tier, rule: TierRule, *, by: str) -> RetentionRule:
    """Set what one tier of a job keeps. Raises InvalidInput naming the field as `tier.field`."""
    if tier not in rules.RULED:
        raise InvalidInput("tier", f"{tier} has no rule", hint="Memory holds two or three slots; rule ssd or storage.")
    rules.check(rule, snapshot_bytes=selected.snapshot_bytes(job, tier), prefix=f"{tier}.")
    values: dict[str, Any] = {
        "keep_newest": rule.keep_newest,
        "every_steps": rule.every_steps,
        "keep_for_s": rule.keep_for_s,
        "cap_bytes": rule.cap_bytes,
        "changed_by": by,
        "changed_at": clock.now(),
    }
    row, _ = RetentionRule.objects.update_or_create(job=job, tier=tier, defaults=values)
    dispatch.changed(f"job:{job.pk}")
    return row


def set_rules(job: Job, given: Mapping[Tier, TierRule], *, by: str) -> None:
    """Set what several tiers keep, all or none. Raises InvalidInput."""
    with transaction.atomic():
        for tier, rule in given.items():
            set_rule(job, tier, rule, by=by)


def decisions(job: Job, now: datetime, ledger: Sequence[Held] | None = None) -> list[Removal]:
    """Return what may go from each tier of a job now. Changes nothing. `ledger`: what selectors.retention.held read."""
    ledger, line = selected.held(job) if ledger is None else ledger, selected.line_of(job)
    found: list[Removal] = []
    for tier, rule in selected.rules_of(job).items():
        found += rules.decide(ledger, tier=tier, rule=rule, line=line, now=now.timestamp())
    return found


def decide_all(now: datetime) -> None:
    """Decide for every job that has begun, each behind its own boundary, unless that was done a moment ago.

    A controller that is behind finds several rounds waiting at once: the first of them does the work of all.
    """
    if not _take_turn(now):
        return
    for job in Job.objects.exclude(epoch=0):
        boundary.apart("Deciding what may go", decide, job, now, job=job.pk)


def _take_turn(now: datetime) -> bool:
    turns = ServiceBeat.objects.filter(name=TURN)
    if turns.filter(beat_at__lte=now - timedelta(seconds=settings.RETAIN_S / 2)).update(beat_at=now):
        return True
    return ServiceBeat.objects.get_or_create(name=TURN, defaults={"started_at": now, "beat_at": now})[1]


def decide(job: Job, now: datetime) -> int:
    """Plan the removals that are right now and take back the others; returns how many snapshots are to go."""
    wanted = {(each.snapshot, each.tier): each for each in decisions(job, now)}
    with transaction.atomic():
        epoch, job = job.epoch, Job.objects.select_for_update(no_key=True).get(pk=job.pk)
        if core.open_failover(job) is not None or job.epoch != epoch:
            wanted = {}
        for snapshot in _under_trial(job):
            for tier in rules.RULED:
                wanted.pop((snapshot, tier), None)
        there = _there(job)
        planned = _take_back(job, wanted, there)
        room = max(MOST_PLANNED - sum(planned.values()), 0) // max(job.world_size, 1)
        fresh = {key: wanted[key] for key in wanted if key not in planned}
        chosen = dict(islice(fresh.items(), min(room, max(MOST_AT_ONCE // max(job.world_size, 1), 1))))
        return len(planned) + (_plan(job, chosen, there, now) if chosen else 0)


def _under_trial(job: Job) -> list[SnapshotId]:
    running = TrialRestore.objects.filter(job=job, state=TrialRestore.State.RUNNING)
    return [SnapshotId(*place) for place in running.values_list("snapshot__epoch", "snapshot__step")]


Key = tuple[SnapshotId, Tier]
Wanted = Mapping[Key, Removal]


@dataclass(frozen=True)
class _There:
    """Who can remove copies: rank -> node for storage, and the nodes that are there for their own SSDs."""

    cleaners: Mapping[int, int]
    nodes: Collection[int]

    def node_for(self, copy: SnapshotCopy) -> int | None:
        """Return the node that removes a copy, None while nobody can."""
        if copy.node_id is None:
            return self.cleaners.get(copy.rank)
        return copy.node_id if copy.node_id in self.nodes else None


def _there(job: Job) -> _There:
    reachable = Node.objects.exclude(health=NodeHealth.UNREACHABLE)
    return _There(
        cleaners={rank: node.pk for rank, node in selected.cleaners(job).items()},
        nodes=set(reachable.values_list("pk", flat=True)),
    )


def _take_back(job: Job, wanted: Wanted, there: _There) -> dict[Key, int]:
    """Remove the plans that are no longer right, or whose node is gone; return what stays planned as it was, in copies.

    A snapshot of which one plan went is not among them: it is planned anew.
    """
    stale: dict[int, Key] = {}
    kept: dict[Key, int] = {}
    for row in PlannedRemoval.objects.filter(job=job).select_related("copy", "snapshot"):
        key = (SnapshotId(row.snapshot.epoch, row.snapshot.step), Tier(row.tier))
        if key in wanted and row.copy.state in selected.PRESENT and there.node_for(row.copy) == row.node_id:
            kept[key] = kept.get(key, 0) + 1
        else:
            stale[row.pk] = key
    for chunk in _chunks(list(stale)):
        PlannedRemoval.objects.filter(pk__in=chunk).delete()
    return {key: count for key, count in kept.items() if key not in set(stale.values())}


def _chunks(keys: Sequence[int]) -> Iterator[Sequence[int]]:
    for start in range(0, len(keys), CHUNK):
        yield keys[start : start + CHUNK]


def _plan(job: Job, wanted: Wanted, there: _There, now: datetime) -> int:
    """Plan what is not planned yet, in the order of the decision, as far as somebody is there to do it."""
    copies: dict[Key, list[SnapshotCopy]] = {}
    steps = {snapshot.step for snapshot, _ in wanted}
    keys = Snapshot.objects.filter(job=job, step__in=steps).values_list("pk", flat=True)
    rows = SnapshotCopy.objects.filter(
        snapshot__in=list(keys), tier__in=rules.RULED, state__in=selected.PRESENT, planned_removal=None
    )
    for copy in rows.select_related("snapshot").order_by("rank"):
        key = (SnapshotId(copy.snapshot.epoch, copy.snapshot.step), Tier(copy.tier))
        copies.setdefault(key, []).append(copy)
    fresh = [
        PlannedRemoval(
            copy=copy, job=job, snapshot=copy.snapshot, tier=copy.tier, node_id=node_id,
            why=removal.why, words=removal.words, planned_at=now,
        )
        for key, removal in wanted.items()
        for copy in copies.get(key, ())
        if (node_id := there.node_for(copy)) is not None
    ]  # fmt: skip
    PlannedRemoval.objects.bulk_create(fresh, batch_size=CHUNK)
    return len({(row.snapshot_id, row.tier) for row in fresh})


def may_go(node: Node) -> dict[str, dict[str, list[list[int]]]]:
    """Return what a node is to remove: job -> tier -> [[epoch, step, rank]]."""
    told: dict[str, dict[str, list[list[int]]]] = {}
    for row in selected.told_to(node).values_list(
        "job__name", "tier", "snapshot__epoch", "snapshot__step", "copy__rank"
    ):
        name, tier, *place = row
        told.setdefault(name, {}).setdefault(tier, []).append(place)
    return told


def note_gone(job: Job, node: Node, body: Mapping[str, Any]) -> bool:
    """A node says that a copy is gone from a tier; returns whether that is news.

    Raises InvalidInput when it is one of storage and the node has nothing to do there.
    """
    tier, snapshot = Tier(body["tier"]), SnapshotId(body["snapshot_epoch"], body["step"])
    copy = SnapshotCopy.objects.filter(
        snapshot__job=job,
        snapshot__epoch=snapshot.epoch,
        snapshot__step=snapshot.step,
        rank=body["rank"],
        tier=tier,
        node=None if tier is Tier.STORAGE else node,
    ).first()
    if copy is None or copy.state == CopyState.DELETED:
        return False
    planned = PlannedRemoval.objects.filter(copy=copy).first()
    if tier is Tier.STORAGE and (planned is None or planned.node_id != node.pk) and not _has_part(job, node):
        raise InvalidInput("tier", f"{node.name} was not told to remove this copy of job {job.name} from storage")
    words = planned.words if planned is not None else "Its node removed it."
    with transaction.atomic():
        PlannedRemoval.objects.filter(copy=copy).delete()
        news = snapshots.note_removed(job, snapshot, tier=tier, node=node, ranks=[body["rank"]], reason=words)
    return bool(news)


def _has_part(job: Job, node: Node) -> bool:
    if job.slots.filter(node=node).exists():
        return True
    return OrderRecord.objects.filter(job=job, node=node, kind=OrderKind.START).exists()
