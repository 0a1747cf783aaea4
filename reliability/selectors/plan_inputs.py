"""From which values is the period of a job computed, and where does each come from (M10)?

What is measured comes from a moving window (STEPKEEPER_PLAN_WINDOW_S) and says so at its field; what is not is a
default and says so too. Times are seconds, shares are fractions.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from statistics import fmean, median
from typing import Literal

from reliability import conf
from reliability.domain.planner import rates
from reliability.domain.planner.durations import spoken
from reliability.domain.planner.rates import Observed, Posterior
from reliability.domain.policy import Approval
from reliability.models import Job
from reliability.selectors import plan_samples, running

NAMES = (
    "save_stall",
    "drain_ssd",
    "drain",
    "recovery",
    "downtime",
    "mtbf",
    "nodes",
    "standbys",
    "repair",
    "step_time",
    "node_share",
    "memory_share",
    "cluster_availability",
    "target",
    "planned_stops_per_week",
)
TARGET = 0.97
WHAT_IF_MTBF_S = 86_400.0
MIDDLE = 0.9
HOURS_UP_TO_S = 5 * 86_400.0
YEAR_S = 365.25 * 86_400.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """A value and the sentence at its field. None: there is nothing to plan with, the field stays empty.

    low, high: nine of ten samples lie between them; of the time between faults, the 90 % credible interval. faults,
    exposure_s and prior are what the planner computes the time between faults from, when they are there.
    """

    value: float | None
    kind: Literal["measured", "default"]
    told: str
    samples: int | None = None
    low: float | None = None
    high: float | None = None
    faults: int | None = None
    exposure_s: float | None = None
    prior: str = ""
    brief: str = ""
    """The same in few words, where `told` is a long sentence."""


def is_assumed(known: Known) -> bool:
    """Return whether a value rests on nothing that happened to the job.

    A rate of faults to which no fault contributed is the fleet's, however long the job has run.
    """
    return known.kind == "default" or known.faults == 0


def known(job: Job | None, *, now: datetime) -> dict[str, Known]:
    """Return every value: as measured where it is, else the default."""
    return defaults(job) | (measured(job, now=now) if job is not None else {})


def measured(job: Job, *, now: datetime) -> dict[str, Known]:
    """Return what was measured of the job, by name; what was not is missing. A fixed number of queries."""
    window = _Window(job, now)
    found: dict[str, Known] = {"nodes": _nodes(job), **_saves(window), **_recoveries(window), **_faults(window)}
    found |= _inventory(window)
    step_s, ranks = plan_samples.step_s(job)
    if step_s is not None:
        told = f"measured from {job.name}: median of {_many(ranks, 'rank')}, recent steps without their saves"
        found["step_time"] = Known(value=step_s, kind="measured", told=told, samples=ranks)
    return found


def defaults(job: Job | None) -> dict[str, Known]:
    """Return what stands in for each value while nothing is measured."""
    why = "no job chosen" if job is None else "none measured yet"
    target, told = _target(job)
    values: dict[str, tuple[float | None, str]] = {
        "save_stall": (0.5, why),
        "drain_ssd": (0.0, why),
        "drain": (0.0, why),
        "recovery": (10.0, why),
        "downtime": (10.0, why),
        "nodes": (float(job.nodes) if job else None, f"job {job.name} needs so many" if job else why),
        "standbys": (None, why),
        "repair": (None, "no lost node has come back yet" if job else why),
        "step_time": (None, why),
        "node_share": (1.0, "every fault is taken to lose its node"),
        "memory_share": (0.0, "no fault is taken to lose a node's memory alone"),
        "cluster_availability": (1.0, "no stops but faults and their recovery"),
        "target": (target, told),
        "planned_stops_per_week": (0.0, "no planned stops"),
    }
    found = {
        name: Known(value=value, kind="default", told=f"default: {told}") for name, (value, told) in values.items()
    }
    return found | {"mtbf": _mtbf_of_fleet(job) if job else _what_if_mtbf()}


def present_period_s(job: Job, values: Mapping[str, Known]) -> float | None:
    """Return the job's period now, start to start, None while its speed is not known."""
    step_s, stall_s = values["step_time"].value, values["save_stall"].value
    return job.every_steps * step_s + (stall_s or 0.0) if step_s else None


class _Window:
    """The stretch of time that is looked at, and how it is called."""

    def __init__(self, job: Job, now: datetime) -> None:
        self.job, self.now = job, now
        self.since = now - timedelta(seconds=conf.plan_window_s())
        began = max(self.since, job.started_at) if job.started_at else now
        self.source = f"measured from {job.name} over the last {_span(max(0.0, (now - began).total_seconds()))}"

    def of(self, samples: Sequence[float], noun: str, *, mean: bool = False, note: str = "") -> Known:
        """Return the middle of the samples: their median, or their mean where only the mean enters the model."""
        value = fmean(samples) if mean else median(samples)
        low, high = _most(samples)
        if len(samples) == 1:
            told = f"{self.source}: {_one(noun)}{note}"
        else:
            how = "mean" if mean else "median"
            told = f"{self.source}: {how} of {_many(len(samples), noun)}, {_range(low, high)}{note}"
        return Known(value=value, kind="measured", told=told, samples=len(samples), low=low, high=high)


def _saves(window: _Window) -> dict[str, Known]:
    """A save stalls a job as long as its slowest rank; the other ranks wait for that one in the next step."""
    found = plan_samples.saves(window.job, since=window.since)
    groups = {
        "save_stall": (found.stall_s, "save"),
        "drain_ssd": (found.drain_ssd_s, "copy to the SSD"),
        "drain": (found.drain_storage_s, "copy to storage"),
    }
    return {name: window.of(samples, noun) for name, (samples, noun) in groups.items() if samples}


