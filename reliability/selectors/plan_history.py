"""Do all ranks follow a plan, and what came of each: was the effective training rate the planned one?

Measured is the share of the time under guard that went into steps which were kept:

    (executed - lost) / executed * (running - saves * stall) / (running + recovering)

running: time of training (selectors.running); recovering: from the first sign of each fault to the first step of all
ranks; executed: steps done in that time, `lost` of them undone by faults. The time of one step drops out, so that
a step that got slower is no loss of the plan. Left out are stops by people, and drills with all they cost: no plan
promises anything about faults that are made on purpose.
"""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from statistics import fmean
from typing import Any

from django.db.models import Exists, OuterRef

from reliability.domain import goodput
from reliability.domain.failover import OPEN, State
from reliability.domain.planner import spread
from reliability.domain.planner.durations import spoken
from reliability.domain.planner.inputs import Inputs
from reliability.models import Drill, Failover, Job, Plan, Rank
from reliability.selectors import plan_samples, running
from reliability.selectors.running import Interval

AS_PLANNED, TOO_EARLY, NEVER = "as planned", "too early to say", "never in force"
LEAST_PERIODS = 5
COARSE = 0.01
"""A spread of more than one point on either side, and of more than half of what is lost, decides nothing."""
WIDE = 0.1
"""A standard deviation from which on its number says nothing."""
FINE = 0.002
"""No measurement of ours is finer: stalls are sampled."""
HEARD_S = 1.0
"""Steps are counted at heartbeats."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TakeOver:
    """How far the ranks of a job have taken a plan over. `over`: the job has ended, and nobody is to take it over.

    `heard_s`: since when nothing new is known of those that are behind, or of the one that is known least of.
    """

    ranks: int
    following: int
    behind: tuple[int, ...]
    begun: bool
    done: bool
    heard_s: float | None
    over: bool
    told: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What came of a plan. `sd`: standard deviation that chance alone gives in a window so long."""

    ettr: float | None
    sd: float | None
    window_s: float
    running_s: float
    kept_steps: int
    lost_steps: int
    verdict: str
    told: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanResult:
    """A plan and what came of it. `ended_at` None: in force, or on its way; `frozen`: nothing changes it any more."""

    plan: Plan
    planned: float
    measured: float | None
    sd: float | None
    window_s: float
    began_at: datetime | None
    ended_at: datetime | None
    verdict: str
    told: str
    frozen: bool


def take_over(plan: Plan, *, now: datetime) -> TakeOver:
    """Return how many ranks go by this plan or a newer one, and when the others last made a step. Two queries."""
    over = Job.objects.filter(pk=plan.job_id, state__in=Job.TERMINAL).exists()
    columns = ("rank", "plan_version", "state", "step", "progress_at")
    rows = list(Rank.objects.filter(job=plan.job_id).order_by("rank").values_list(*columns))
    behind = () if over else tuple(rank for rank, version, state, *_ in rows if _behind(version, state, plan))
    heard = [at for rank, *_, at in rows if at is not None and (rank in behind or not behind)]
    newest = max((step for *_, step, _ in rows if step is not None), default=0)
    found = TakeOver(
        ranks=len(rows),
        following=len(rows) - len(behind),
        behind=behind,
        begun=plan.began_at is not None or newest >= plan.from_step,
        done=not behind,
        heard_s=max(0.0, (now - min(heard)).total_seconds()) if heard else None,
        over=over,
        told="",
    )
    return replace(found, told=_progress(plan, found))


def _progress(plan: Plan, found: TakeOver) -> str:
    if found.over:
        return "the job has ended" if found.begun else f"the job ended before step {plan.from_step}, its first"
    told = f"{found.following} of {found.ranks} ranks follow it"
    if found.behind and found.heard_s is not None:
        told += f"; {_others(found.behind)} last heard {spoken(round(found.heard_s, 1))} ago"
    return told if found.begun else f"{told}; it holds from step {plan.from_step} on"


def _others(behind: tuple[int, ...]) -> str:
    return f"rank {behind[0]} was" if len(behind) == 1 else f"the {len(behind)} others were"


def _behind(version: int, state: str, plan: Plan) -> bool:
    return version < plan.announced and state != Rank.State.EXITED


def history(job: Job, *, now: datetime, limit: int = 20) -> list[PlanResult]:
    """Return the newest plans of a job with what came of them, the newest first."""
    return [result(plan, now=now) for plan in job.plans.select_related("job")[:limit]]


def result(plan: Plan, *, now: datetime) -> PlanResult:
    """Return what came of a plan: as it was kept when it was over, else as it is measured now."""
    if plan.measured:
        kept = plan.measured
        found = (kept.get("ettr"), kept.get("sd"), float(kept.get("window_s") or 0.0), kept["verdict"], kept["told"])
    else:
        fresh = measure(plan, now=now)
        found = (fresh.ettr, fresh.sd, fresh.window_s, fresh.verdict, fresh.told)
    ettr, sd, window_s, verdict, told = found
    return PlanResult(
        plan=plan,
        planned=plan.planned_ettr,
        measured=ettr,
        sd=sd,
        window_s=window_s,
        began_at=plan.began_at,
        ended_at=plan.ended_at,
        verdict=verdict,
        told=told,
        frozen=bool(plan.measured),
    )


