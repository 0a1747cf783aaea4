"""From which values is the period of a job computed, and where does each come from (M10)?"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from statistics import median

from reliability.domain import goodput
from reliability.domain.failover import State
from reliability.domain.faults import Action
from reliability.domain.snapshots import Tier
from reliability.models import Failover, Incident, Job, SnapshotCopy
from reliability.selectors.failover_pages import timeline

RECOVERY_STAGES = (State.RESTORING, State.STARTING, State.VERIFYING)
SAMPLES = 400
RECOVERIES = 50
DEFAULT_TARGET = 97.0
DEFAULTS_S = {"save_stall": 0.5, "drain": 0.0, "recovery": 10.0, "downtime": 10.0, "mtbf": 86400.0}


@dataclass(frozen=True)
class Known:
    """A value in seconds and its source in words."""

    seconds: float
    source: str
    measured: bool = False


def _default(name: str, why: str) -> Known:
    return Known(DEFAULTS_S[name], f"default: {why}")


def _of_samples(name: str, samples: Sequence[float], noun: str, *, note: str = "") -> Known:
    if not samples:
        return _default(name, f"no {noun} measured yet")
    if len(samples) == 1:
        return Known(samples[0], f"measured once ({noun}{note})", measured=True)
    spread = f"{min(samples):.3g} to {max(samples):.3g} s"
    return Known(median(samples), f"measured: median of {len(samples)} {noun}, {spread}{note}", measured=True)


def _copies(job: Job, tier: Tier, column: str) -> list[float]:
    rows = SnapshotCopy.objects.filter(snapshot__job=job, tier=tier, **{f"{column}__isnull": False})
    return list(rows.order_by("-pk").values_list(column, flat=True)[:SAMPLES])


def _recoveries(job: Job) -> tuple[list[float], list[float]]:
    """Return the recovery times and the downtimes of the job's completed recoveries.

    How long a person took to decide is left out of both: it says nothing about the next fault.
    """
    recovery, downtime = [], []
    rows = Failover.objects.filter(job=job, state=State.COMPLETED, ended_at__isnull=False).prefetch_related("events")
    for row in rows[:RECOVERIES]:
        events = list(row.events.all())
        stages = timeline(row, events, now=row.ended_at or row.created_at).stages
        sums = goodput.totals([(stage.state, stage.seconds) for stage in stages])
        own = sum(sums.get(state.value, 0.0) for state in RECOVERY_STAGES)
        recovery.append(own)
        person = sums.get(State.AWAITING_APPROVAL.value, 0.0)
        downtime.append(sum(sums.values()) - own - person)
    return recovery, downtime


def _mtbf(job: Job, now: datetime) -> Known:
    if job.started_at is None:
        return _default("mtbf", "the job has not run yet")
    stopping = (Action.RESTART_IN_PLACE, Action.FAILOVER)
    faults = Incident.objects.filter(job=job, action__in=stopping, failovers__drills=None).distinct().count()
    exposed = ((job.ended_at or now) - job.started_at).total_seconds()
    if faults == 0:
        return _default("mtbf", f"no fault seen in {exposed / 3600:.1f} h")
    return Known(
        exposed / faults,
        f"measured: {faults} fault{'s' if faults > 1 else ''} in {exposed / 3600:.1f} h, drills left out",
        measured=True,
    )


def planner_values(job: Job | None, *, now: datetime) -> dict[str, Known]:
    """Return the planner's times in seconds with the source of each."""
    if job is None:
        return {name: _default(name, "no job chosen") for name in DEFAULTS_S}
    recovery, downtime = _recoveries(job)
    return {
        "save_stall": _of_samples("save_stall", _copies(job, Tier.MEMORY, "stall_s"), "saves"),
        "drain": _of_samples("drain", _copies(job, Tier.STORAGE, "drain_s"), "copies"),
        "recovery": _of_samples("recovery", recovery, "recoveries"),
        "downtime": _of_samples("downtime", downtime, "recoveries", note=", waiting for a person left out"),
        "mtbf": _mtbf(job, now),
    }
