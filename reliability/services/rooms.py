"""Which tier runs full, and is that told before it bites? Looks at what nodes told of their disks.

A warning is an incident of class storage that nobody acts on but a person; it is open while the tier is short of room.
"""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from django.db import transaction
from django.db.models import QuerySet

from reliability import conf
from reliability.domain import room as rules
from reliability.domain.faults import Action, FaultClass
from reliability.domain.room import Level, Limits, Space, Trend, Verdict
from reliability.domain.snapshots import Tier
from reliability.models import Incident, Job, Node, Room, Slot, SnapshotTier
from reliability.selectors import core
from reliability.services import dispatch

LOOK_S = 5.0
HEARD_S = 30.0
"""What a node told of its disks counts for so long after it was last heard."""
CODE = "tier-filling"
ADVICE = {
    Tier.MEMORY.value: "Give the memory tier more room, or fewer slots; a save that finds none is tried again.",
    Tier.SSD.value: "Free space there, keep fewer snapshots, or save less often; copying stops when it is full.",
    Tier.STORAGE.value: "Free space there, keep fewer snapshots, or give the job a larger storage_dir.",
}

Place = tuple[int | None, str, str]
"""Node (None: shared), tier, address (empty: the node's own)."""


@dataclass(frozen=True)
class _Seen:
    """One place as its node told of it last, and by which limits it is judged."""

    space: Space
    limits: Limits
    name: str


def look(now: datetime) -> None:
    """Look at every tier of the nodes that are heard, and open or close what there is to warn of."""
    if Room.objects.filter(looked_at__gt=now - timedelta(seconds=LOOK_S)).exists():
        return
    known = {(room.node_id, room.tier, room.place): room for room in Room.objects.all()}
    seen = _seen(now)
    for place, told in seen.items():
        _look_at(known.get(place), place, told, now)
    for place, room in known.items():
        if place not in seen and room.node_id is None:
            _forget(room, now)


def _seen(now: datetime) -> dict[Place, _Seen]:
    """Return what is known of every place: own tiers of the nodes, and the storage of jobs that are not over."""
    nodes = {node.pk: node for node in Node.objects.filter(last_seen_at__gt=now - timedelta(seconds=HEARD_S))}
    jobs: dict[int, list[Job]] = defaultdict(list)
    for slot in core.active_slots().filter(node__in=list(nodes)).select_related("job"):
        jobs[slot.node_id or 0].append(slot.job)
    sizes = {job.pk: _save_bytes(job) for job in {each.pk: each for group in jobs.values() for each in group}.values()}
    found: dict[Place, _Seen] = {}
    for node in nodes.values():
        for tier, told in (node.disks if isinstance(node.disks, dict) else {}).items():
            space = rules.read(told)
            if space is None or tier not in ADVICE:
                continue
            if tier != Tier.STORAGE:
                own = _of_node(space, tier, jobs[node.pk], sizes)
                found[node.pk, tier, ""] = _Seen(own, _limits(jobs[node.pk]), f"The {tier} tier of {node.name}")
            else:
                _add_shared(found, space, jobs[node.pk], sizes)
    return found


