"""What do decisions read: holds, free nodes, candidates, the snapshot ledger, stage times?"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from django.db.models import Q, QuerySet

from reliability.domain import goodput
from reliability.domain.failover import OPEN, Event, State
from reliability.domain.faults import Action
from reliability.domain.orders import OrderKind
from reliability.domain.snapshots import EpochStart, SnapshotId, lineage_ceilings
from reliability.domain.standby import Verdict
from reliability.models import (
    Epoch,
    Failover,
    Hold,
    Incident,
    Job,
    Node,
    OrderRecord,
    Rank,
    Report,
    ServiceBeat,
    Slot,
    Snapshot,
    SnapshotTier,
    Validation,
)

INGEST_BEAT = "ingest"
LISTENING_GAP_S = 3.0
"""Longer than this without a beat of ingest, nobody listened: silence of nodes in that time proves nothing."""


TRIAL_FAILED = "trial-restore-failed"
"""Code of what a trial restore found."""


def listening_since(now: datetime) -> datetime | None:
    """Return since when ingest has listened without a gap, None when it does not listen now."""
    beat = ServiceBeat.objects.filter(name=INGEST_BEAT).first()
    if beat is None or (now - beat.beat_at).total_seconds() > LISTENING_GAP_S:
        return None
    return beat.started_at


def active_holds() -> QuerySet[Hold]:
    """Return the holds that keep a node from new work."""
    return Hold.objects.filter(released_at=None)


def active_slots() -> QuerySet[Slot]:
    """Return the slots of jobs that are not over and that have a node."""
    return Slot.objects.exclude(job__state__in=Job.TERMINAL).exclude(node=None)


def free_nodes() -> QuerySet[Node]:
    """Return the nodes that hold no slot of a job that is not over."""
    return Node.objects.exclude(pk__in=active_slots().values("node_id"))


def slots_of(job: Job) -> list[Slot]:
    """Return the job's slots in order, with their nodes."""
    return list(Slot.objects.filter(job=job).select_related("node").order_by("index"))


def keeps_partner_copy(job: Job, node: Node, rank: int) -> bool:
    """Return whether a node was told to keep a copy of a rank's shards for a partner."""
    told = OrderRecord.objects.filter(job=job, node=node, kind=OrderKind.PARTNER_KEEP).order_by("-created_at")
    payloads = told.values_list("payload", flat=True)[:10]
    return any(rank in (payload.get("peer") or {}).get("ranks", ()) for payload in payloads)


def placement(job: Job) -> dict[int, str]:
    """Return rank -> name of the node that runs it, for ranks that have one."""
    rows = Rank.objects.filter(job=job).exclude(slot__node=None).values_list("rank", "slot__node__name")
    return {rank: name for rank, name in rows if name}


def open_failover(job: Job) -> Failover | None:
    """Return the recovery of this job that is not over."""
    return Failover.objects.filter(job=job, state__in=OPEN).first()


def incidents_of(job: Job) -> QuerySet[Incident]:
    """Return the incidents of a job's training; a copy that failed its trial is one apart, and stops nothing."""
    return Incident.objects.filter(job=job).exclude(code=TRIAL_FAILED)


def all_finished(job: Job) -> bool:
    """Return whether every rank has ended well in the present attempt."""
    return not Rank.objects.filter(job=job).exclude(state=Rank.State.EXITED, epoch=job.epoch).exists()


def any_failed(job: Job) -> bool:
    """Return whether a rank of the present attempt has ended badly."""
    return Rank.objects.filter(job=job, epoch=job.epoch, state=Rank.State.FAILED).exists()


def all_step_on(job: Job, *, since: datetime) -> bool:
    """Return whether every rank of the present attempt has made a step since an instant, or has ended well.

    A plain program tells of no step: that its node was heard, and told of no end of it, stands in its place.
    """
    sign = "slot__node__last_seen_at__gt" if job.mode == Job.Mode.PLAIN else "progress_at__gt"
    stepped = Q(state=Rank.State.RUNNING, **{sign: since}) | Q(state=Rank.State.EXITED)
    return job.epoch > 0 and not Rank.objects.filter(job=job).exclude(stepped, epoch=job.epoch).exists()


def goes_on(job: Job) -> bool:
    """Return whether the attempt that a person is asked about trains all the same: every rank stepped since then."""
    if job.state != Job.State.WAITING:
        return False
    asked = incidents_of(job).filter(closed_at=None, epoch=job.epoch).exclude(action=Action.OBSERVE).order_by("-id")
    incident = asked.first()
    if incident is None:
        return False
    requests = incident.failovers.filter(from_epoch=job.epoch).order_by("created_at")
    first = requests.values_list("created_at", flat=True).first()
    return all_step_on(job, since=first or incident.opened_at)