def measure(plan: Plan, *, now: datetime) -> Measured:
    """Return the rate while the plan was in force, compared with the planned one."""
    if plan.began_at is None or plan.began_step is None:
        return _nothing("It is not in force yet.")
    job = plan.job
    until, step = _end(plan, job, now)
    recoveries = _recoveries(job, plan.began_at, until)
    lost, lost_in_drills = (_lost(row for row in recoveries if row.is_drill is drill) for drill in (False, True))
    executed = step - plan.began_step + lost + lost_in_drills
    running_s = running.seconds(running.intervals(job, since=plan.began_at, until=until))
    recovering_s = _union_s((row.fault_at, min(row.ended_at or until, until)) for row in recoveries if not row.is_drill)
    window_s = running_s + recovering_s
    if executed <= 0 or window_s <= 0:
        return _nothing("No step was made in it yet.")
    stalls = plan_samples.saves(job, since=plan.began_at).stall_s
    stall_s = fmean(stalls) if stalls else _inputs(plan).save_stall_s
    ettr = goodput.kept_rate(
        executed=executed,
        lost=lost,
        running_s=running_s,
        saving_s=executed / plan.every_steps * stall_s,
        window_s=window_s,
    )
    return _compared(plan, ettr, window_s, running_s=running_s, kept_steps=executed - lost, lost_steps=lost)


def as_json(found: Measured) -> dict[str, Any]:
    """Return the measurement as a plan keeps it."""
    return asdict(found)


def _nothing(told: str) -> Measured:
    return Measured(
        ettr=None, sd=None, window_s=0.0, running_s=0.0, kept_steps=0, lost_steps=0, verdict=TOO_EARLY, told=told
    )


def _end(plan: Plan, job: Job, now: datetime) -> tuple[datetime, int]:
    """Return until when it is measured, and the newest step that is kept by then."""
    if plan.ended_at is not None and plan.ended_step is not None:
        return plan.ended_at, plan.ended_step
    open_one = Failover.objects.filter(job=job, state__in=OPEN).order_by("-pk").first()
    if open_one is not None and open_one.restore_step is not None:
        return now, open_one.restore_step
    newest = job.ranks.order_by("-step").exclude(step=None).values_list("step", "progress_at").first()
    step, at = newest if newest is not None else (plan.began_step or 0, None)
    fresh = job.state == Job.State.RUNNING and at is not None and (now - at).total_seconds() < plan.period_s
    return (at if fresh and at is not None else job.ended_at or now), int(step or 0)


def _recoveries(job: Job, since: datetime, until: datetime) -> list[Any]:
    rows = Failover.objects.filter(job=job, fault_at__gte=since, fault_at__lt=until)
    columns = ("fault_at", "ended_at", "state", "fault_step", "restore_step")
    drilled = Exists(Drill.objects.filter(failover__incident=OuterRef("incident")))
    return list(rows.only(*columns).annotate(is_drill=drilled))


def _lost(rows: Iterable[Failover]) -> int:
    """Steps of open recoveries count as lost already: `_end` counts from their restore point."""
    undone = [
        row for row in rows if row.state == State.COMPLETED or (row.state in OPEN and row.restore_step is not None)
    ]
    return sum(goodput.lost_steps(row.fault_step, row.restore_step) or 0 for row in undone)


def _union_s(stretches: Iterable[Interval]) -> float:
    """Return how long these stretches are together, counting once what several cover."""
    total, reached = 0.0, None
    for began, ended in sorted(stretches):
        start = began if reached is None else max(began, reached)
        total += max(0.0, (ended - start).total_seconds())
        reached = ended if reached is None else max(reached, ended)
    return total


def _inputs(plan: Plan) -> Inputs:
    """Return what the plan was computed from, as the model was given it."""
    given: Mapping[str, Any] = plan.outputs["inputs"]
    effective: Mapping[str, Any] = given["effective"]
    tiers = tuple((share, drain_s) for share, drain_s in effective.get("tiers") or ())
    return Inputs(
        save_stall_s=given["save_stall_s"],
        recovery_s=given["recovery_s"],
        target=given["target"],
        mtbf_s=effective["mtbf_s"],
        downtime_s=effective["downtime_s"],
        drain_s=0.0 if tiers else effective["drain_s"],
        tiers=tiers,
        cluster_availability=effective["available"],
    )


def _compared(plan: Plan, ettr: float, window_s: float, **more: Any) -> Measured:
    inputs = _inputs(plan)
    ends_s = inputs.save_stall_s + plan.step_s + HEARD_S  # one save, one step and one heartbeat more or less
    sd = max(spread.ettr_sd(inputs, plan.period_s, window_s), FINE / 2, ends_s / window_s)
    verdict: str = spread.verdict(plan.planned_ettr, ettr, sd)
    too_wide = 2 * sd > max(COARSE, (1.0 - plan.planned_ettr) / 2)
    if window_s < LEAST_PERIODS * plan.period_s or (verdict == AS_PLANNED and too_wide):
        verdict = TOO_EARLY
    measured = _percent(ettr) + (f" +- {200 * sd:.1f}" if sd < WIDE else "")
    told = f"planned {_percent(plan.planned_ettr)}, measured {measured} over {spoken(window_s)}: {verdict}"
    return Measured(ettr=ettr, sd=sd, window_s=window_s, verdict=verdict, told=told, **more)


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"