def _recoveries(window: _Window) -> dict[str, Known]:
    """Means, because only the mean of either enters the effective training rate."""
    found = plan_samples.recoveries(window.job, since=window.since)
    if not found:
        return {}
    asked = window.job.approval == Approval.MANUAL and any(each.person_s >= 0.05 for each in found)
    person = fmean(each.person_s for each in found)
    waited = f"; {spoken(person)} of it people took to approve" if asked else ""
    recovery = [each.recovery_s for each in found]
    downtime = [each.downtime_s for each in found]
    return {
        "recovery": window.of(recovery, "recovery", mean=True, note=", from the restore to the first step"),
        "downtime": window.of(
            downtime, "recovery", mean=True, note=f", from the fault to the end of the checks of nodes{waited}"
        ),
    }


def _faults(window: _Window) -> dict[str, Known]:
    job = window.job
    exposure_s = running.seconds(running.intervals(job, since=window.since, until=window.now))
    if exposure_s <= 0:
        return {}
    seen = plan_samples.faults(job, since=window.since)
    count = f"{_many(seen.all, 'fault') if seen.all else 'no fault'} in {_span(exposure_s)}"
    ran = f"{window.source}: {count} of training"
    observed = Observed(faults=seen.all, exposure_s=exposure_s)
    if seen.all == 0:
        told = f"{ran}; with what is {_typical(job)}"
        found = _mtbf(rates.posterior(observed, rates.fleet_prior(job.nodes)), observed, "fleet", told)
        return {"mtbf": replace(found, brief=f"assumed: typical of {_many(job.nodes, 'node')}; {count}")}
    counted = _mtbf(rates.posterior(observed), observed, "jeffreys", f"{ran}, drills left out")
    share = Known(
        value=seen.moved / seen.all,
        kind="measured",
        told=f"{window.source}: {seen.moved} of {_many(seen.all, 'fault')} cost a node",
        samples=seen.all,
    )
    return {"mtbf": counted, "node_share": share}


def _mtbf(posterior: Posterior, observed: Observed, prior: str, told: str) -> Known:
    slow, fast = posterior.interval(MIDDLE)
    low, high = 1.0 / fast, 1.0 / slow if slow > 0 else None
    between = f"{_span(low)} to {_span(high)}" if high is not None else f"at least {_span(low)}"
    return Known(
        value=1.0 / posterior.mean_per_s,
        kind="measured" if observed.exposure_s > 0 else "default",
        told=f"{told}; with 90 % probability one in {between}",
        samples=observed.faults,
        low=low,
        high=high,
        faults=observed.faults,
        exposure_s=observed.exposure_s,
        prior=prior,
        brief=told,
    )


def _mtbf_of_fleet(job: Job) -> Known:
    nothing = Observed(faults=0, exposure_s=0.0)
    return _mtbf(rates.posterior(nothing, rates.fleet_prior(job.nodes)), nothing, "fleet", f"default: {_typical(job)}")


def _what_if_mtbf() -> Known:
    return Known(value=WHAT_IF_MTBF_S, kind="default", told="default: one a day, no job chosen")


def _typical(job: Job) -> str:
    return f"typical of {_many(job.nodes, 'node')} (4 faults in 1000 node-days)"


def _nodes(job: Job) -> Known:
    return Known(value=float(job.nodes), kind="measured", told=f"job {job.name} runs on {_many(job.nodes, 'node')}")


def _inventory(window: _Window) -> dict[str, Known]:
    free = plan_samples.standbys(window.job)
    told = f"measured now: {_many(free, 'free node')} could take over from one of {window.job.name}"
    found = {"standbys": Known(value=float(free), kind="measured", told=told, samples=free)}
    repair_s, back = plan_samples.repairs(window.job, since=window.since, now=window.now)
    if repair_s is not None:
        told = f"{window.source}: mean of {_many(back, 'lost node')} that could be used again"
        found["repair"] = Known(value=repair_s, kind="measured", told=told, samples=back)
    return found


def _target(job: Job | None) -> tuple[float, str]:
    newest = job.plans.only("version", "target", "applied_by").first() if job else None
    if newest is None:
        return TARGET, "a common target"
    return newest.target, f"the target of plan {newest.version}, applied by {newest.applied_by}"


def _most(samples: Sequence[float]) -> tuple[float, float]:
    """Return the values between which the middle nine tenths lie; of few samples the least and the greatest."""
    ordered = sorted(samples)
    cut = int(len(ordered) * (1 - MIDDLE) / 2)
    return ordered[cut], ordered[-1 - cut]


def _range(low: float, high: float) -> str:
    """Write two durations, the unit once where it is the same."""
    first, last = spoken(low), spoken(high)
    number, _, unit = first.rpartition(" ")
    same = unit == last.rpartition(" ")[2] and " " not in number
    return f"{number} to {last}" if same else f"{first} to {last}"


def _span(duration_s: float) -> str:
    """Write how long was looked at: in hours up to five days, because that is how faults are counted."""
    if 7200.0 <= duration_s < HOURS_UP_TO_S:
        return f"{duration_s / 3600.0:.0f} h"
    if HOURS_UP_TO_S <= duration_s < 2 * YEAR_S:
        return f"{duration_s / 86_400.0:.0f} d"
    return f"{duration_s / YEAR_S:.0f} years" if duration_s >= 2 * YEAR_S else spoken(duration_s)


def _one(noun: str) -> str:
    return f"one {noun}"


def _many(count: int, noun: str) -> str:
    if count == 1:
        return f"1 {noun}"
    head, _, tail = noun.partition(" ")
    if head == "copy":
        return f"{count} copies {tail}".rstrip()
    if noun.endswith("y"):
        return f"{count} {noun[:-1]}ies"
    return f"{count} {noun}s"