def waiting_failovers() -> QuerySet[Failover]:
    """Return the recoveries that wait for a person, the oldest first."""
    waiting = Failover.objects.filter(state=State.AWAITING_APPROVAL).order_by("created_at")
    return waiting.select_related("job", "failed_node", "standby", "incident")


def epoch_starts(job: Job, *, before: int | None = None) -> list[EpochStart]:
    """Return how each epoch of the job began, optionally only those below `before`."""
    return starts_of([job.pk], before=before).get(job.pk, [])


def starts_of(jobs: Iterable[int], *, before: int | None = None) -> dict[int, list[EpochStart]]:
    """Return how each epoch of these jobs (primary keys) began, oldest first. One query."""
    rows = Epoch.objects.filter(job__in=list(jobs)).order_by("number")
    rows = rows if before is None else rows.filter(number__lt=before)
    found: dict[int, list[EpochStart]] = defaultdict(list)
    for job, number, epoch, step in rows.values_list("job_id", "number", "restored_epoch", "restored_step"):
        restored = None if epoch is None or step is None else SnapshotId(epoch, step)
        found[job].append(EpochStart(epoch=number, restored=restored))
    return dict(found)


def ceilings(job: Job, *, before: int | None = None) -> dict[int, int | None]:
    """Return the ceilings of the line of history that goes on (or of the one before an epoch)."""
    return lineage_ceilings(epoch_starts(job, before=before))


def ceilings_of(jobs: Iterable[int]) -> dict[int, dict[int, int | None]]:
    """Return the ceilings of the lines of these jobs (primary keys); a job that never began has none. One query."""
    return {job: lineage_ceilings(starts) for job, starts in starts_of(jobs).items()}


def is_in(line: Mapping[int, int | None]) -> Q:
    """Return the condition for what has `epoch` and `step` to be of a line with these ceilings."""
    found = Q(pk__in=[])
    for epoch, highest in line.items():
        found |= Q(epoch=epoch) if highest is None else Q(epoch=epoch, step__lte=highest)
    return found


def in_line(job: Job, *, before: int | None = None) -> Q:
    """Return the condition for snapshots of the line of history that goes on (or of the one before an epoch)."""
    return is_in(ceilings(job, before=before))


NEWEST_COMPLETE = 50
"""A restore point is looked for among so many complete snapshots; as many must be complete on storage alone."""


def distrusted(job: Job) -> set[SnapshotId]:
    """Return the snapshots that are never restored again."""
    rows = Snapshot.objects.filter(job=job, distrusted=True).values_list("epoch", "step")
    return {SnapshotId(epoch, step) for epoch, step in rows}


def complete_snapshots(job: Job, *, tier: str | None = None, limit: int = NEWEST_COMPLETE) -> list[SnapshotId]:
    """Return the snapshots of the current line of which every rank has a copy (on that tier), the newest.

    None that is distrusted is among them.
    """
    rows: QuerySet[Snapshot] | QuerySet[SnapshotTier]
    if tier is None:
        rows = Snapshot.objects.filter(in_line(job), job=job, held=job.world_size, distrusted=False)
    else:
        of_tier = SnapshotTier.objects.filter(in_line(job), job=job, tier=tier, ranks=job.world_size)
        rows = of_tier.filter(snapshot__distrusted=False)
    newest = rows.order_by("-step", "-epoch").values_list("epoch", "step")[:limit]
    return [SnapshotId(epoch, step) for epoch, step in newest]


def once_complete(job: Job, *, tier: str) -> bool:
    """Return whether a snapshot of the current line was ever complete on that tier, whatever became of it."""
    rows = SnapshotTier.objects.filter(in_line(job), job=job, tier=tier, ever__gte=job.world_size)
    return rows.exists()


def durable_since(job: Job, at: datetime) -> bool:
    """Return whether a trusted snapshot of the current line that is older than `at` is durable, wherever that is."""
    rows = Snapshot.objects.filter(in_line(job), job=job, durable__gte=job.world_size, distrusted=False)
    return rows.filter(created_at__lte=at).exists()


def newest_step_reached(job: Job) -> int | None:
    """Return the newest step that a rank finished in the present attempt, or else what the attempt started from.

    Heartbeats are up to a second behind; the end of a rank tells its very last step, also in a report not read yet.
    """
    beats = Rank.objects.filter(job=job, epoch=job.epoch).values_list("step", flat=True)
    ends = Report.objects.filter(job_name=job.name, epoch=job.epoch, kind="rank_exit")
    told = ends.exclude(state=Report.State.REFUSED).values_list("body__last_step", flat=True)
    steps = [step for step in (*beats, *told) if step is not None and step >= 0]
    started = Epoch.objects.filter(job=job, number=job.epoch).values_list("restored_step", flat=True).first()
    return max(steps, default=started)


def newest_complete_step(job: Job) -> int | None:
    """Return the newest step of the current line of which every rank has a copy somewhere."""
    found = complete_snapshots(job, limit=1)
    return found[0].step if found else None


