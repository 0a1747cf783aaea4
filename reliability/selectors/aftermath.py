"""What happened after a decision: the facts by which it is judged (reliability/domain/aftermath.py)."""

from datetime import datetime, timedelta
from typing import Any

from reliability.domain.aftermath import ECHO_S, Aftermath, Decided
from reliability.domain.failover import Event, Kind, State
from reliability.domain.faults import Action, FaultClass
from reliability.domain.modes import Mode
from reliability.domain.standby import Verdict
from reliability.models import Decision, Failover, Incident, Quarantine, Slot, Snapshot, Validation

BAD = (Verdict.FAIL, Verdict.CRASH)
BY_ITSELF = ("automation", "stepkeeper")
"""What these set aside follows from the decision, so it does not speak for it."""


def facts(decision: Decision, *, now: datetime) -> tuple[Decided, Aftermath]:
    """Return a decision and what is known after it, as the domain judges it. Some ten queries."""
    recovery = _recovery(decision)
    held = decision.action == Action.HOLD and decision.mode == Mode.AUTOMATIC
    decided = Decided(
        code=decision.code,
        action=Action(decision.action),
        mode=Mode(decision.mode),
        at=decision.at.timestamp(),
        of_job=decision.job_id is not None,
        carried_out=recovery is not None or held or bool(decision.by_hand),
    )
    if decision.action == Action.RESTART_IN_PLACE:
        return decided, Aftermath(**_of_the_restart(decision, recovery))
    return decided, Aftermath(**_of_the_node(decision, recovery, now))


def _recovery(decision: Decision) -> Failover | None:
    """Return the recovery that was begun for this decision: approved, of its kind, for its incident."""
    kind = Kind.RESTART_IN_PLACE if decision.action == Action.RESTART_IN_PLACE else Kind.FAILOVER
    rows = Failover.objects.filter(incident=decision.incident_id, kind=kind, created_at__gte=decision.at)
    return rows.filter(events__event=Event.APPROVED).order_by("-id").first()


def _stamp(at: datetime | None) -> float | None:
    return at.timestamp() if at else None


def _beyond(decision: Decision, *, epoch: int, step: int | None, exactly: bool) -> datetime | None:
    """Return when the first complete snapshot beyond a step was seen: in an attempt, or from it on."""
    if decision.job is None:
        return None
    rows = Snapshot.objects.filter(job=decision.job, held__gte=decision.job.world_size, created_at__gt=decision.at)
    rows = rows.filter(epoch=epoch) if exactly else rows.filter(epoch__gte=epoch)
    rows = rows if step is None else rows.filter(step__gt=step)
    return rows.order_by("created_at").values_list("created_at", flat=True).first()


def _of_the_restart(decision: Decision, recovery: Failover | None) -> dict[str, Any]:
    if recovery is None:
        went_on = _beyond(decision, epoch=decision.epoch, step=decision.inputs.get("step"), exactly=True)
        return {"went_on_at": _stamp(went_on)}
    reached = max(filter(None, (recovery.fault_step, recovery.progress_step)), default=None)
    proven = _beyond(decision, epoch=recovery.to_epoch, step=reached, exactly=False)
    again = _next_incident(decision, recovery, code=decision.code)
    moved = _next_move(decision, recovery)
    return {
        "proven_at": _stamp(proven if recovery.state == State.COMPLETED else None),
        "same_again": f"incident {again.pk} at {again.opened_at:%Y-%m-%d %H:%M:%S} UTC" if again else "",
        "same_again_at": _stamp(again.opened_at if again else None),
        "moved": f"failover {moved.pk}" if moved else "",
        "moved_at": _stamp(moved.created_at if moved else None),
    }


def _next_incident(decision: Decision, recovery: Failover, *, code: str) -> Incident | None:
    """Return the first incident with this code in the attempts that the recovery began."""
    rows = Incident.objects.filter(job=decision.job_id, code=code, epoch__gte=recovery.to_epoch)
    return rows.exclude(pk=decision.incident_id).filter(opened_at__gte=decision.at).order_by("id").first()


def _next_move(decision: Decision, recovery: Failover) -> Failover | None:
    """Return the first failover that was begun after it away from the same node."""
    rows = Failover.objects.filter(job=decision.job_id, kind=Kind.FAILOVER, pk__gt=recovery.pk)
    rows = rows.filter(events__event=Event.APPROVED, failed_node=decision.node_id)
    return rows.order_by("id").first() if decision.node_id else None


def _of_the_node(decision: Decision, recovery: Failover | None, now: datetime) -> dict[str, Any]:
    node = decision.node
    if node is None:
        return {}
    checks = Validation.objects.filter(node=node, ended_at__gt=decision.at)
    failed = checks.filter(verdict__in=BAD).order_by("id").first()
    heard = node.last_seen_at
    return {
        "failed_check": f"{failed.get_check_kind_display()}, {failed.reason or failed.verdict}" if failed else "",
        "passed_checks": 0 if failed else checks.filter(verdict=Verdict.PASS).count(),
        "hardware_again": _hardware_again(decision),
        "set_aside": _set_aside(decision),
        "same_elsewhere": _same_elsewhere(decision, recovery),
        "away_s": (now - decision.at).total_seconds() if heard is None or heard <= decision.at else 0.0,
        "recovered_by_itself": _recovered_by_itself(decision),
        "unharmed_s": _unharmed_s(decision),
    }


def _hardware_again(decision: Decision) -> str:
    later = decision.at + timedelta(seconds=ECHO_S)
    rows = Incident.objects.filter(node=decision.node_id, fault_class=FaultClass.HARDWARE, opened_at__gt=later)
    again = rows.exclude(pk=decision.incident_id).order_by("id").first()
    return f"incident {again.pk}, {again.code}" if again else ""


def _set_aside(decision: Decision) -> str:
    """Return the quarantine that a person put the node's hardware under since."""
    rows = Quarantine.objects.filter(node=decision.node_id, created_at__gt=decision.at)
    by_people = rows.exclude(created_by__in=BY_ITSELF).order_by("id").first()
    return f"quarantine {by_people.pk} by {by_people.created_by}, {by_people.reason}" if by_people else ""


def _same_elsewhere(decision: Decision, recovery: Failover | None) -> str:
    """Return the incident with the same code on the node that took the place of this one."""
    if recovery is None:
        return ""
    taken = [change["to"] for change in recovery.moves if change.get("to")]
    rows = Incident.objects.filter(job=decision.job_id, code=decision.code, node__name__in=taken)
    later = rows.filter(opened_at__gt=decision.at).exclude(pk=decision.incident_id).order_by("id").first()
    return f"incident {later.pk} on {later.node}" if later else ""


def _recovered_by_itself(decision: Decision) -> bool:
    ended = Failover.objects.filter(incident=decision.incident_id, state=State.CANCELLED, created_at__gte=decision.at)
    return ended.filter(events__event=Event.CANCELLED, events__detail__recovered=True).exists()


def _unharmed_s(decision: Decision) -> float:
    """Return how long the job has saved complete snapshots since, on a node that kept its slot."""
    job = decision.job
    if job is None or not Slot.objects.filter(job=job, node=decision.node_id).exists():
        return 0.0
    rows = Snapshot.objects.filter(job=job, held__gte=job.world_size, created_at__gt=decision.at)
    newest = rows.order_by("-created_at").values_list("created_at", flat=True).first()
    return (newest - decision.at).total_seconds() if newest else 0.0
