"""What may go from the tiers of a job, who removes it, and is it gone?

The decision is domain/retention.decide on what the ledger says. It is kept as one row for each copy until the node that
was told says that the copy is gone; each round decides anew, and takes back what is no longer right. While a recovery
is open, and for a snapshot that is being tried, nothing is decided.
"""

from collections.abc import Mapping
from datetime import datetime
from itertools import islice
from typing import Any

from django.db import transaction

from reliability.domain import retention as rules
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
    SnapshotCopy,
    TrialRestore,
)
from reliability.selectors import core
from reliability.selectors import retention as selected
from reliability.services import boundary, clock, dispatch, snapshots

MOST_AT_ONCE = 100
"""So many snapshots are planned in one round at most; the next goes on."""


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


def decisions(job: Job, now: datetime) -> list[Removal]:
    """Return what may go from each tier of a job now. Changes nothing."""
    ledger, line = selected.held(job), selected.line_of(job)
    found: list[Removal] = []
    for tier, rule in selected.rules_of(job).items():
        found += rules.decide(ledger, tier=tier, rule=rule, line=line, now=now.timestamp())
    return found


def decide_all(now: datetime) -> None:
    """Decide for every job that has begun, each behind its own boundary."""
    for job in Job.objects.exclude(epoch=0):
        boundary.apart("Deciding what may go", decide, job, now, job=job.pk)


def decide(job: Job, now: datetime) -> int:
    """Plan the removals that are right now and take back the others; returns how many snapshots are to go."""
    with transaction.atomic():
        job = Job.objects.select_for_update(no_key=True).get(pk=job.pk)
        if core.open_failover(job) is not None:
            return len(_take_back(job, {}))
        wanted = {(each.snapshot, each.tier): each for each in decisions(job, now)}
        for epoch, step in _under_trial(job):
            for tier in rules.RULED:
                wanted.pop((SnapshotId(epoch, step), tier), None)
        planned = _take_back(job, wanted)
        fresh = {key: wanted[key] for key in wanted if key not in planned}
        return len(planned) + _plan(job, dict(islice(fresh.items(), MOST_AT_ONCE)), now)


def _under_trial(job: Job) -> list[tuple[int, int]]:
    running = TrialRestore.objects.filter(job=job, state=TrialRestore.State.RUNNING)
    return list(running.values_list("snapshot__epoch", "snapshot__step"))


Key = tuple[SnapshotId, Tier]
Wanted = Mapping[Key, Removal]


def _take_back(job: Job, wanted: Wanted) -> set[Key]:
    """Remove the plans that are no longer right, or whose node is gone; returns what stays planned as it was."""
    rows = PlannedRemoval.objects.filter(copy__snapshot__job=job).select_related("copy__snapshot")
    cleaners = selected.cleaners(job)
    stale: dict[int, Key] = {}
    kept: set[Key] = set()
    for row in rows:
        right = _key(row.copy) in wanted and row.copy.state in selected.PRESENT
        if right and (row.copy.node_id or _cleaner_id(cleaners, row.copy)) == row.node_id:
            kept.add(_key(row.copy))
        else:
            stale[row.pk] = _key(row.copy)
    PlannedRemoval.objects.filter(pk__in=stale).delete()
    return kept - set(stale.values())


def _plan(job: Job, wanted: Wanted, now: datetime) -> int:
    """Plan what is not planned yet, in the order of the decision, as far as somebody is there to do it."""
    cleaners = selected.cleaners(job)
    copies: dict[Key, list[SnapshotCopy]] = {}
    rows = SnapshotCopy.objects.filter(
        snapshot__job=job,
        tier__in=rules.RULED,
        state__in=selected.PRESENT,
        planned_removal=None,
        snapshot__step__in={key[0].step for key in wanted},
    )
    for copy in rows.select_related("snapshot").order_by("rank"):
        copies.setdefault(_key(copy), []).append(copy)
    fresh = []
    for key, removal in wanted.items():
        for copy in copies.get(key, ()):
            node_id = copy.node_id or _cleaner_id(cleaners, copy)
            if node_id is not None:
                values = {"why": removal.why, "words": removal.words, "planned_at": now}
                fresh.append(PlannedRemoval(copy=copy, node_id=node_id, **values))
    PlannedRemoval.objects.bulk_create(fresh, batch_size=500)
    return len({_key(each.copy) for each in fresh})


def _key(copy: SnapshotCopy) -> Key:
    return SnapshotId(copy.snapshot.epoch, copy.snapshot.step), Tier(copy.tier)


def _cleaner_id(cleaners: Mapping[int, Node], copy: SnapshotCopy) -> int | None:
    node = cleaners.get(copy.rank)
    return node.pk if node is not None else None


def may_go(node: Node) -> dict[str, dict[str, list[list[int]]]]:
    """Return what a node is to remove: job -> tier -> [[epoch, step, rank]]."""
    rows = list(selected.told_to(node))
    names = dict(Job.objects.filter(pk__in=selected.jobs_with_removals(rows)).values_list("pk", "name")) if rows else {}
    told: dict[str, dict[str, list[list[int]]]] = {}
    for row in rows:
        snapshot = row.copy.snapshot
        job = told.setdefault(names[snapshot.job_id], {})
        job.setdefault(row.copy.tier, []).append([snapshot.epoch, snapshot.step, row.copy.rank])
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
