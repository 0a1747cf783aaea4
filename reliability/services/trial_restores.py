"""Would the newest stored snapshot really come back? Tried on a standby, when a person asks or by schedule.

A trial lends a standby, it never takes it: the node counts as free all the while, no recovery waits, and the agent ends
a trial at once when anything of a recovery comes. What the standby read is kept on the ledger; a copy that did not load
twice in a row is corrupt from then on, so that no restore point uses it, and becomes an incident of class storage.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from django.conf import settings
from django.db import IntegrityError, transaction

from reliability.domain import faults
from reliability.domain.faults import Action
from reliability.domain.orders import OrderKind
from reliability.domain.snapshots import CopyState, SnapshotId, Tier
from reliability.errors import CopyMissing, DomainError, InvalidInput
from reliability.models import (
    Finding,
    Incident,
    Job,
    Node,
    OrderRecord,
    PlannedRemoval,
    Snapshot,
    SnapshotCopy,
    TrialRestore,
    TrialSchedule,
)
from reliability.selectors import core
from reliability.selectors import trials as selected
from reliability.services import boundary, clock, dispatch, incidents, orders, snapshot_events, snapshots

BY_SCHEDULE = "schedule"
CODE = core.TRIAL_FAILED
MOST_HOURS = 24 * 365.0
MOST_SNAPSHOTS = 100_000
SHOWN = 3
State = TrialRestore.State


def begin(job: Job, *, by: str, snapshot: Snapshot | None = None, node: Node | None = None) -> TrialRestore:
    """Have a standby try a snapshot, the newest stored one if none is named. Raises DomainError, InvalidInput."""
    chosen = snapshot or selected.newest_stored(job)
    if chosen is None:
        raise DomainError(f"No snapshot of {job.name} is whole on storage.", hint="Wait for the first to be stored.")
    if chosen.job_id != job.pk:
        raise InvalidInput("snapshot", f"step {chosen.step} is none of job {job.name}", hint="Name one of its own.")
    if selected.recovering():
        raise DomainError("A recovery is open, and it may need every standby.", hint="Try again when it is over.")
    if TrialRestore.objects.filter(job=job, state=State.RUNNING).exists():
        raise DomainError(f"A trial of {job.name} is running.", hint="Wait for its end.")
    lent = node or selected.standby_for(job)
    if lent is None:
        raise DomainError("No standby is free and healthy.", hint="Add one, or release a hold; then try again.")
    try:
        with transaction.atomic():
            _keep_from_removal(job, chosen)
            trial = TrialRestore.objects.create(
                job=job, snapshot=chosen, node=lent, asked_by=by, started_at=clock.now()
            )
            _order(trial)
    except IntegrityError as error:
        raise DomainError(f"A trial of {job.name} or on {lent.name} is running.", hint="Wait for its end.") from error
    dispatch.changed(f"job:{job.pk}", f"node:{lent.pk}")
    return trial


def _keep_from_removal(job: Job, snapshot: Snapshot) -> None:
    """While a trial runs nothing of its snapshot goes: what a node was told already may be gone at any moment.

    Removals are decided under the job's lock too, and pass over what is being tried. Raises DomainError.
    """
    Job.objects.select_for_update(no_key=True).get(pk=job.pk)
    if PlannedRemoval.objects.filter(snapshot=snapshot, tier=Tier.STORAGE).exists():
        raise DomainError(
            f"Step {snapshot.step} is about to be removed from storage.", hint="Try a newer one, or keep more."
        )


def _order(trial: TrialRestore) -> OrderRecord:
    snapshot, limit_s = trial.snapshot, float(settings.TRIAL_LIMIT_S)
    copies = selected.copies_for(snapshot, trial.node)
    missing = [rank for rank in range(trial.job.world_size) if rank not in copies]
    if missing:
        named = ", ".join(map(str, missing[:SHOWN])) + (" and others" if len(missing) > SHOWN else "")
        raise DomainError(
            f"{trial.node.name} can read no copy of rank {named} of step {snapshot.step}.",
            hint="Only what is on storage, or on the standby's own SSD, can be tried.",
        )
    ranks = [
        {
            "rank": rank,
            "sources": [
                {
                    "tier": copy.tier,
                    "path": copy.path,
                    "digest": copy.digest,
                    "size_bytes": copy.size_bytes,
                    "node": copy.node.name if copy.node else "",
                }
                for copy in found
            ],
        }
        for rank, found in copies.items()
    ]
    payload = {
        "job": trial.job.name,
        "snapshot_epoch": snapshot.epoch,
        "step": snapshot.step,
        "ranks": ranks,
        "limit_s": limit_s,
        "bytes_per_s": float(settings.TRIAL_BYTES_PER_S),
    }
    # Without the job as the order's own: it says nothing of an attempt, and no attempt ends because of it.
    return orders.issue(trial.node, kind=OrderKind.TRIAL_RESTORE, key=_key(trial), payload=payload, ttl_s=limit_s + 60)


def _key(trial: TrialRestore) -> str:
    return f"trial:{trial.pk}"


def running() -> list[int]:
    """Return the trials whose outcome is not known yet."""
    return list(TrialRestore.objects.filter(state=State.RUNNING).values_list("pk", flat=True))


def trial_of(order: OrderRecord) -> int | None:
    """Return the trial that an order belongs to, None for another order."""
    number = order.key.removeprefix("trial:")
    return int(number) if order.kind == OrderKind.TRIAL_RESTORE and number.isdecimal() else None


def drive(trial_id: int) -> None:
    """Take over what the node answered, or that it did not."""
    with transaction.atomic():
        trial = (
            TrialRestore.objects.select_for_update(of=("self",))
            .select_related("job", "snapshot", "node")
            .get(pk=trial_id)
        )
        order = OrderRecord.objects.select_related("node").filter(key=_key(trial)).first()
        if trial.state != State.RUNNING or (order is not None and orders.is_open(order)):
            return
        _close(trial, order)
        dispatch.changed(f"job:{trial.job_id}", f"node:{trial.node_id}", "overview")


def _close(trial: TrialRestore, order: OrderRecord | None) -> None:
    answer = _answer(order)
    trial.result, trial.ended_at = answer, clock.now()
    snapshot = SnapshotId(trial.snapshot.epoch, trial.snapshot.step)
    read = [(each["rank"], each["tier"]) for each in answer["read"]]
    sentence = f"Trial restore {trial.pk} on {trial.node.name} loaded it."
    snapshot_events.mark_trial_restored(
        trial.job, snapshot, read, node=trial.node, at=trial.ended_at, sentence=sentence
    )
    answer["bad"] = _without_removed(trial, answer)
    snapshots.mark_bad(trial.job, snapshot, answer["bad"], node=trial.node)
    trial.state, trial.reason = _outcome(trial, order, answer)
    trial.save(update_fields=["state", "reason", "result", "ended_at"])
    if trial.state == State.FAILED:
        _tell(trial, answer["bad"])


def _without_removed(trial: TrialRestore, answer: dict[str, Any]) -> list[dict[str, Any]]:
    """Return what is bad; a copy that was missing because it was to go is none of it, and was not read."""
    removed = SnapshotCopy.objects.filter(snapshot=trial.snapshot_id)
    removed = removed.filter(state=CopyState.DELETED) | removed.exclude(planned_removal=None)
    gone = set(removed.values_list("rank", "tier", "path"))
    missing = [
        each
        for each in answer["bad"]
        if each.get("code") == CopyMissing.code and (each["rank"], each["tier"], each["path"]) in gone
    ]
    answer["unread"] += missing
    return [each for each in answer["bad"] if each not in missing]


def _answer(order: OrderRecord | None) -> dict[str, Any]:
    """Return what the node told of what was asked for. Types were looked at on arrival (domain/answers)."""
    told = (order.result.get("result") or {}) if order is not None else {}
    asked = {
        (rank["rank"], source["tier"], source["path"])
        for rank in (order.payload["ranks"] if order is not None else ())
        for source in rank["sources"]
    }
    found: dict[str, Any] = {
        name: [each for each in told.get(name) or [] if (each.get("rank"), each.get("tier"), each.get("path")) in asked]
        for name in ("read", "bad", "unread")
    }
    return {**found, "seconds": told.get("seconds"), "size_bytes": told.get("size_bytes"), "asked": len(asked)}


def _outcome(trial: TrialRestore, order: OrderRecord | None, answer: Mapping[str, Any]) -> tuple[str, str]:
    """Return (state, why in words)."""
    if answer["bad"]:
        return State.FAILED, "; ".join(_worded(answer["bad"]))
    if order is None:
        return State.UNDECIDED, "The order was never given."
    if orders.succeeded(order):
        read = answer["read"]
        if len(read) < answer["asked"]:
            return State.UNDECIDED, f"{trial.node.name} told of {len(read)} of {answer['asked']} copies."
        return State.PASSED, f"All {len(read)} copies of {trial.job.world_size} ranks were loaded and agree."
    error = orders.error_of(order)
    state = State.STOPPED if error["code"] == "trial_ended" else State.UNDECIDED
    return state, "; ".join(_worded(answer["unread"])) or error["message"]


def _worded(entries: Sequence[Mapping[str, Any]]) -> list[str]:
    words = [f"rank {each['rank']} on {each['tier']}, {each['path']}: {each.get('message')}" for each in entries]
    return words[:SHOWN] + ([f"{len(words) - SHOWN} more"] if len(words) > SHOWN else [])


def _tell(trial: TrialRestore, bad: Sequence[Mapping[str, Any]]) -> None:
    """Tell it as an incident of the job: no node is to blame, and nothing is moved because of it."""
    job, row = trial.job, faults.lookup(CODE)
    incident = Incident.objects.create(
        job=job,
        epoch=job.epoch,
        code=CODE,
        fault_class=row.fault_class,
        action=Action.OBSERVE,
        summary=f"{row.meaning} (step {trial.snapshot.step}, {len(bad)} of {trial.result['asked']} copies)",
        reasons=[*_worded(bad), row.advice],
        opened_at=clock.now(),
    )
    evidence = f"Step {trial.snapshot.step} on {trial.node.name}: {'; '.join(_worded(bad))}"
    found = incidents.note(
        trial.node, CODE, job=job, epoch=job.epoch, evidence=evidence, key=f"trial:{trial.pk}", count=len(bad)
    )
    Finding.objects.filter(pk=found.pk).update(incident=incident)


def set_schedule(job: Job, *, every_hours: float | None, every_snapshots: int | None, by: str) -> TrialSchedule | None:
    """Set when a job's snapshots are tried by themselves; None for both: never. Raises InvalidInput."""
    if every_hours is not None and not 0.1 <= every_hours <= MOST_HOURS:
        raise InvalidInput(
            "every_hours", f"{every_hours:g} is not from 0.1 to {MOST_HOURS:g}", hint="Without one: never."
        )
    if every_snapshots is not None and not 1 <= every_snapshots <= MOST_SNAPSHOTS:
        raise InvalidInput(
            "every_snapshots", f"{every_snapshots} is not from 1 to {MOST_SNAPSHOTS}", hint="Without one: never."
        )
    dispatch.changed(f"job:{job.pk}")
    if every_hours is None and every_snapshots is None:
        TrialSchedule.objects.filter(job=job).delete()
        return None
    values = {
        "every_hours": every_hours,
        "every_snapshots": every_snapshots,
        "changed_by": by,
        "changed_at": clock.now(),
    }
    return TrialSchedule.objects.update_or_create(job=job, defaults=values)[0]


def begin_due(now: datetime) -> None:
    """Begin the trials that schedules ask for, as far as standbys are free; each job behind its own boundary."""
    if selected.recovering():
        return
    for schedule in TrialSchedule.objects.select_related("job").exclude(job__epoch=0):
        boundary.apart("Beginning a trial restore", _begin_if_due, schedule, now, job=schedule.job_id)


def _begin_if_due(schedule: TrialSchedule, now: datetime) -> None:
    job = schedule.job
    if TrialRestore.objects.filter(job=job, state=State.RUNNING).exists():
        return
    newest = selected.newest_stored(job)
    if newest is not None and selected.is_due(schedule, newest, now) and selected.standby_for(job) is not None:
        begin(job, by=BY_SCHEDULE, snapshot=newest)
