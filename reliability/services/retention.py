"""What may go from the tiers of a job, who removes it, and is it gone?

The decision is domain/retention.decide on what the ledger says. It is kept as one row for each copy until the node that
was told says that the copy is gone; each round decides anew, and takes back what is no longer right, or what a node did
not do for long. While a recovery is open, and for a snapshot that is being tried, nothing is decided, and no node is
told of what was (selectors/retention.told_to). Each node has a share of what a job's nodes are to do: one that never
answers, or is gone, holds up no other.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import islice
from typing import Any

from django.conf import settings
from django.db import transaction
from django.db.models import Q, QuerySet

from reliability.domain import retention as rules
from reliability.domain.health import NodeHealth
from reliability.domain.orders import OrderKind
from reliability.domain.retention import Removal, TierRule
from reliability.domain.snapshots import CopyState, SnapshotId, Tier
from reliability.errors import InvalidInput
from reliability.models import (
    Job,
    Node,
    OrderRecord,
    PlannedRemoval,
    RetentionRule,
    Snapshot,
    SnapshotCopy,
    TrialRestore,
)
from reliability.selectors import core
from reliability.selectors import retention as selected
from reliability.services import boundary, clock, dispatch, snapshots, turns

TURN = "retaining"
MOST_AT_ONCE = 2000
"""So many copies are planned in one round at most; the next goes on."""
MOST_PLANNED = 5000
"""So many copies of a job wait at most for nodes to remove them, each node having its share."""
UNANSWERED_S = 900.0
"""A node that did not say for so long that a copy is gone has it taken from its share, and another may do it."""
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


def decide_all(now: datetime) -> None:
    """Decide for every job that has begun, each behind its own boundary, unless that was done a moment ago.

    A controller that is behind finds several rounds waiting at once: the first of them does the work of all.
    """
    if not turns.take(TURN, now, settings.RETAIN_S / 2):
        return
    for job in Job.objects.exclude(epoch=0):
        boundary.apart("Deciding what may go", decide, job, now, job=job.pk)


def decide(job: Job, now: datetime) -> int:
    """Plan the removals that are right now and take back the others; returns how many snapshots are to go."""
    wanted = {(each.snapshot, each.tier): each for each in selected.decisions(job, now)}
    with transaction.atomic():
        epoch, job = job.epoch, Job.objects.select_for_update(no_key=True).get(pk=job.pk)
        if core.open_failover(job) is not None or job.epoch != epoch:
            wanted = {}
        for snapshot in _under_trial(job):
            for tier in rules.RULED:
                wanted.pop((snapshot, tier), None)
        there = _there(job, now)
        planned = _take_back(job, wanted, there, now)
        fresh = {key: wanted[key] for key in wanted if key not in planned}
        return len(planned) + (_plan(job, _chosen(job, fresh, there), there, now) if fresh else 0)


def _under_trial(job: Job) -> list[SnapshotId]:
    running = TrialRestore.objects.filter(job=job, state=TrialRestore.State.RUNNING)
    return [SnapshotId(*place) for place in running.values_list("snapshot__epoch", "snapshot__step")]


Key = tuple[SnapshotId, Tier]
Wanted = Mapping[Key, Removal]


@dataclass(frozen=True)
class _There:
    """Who can remove copies: rank -> node for storage, and the nodes that are there for their own SSDs.

    `room`: how many more copies a node of `nodes` may be told of; what is planned comes off it.
    """

    cleaners: Mapping[int, int]
    room: dict[int, int]

    def node_for(self, copy: SnapshotCopy) -> int | None:
        """Return the node that removes a copy, None while nobody can."""
        if copy.node_id is None:
            return self.cleaners.get(copy.rank)
        return copy.node_id if copy.node_id in self.room else None

    def able(self) -> Q:
        """Return the copies for whose removal some node is there and has room."""
        free = {node for node, room in self.room.items() if room > 0}
        ranks = [rank for rank, node in self.cleaners.items() if node in free]
        stored = Q(node=None) if len(ranks) == len(self.cleaners) else Q(node=None, rank__in=ranks)
        own = Q(node__in=free, tier=Tier.SSD)
        return own | stored if ranks else own


def _there(job: Job, now: datetime) -> _There:
    reachable = Node.objects.exclude(health=NodeHealth.UNREACHABLE)
    overdue = PlannedRemoval.objects.filter(job=job, planned_at__lte=now - timedelta(seconds=UNANSWERED_S))
    silent = set(overdue.order_by().values_list("node_id", flat=True).distinct())
    share = max(MOST_PLANNED // max(job.nodes, 1), 1)
    return _There(
        cleaners={rank: node.pk for rank, node in selected.cleaners(job, silent=silent).items()},
        room=dict.fromkeys(reachable.values_list("pk", flat=True), share),
    )


def _take_back(job: Job, wanted: Wanted, there: _There, now: datetime) -> set[Key]:
    """Remove the plans that are no longer right, or whose node is gone or silent; return what stays planned as it was.

    A snapshot of which one plan went is not among them: it is planned anew. What stays comes off its node's room.
    """
    stale: dict[int, Key] = {}
    kept: set[Key] = set()
    overdue = now - timedelta(seconds=UNANSWERED_S)
    for row in PlannedRemoval.objects.filter(job=job).select_related("copy", "snapshot"):
        key = (SnapshotId(row.snapshot.epoch, row.snapshot.step), Tier(row.tier))
        stands = key in wanted and row.copy.state in selected.PRESENT and row.planned_at > overdue
        if stands and there.node_for(row.copy) == row.node_id:
            kept.add(key)
            there.room[row.node_id] = there.room.get(row.node_id, 0) - 1
        else:
            stale[row.pk] = key
    for chunk in _chunks(list(stale)):
        PlannedRemoval.objects.filter(pk__in=chunk).delete()
    return kept - set(stale.values())


def _chosen(job: Job, fresh: Wanted, there: _There) -> Wanted:
    """Return the next of what is not planned yet, of which some node can remove a copy now."""
    most = max(MOST_AT_ONCE // max(job.world_size, 1), 1)
    chosen: dict[Key, Removal] = {}
    keys = list(fresh)
    for start in range(0, len(keys), CHUNK):
        some = keys[start : start + CHUNK]
        found = _copies(job, some).filter(there.able()).order_by()
        places = found.values_list("snapshot__epoch", "snapshot__step", "tier").distinct()
        able = {(SnapshotId(epoch, step), Tier(tier)) for epoch, step, tier in places}
        chosen.update((key, fresh[key]) for key in some if key in able)
        if len(chosen) >= most:
            break
    return dict(islice(chosen.items(), most))


def _copies(job: Job, keys: Collection[Key]) -> QuerySet[SnapshotCopy]:
    """Return the copies that are there and not planned of steps among which these are."""
    snapshots_of = Snapshot.objects.filter(job=job, step__in={snapshot.step for snapshot, _ in keys})
    return SnapshotCopy.objects.filter(
        snapshot__in=list(snapshots_of.values_list("pk", flat=True)),
        tier__in={tier for _, tier in keys},
        state__in=selected.PRESENT,
        planned_removal=None,
    )


def _chunks(keys: Sequence[int]) -> Iterator[Sequence[int]]:
    for start in range(0, len(keys), CHUNK):
        yield keys[start : start + CHUNK]


def _plan(job: Job, wanted: Wanted, there: _There, now: datetime) -> int:
    """Plan what is not planned yet, in the order of the decision, as far as somebody is there to do it and has room."""
    copies: dict[Key, list[SnapshotCopy]] = {}
    for copy in _copies(job, wanted).select_related("snapshot").order_by("rank") if wanted else ():
        key = (SnapshotId(copy.snapshot.epoch, copy.snapshot.step), Tier(copy.tier))
        copies.setdefault(key, []).append(copy)
    fresh = []
    for key, removal in wanted.items():
        for copy in copies.get(key, ()):
            node_id = there.node_for(copy)
            if node_id is None or there.room.get(node_id, 0) <= 0:
                continue
            there.room[node_id] -= 1
            place = {"copy": copy, "job": job, "snapshot": copy.snapshot, "tier": copy.tier, "node_id": node_id}
            fresh.append(PlannedRemoval(**place, why=removal.why, words=removal.words, planned_at=now))
    PlannedRemoval.objects.bulk_create(fresh, batch_size=CHUNK)
    return len({(row.snapshot_id, row.tier) for row in fresh})


def may_go(node: Node) -> dict[str, dict[str, list[list[int]]]]:
    """Return what a node is to remove: job -> tier -> [[epoch, step, rank]]."""
    told: dict[str, dict[str, list[list[int]]]] = {}
    for row in selected.told_to(node):
        place = [row.snapshot.epoch, row.snapshot.step, row.copy.rank]
        told.setdefault(row.job.name, {}).setdefault(row.tier, []).append(place)
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