def _of_node(space: Space, tier: str, jobs: list[Job], sizes: Mapping[int, int | None]) -> Space:
    """In memory the slots are reserved at the start; on an SSD every save takes room, each node its share."""
    if tier == Tier.MEMORY:
        return space
    shares = [(sizes[job.pk] or 0) // max(job.nodes, 1) for job in jobs]
    return replace(space, save_bytes=sum(shares) or None)


def _add_shared(found: dict[Place, _Seen], space: Space, jobs: list[Job], sizes: Mapping[int, int | None]) -> None:
    for job in jobs:
        place = (None, Tier.STORAGE.value, job.storage_dir)
        before = found.get(place)
        if before is None or space.free_bytes < before.space.free_bytes:
            told = replace(space, save_bytes=sizes[job.pk])
            found[place] = _Seen(told, _limits([job]), f"The storage {job.storage_dir}")


def _save_bytes(job: Job) -> int | None:
    rows = SnapshotTier.objects.filter(job=job, ranks__gte=job.world_size, tier=Tier.MEMORY).order_by("-step")
    return rows.values_list("size_bytes", flat=True).first() or None


def _limits(jobs: list[Job]) -> Limits:
    """Return the earliest warning that one of the jobs asks for."""
    usual = conf.room_limits()
    within = [usual.full_within_s if job.warn_full_within_s is None else job.warn_full_within_s for job in jobs]
    shares = [usual.free_share if job.warn_free_share is None else job.warn_free_share for job in jobs]
    return Limits(
        full_within_s=max(within, default=usual.full_within_s), free_share=max(shares, default=usual.free_share)
    )


def _look_at(room: Room | None, place: Place, seen: _Seen, now: datetime) -> None:
    before = None
    if room is not None:
        rate = room.fills_bytes_per_s
        before = Trend(anchor_bytes=room.anchor_bytes, anchor_at=room.anchor_at.timestamp(), bytes_per_s=rate)
    trend = rules.observed(before, seen.space.free_bytes, at=now.timestamp())
    warned = room is not None and room.level != Level.OK
    rate = trend.bytes_per_s if warned else trend.sure_bytes_per_s
    verdict = rules.judge(seen.space, rate, seen.limits, warned=warned)
    node, tier, address = place
    with transaction.atomic():
        if room is None:
            room = Room(node_id=node, tier=tier, place=address, changed_at=now)
        _take(room, seen.space, trend, before, now)
        _move(room, seen, verdict, now)


def _take(room: Room, space: Space, trend: Trend, before: Trend | None, now: datetime) -> None:
    room.free_bytes, room.total_bytes = space.free_bytes, space.total_bytes
    room.free_inodes, room.total_inodes = space.free_inodes, space.total_inodes
    room.save_bytes, room.fills_bytes_per_s, room.looked_at = space.save_bytes, trend.bytes_per_s, now
    if before is None or trend.anchor_at != before.anchor_at:
        room.anchor_bytes, room.anchor_at = trend.anchor_bytes, now


def _move(room: Room, seen: _Seen, verdict: Verdict, now: datetime) -> None:
    """Write the look; where the level changes, open, raise or close the incident in the same transaction."""
    changed = room.level != verdict.level
    room.level, room.words = verdict.level, verdict.words
    if changed:
        room.changed_at = now
        _tell(room, seen, verdict, now)
        topics = [f"job:{pk}" for pk in Slot.objects.filter(node=room.node_id).values_list("job_id", flat=True)]
        dispatch.changed("overview", *topics, *([f"node:{room.node_id}"] if room.node_id else []))
    elif room.incident_id and verdict.level != Level.OK:
        _standing(room).update(reasons=_reasons(room))
    room.save()


def _tell(room: Room, seen: _Seen, verdict: Verdict, now: datetime) -> None:
    standing = _standing(room)
    if verdict.level is Level.OK:
        standing.update(closed_at=now, close_reason="There is room again.")
        room.incident = None
        return
    summary = f"{seen.name} {'is full' if verdict.level is Level.FULL else 'is running full'}: {verdict.words}"
    if standing.update(summary=summary, reasons=_reasons(room)):
        return
    room.incident = Incident.objects.create(
        node_id=room.node_id,
        code=CODE,
        fault_class=FaultClass.STORAGE,
        action=Action.OBSERVE,
        summary=summary,
        reasons=_reasons(room),
        opened_at=now,
    )


def _standing(room: Room) -> QuerySet[Incident]:
    """Return the open incident of a room, or none."""
    return Incident.objects.filter(pk__in=[room.incident_id] if room.incident_id else [], closed_at=None)


def _reasons(room: Room) -> list[str]:
    rate = room.fills_bytes_per_s
    filling = f" It fills by {rate / 1e6:.1f} MB/s." if rate and rate > 0 else ""
    free = f"{room.free_bytes / 1e9:.2f} of {room.total_bytes / 1e9:.2f} GB are free.{filling}"
    return [room.words, free, ADVICE.get(room.tier, ""), "Training goes on."]


def _forget(room: Room, now: datetime) -> None:
    """A shared place that no job uses any more is nobody's trouble."""
    with transaction.atomic():
        _standing(room).update(closed_at=now, close_reason="No job that is not over stores there.")
        room.delete()
    dispatch.changed("overview")