def validation_of(node: Node, *, since: datetime | None = None) -> tuple[Verdict | None, datetime | None]:
    """Return what the newest checks of a node come to and when the older of them ended.

    PASS needs a pass of every check; any other outcome of the newest check of a kind counts as it stands.
    """
    newest = newest_checks_of(node, since=since)
    for row in newest.values():
        if row.verdict not in ("", Verdict.PASS):
            return Verdict(row.verdict), row.ended_at
    if set(newest) != set(Validation.Check.values) or any(not row.verdict for row in newest.values()):
        return None, None
    return Verdict.PASS, min(row.ended_at for row in newest.values() if row.ended_at)


def newest_checks_of(node: Node, *, since: datetime | None = None) -> dict[str, Validation]:
    """Return kind -> the newest check of it that ended. One without a verdict found nothing to judge by."""
    newest: dict[str, Validation] = {}
    rows = Validation.objects.filter(node=node).exclude(ended_at=None).order_by("-started_at", "-id")
    for row in rows.filter(started_at__gte=since) if since else rows[:20]:
        newest.setdefault(row.check_kind, row)
    return newest


def is_warm(node: Node, job: Job) -> bool:
    """Return whether the node's present agent said that the job's container is ready on it."""
    return OrderRecord.objects.filter(key=prepare_key(job, node), state=OrderRecord.State.DONE).exists()


def replaced_in(job: Job) -> str:
    """Return how the reason of a hold begins when this job lost the node: by it a repair is known again."""
    return f"Replaced in job {job.name} "


def prepare_key(job: Job, node: Node) -> str:
    """Return the key of the order that makes the job's container ready; an agent that came anew is asked anew."""
    return f"prepare:{job.pk}:{node.name}:{node.incarnation}"


STAGE_OF_EVENT = {
    Event.APPROVED: "approved",
    Event.FENCED: "fenced",
    Event.LEASE_RAN_OUT: "fenced",
    Event.STANDBY_PASSED: "validated",
    Event.RESTORED: "restored",
    Event.STARTED: "started",
    Event.VERIFIED: "verified",
}
"""What a stage ended with, by the event that ended it; a stage that was tried again counts to its last end."""

STAGES = ("detected", "approved", "fenced", "validated", "restored", "started", "verified")
BEFORE = "replaced"
"""Work of recoveries that this one took the place of; a stage only where there was any."""


def stage_times(failover: Failover) -> list[dict[str, Any]]:
    """Return for each stage reached when it was reached and the seconds it took.

    `detected` is from the first finding to the first request, `approved` the time in which requests waited for a
    decision, also those that were superseded, and `replaced` what superseded recoveries did after theirs. The sum is
    the whole recovery so far.
    """
    chain = _chain(failover)
    waited_s, worked_s = _spent_before(chain[:-1])
    reached: dict[str, datetime] = {"detected": chain[0].created_at}
    for event in failover.events.all():
        stage = STAGE_OF_EVENT.get(event.event)  # type: ignore[call-overload]
        if stage:
            reached[stage] = event.at
    names = [stage for stage in STAGES if stage in reached]
    following = [*names[1:], "end"]
    starts = [failover.created_at, *(reached[name] for name in names[1:])]
    spent = dict(goodput.stage_times([(at.timestamp(), name) for at, name in zip(starts, following, strict=True)]))
    spent["detected"] = max(0.0, (chain[0].created_at - failover.fault_at).total_seconds())
    spent["approved"], spent[BEFORE] = spent.get("approved", 0.0) + waited_s, worked_s
    if len(chain) > 1:
        reached.setdefault("approved", failover.created_at)
    if worked_s:
        reached[BEFORE] = failover.created_at
    order = ("detected", BEFORE, *STAGES[1:])
    return [{"stage": name, "at": reached[name], "seconds": spent.get(name, 0.0)} for name in order if name in reached]


def _chain(failover: Failover) -> list[Failover]:
    """Return the recovery with those it took the place of, the oldest first."""
    chain = [failover]
    while (before := chain[0].supersedes.order_by("-pk").first()) is not None:
        chain.insert(0, before)
    return chain


def _spent_before(chain: Iterable[Failover]) -> tuple[float, float]:
    """Return the seconds in which superseded recoveries waited for a decision, and in which they worked."""
    waited_s = worked_s = 0.0
    for failover in chain:
        ended = failover.ended_at or failover.created_at
        approved = failover.events.filter(event=Event.APPROVED).order_by("pk").first()
        decided = approved.at if approved else ended
        waited_s += (decided - failover.created_at).total_seconds()
        worked_s += (ended - decided).total_seconds()
    return waited_s, worked_s


def recovery_seconds(failover: Failover) -> float | None:
    """Return the seconds from the fault to the first step of all ranks, None when it did not come to that."""
    if failover.state != State.COMPLETED or failover.ended_at is None:
        return None
    return (failover.ended_at - failover.fault_at).total_seconds()
