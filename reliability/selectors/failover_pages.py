"""What the pages of incidents and failovers show: the request as it is to be decided, its stages, its history."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from reliability import conf
from reliability.domain import goodput
from reliability.domain.failover import OPEN, State
from reliability.domain.health import SERVING
from reliability.models import Failover, FailoverEvent, Finding, Incident, OrderRecord, Report, Validation
from reliability.selectors.job_pages import RankOutput, outputs
from reliability.selectors.stages import DETECTION, by_state

STAGES = {
    DETECTION: "fault seen and judged",
    State.AWAITING_APPROVAL: "waiting for approval",
    State.FENCING: "fencing the old attempt",
    State.FENCE_UNCONFIRMED: "waiting out the lease",
    State.WAITING_FOR_STANDBY: "waiting for a standby",
    State.VALIDATING: "checking the standby",
    State.RESTORING: "restoring",
    State.STARTING: "starting",
    State.VERIFYING: "first step of every rank",
}


@dataclass(frozen=True)
class Stage:
    """A stretch of the timeline. `start` and `width` are shares of the whole in per cent."""

    state: str
    label: str
    seconds: float
    start: float
    width: float
    going_on: bool


@dataclass(frozen=True)
class Timeline:
    """Where the time went, from the first finding on."""

    stages: tuple[Stage, ...]
    total_s: float
    waited_s: float

    @property
    def own_s(self) -> float:
        """Time without the waiting for a person."""
        return self.total_s - self.waited_s


@dataclass(frozen=True)
class Difference:
    """One input that two requests do not share."""

    name: str
    before: str
    after: str


@dataclass(frozen=True)
class FailoverPage:
    """Everything of a failover's page."""

    failover: Failover
    timeline: Timeline
    events: tuple[FailoverEvent, ...]
    findings: tuple[Finding, ...]
    validations: tuple[Validation, ...]
    orders: tuple[OrderRecord, ...]
    lost_steps: int | None
    differences: tuple[Difference, ...]
    earlier: tuple[Failover, ...]
    limit_s: float | None
    waits_until: datetime | None

    @property
    def heard_again(self) -> bool:
        """Whether the node that was given up as lost is heard and usable again."""
        node = self.failover.failed_node
        return self.failover.incident.code == "node-lost" and node is not None and node.health in SERVING


def limit_s(failover: Failover) -> float | None:
    """Return how long a recovery may stay in its present state; None where it waits for a person or a standby."""
    policy = conf.cluster_policy()
    limits = {
        State.FENCING: policy.fence_limit_s,
        State.FENCE_UNCONFIRMED: policy.lease_s + policy.fence_limit_s,
        State.RESTORING: policy.restore_limit_s,
        State.STARTING: policy.start_limit_s,
        State.VERIFYING: policy.verify_limit_s,
    }
    back_off = (failover.start_after - failover.state_since).total_seconds() if failover.start_after else 0.0
    limit = limits.get(State(failover.state))
    waits = failover.state == State.STARTING
    return limit if limit is None or not waits else limit + max(0.0, back_off)


def timeline(failover: Failover, events: Sequence[FailoverEvent], *, now: datetime) -> Timeline:
    """Return the stages of a failover with their seconds; the present one runs until `now`."""
    times = by_state(failover, events, now=now)
    going_on = failover.state in OPEN
    total = sum(seconds for _, seconds in times)
    stages, start = [], 0.0
    for index, (state, seconds) in enumerate(times):
        width = 100 * seconds / total if total else 0.0
        last = going_on and index == len(times) - 1
        stages.append(Stage(state, STAGES.get(state, state), seconds, start, width, last))
        start += width
    waited = sum(seconds for state, seconds in times if state == State.AWAITING_APPROVAL)
    return Timeline(tuple(stages), total, waited)


def _differences(superseded: Failover) -> tuple[Difference, ...]:
    """Return what changed when the request was superseded, as recorded then."""
    event = superseded.events.filter(target=State.SUPERSEDED).last()
    changed = event.detail.get("changed", {}) if event else {}
    return tuple(Difference(name, _told(was), _told(now)) for name, (was, now) in changed.items())


def _told(value: Any) -> str:
    if isinstance(value, list):
        return "; ".join(str(item) for item in value) or "nothing"
    return "nothing" if value is None else str(value)


def incident_findings(incident: Incident) -> Iterable[Finding]:
    """Return the findings of an incident in the order in which they came."""
    return incident.findings.select_related("node", "job").order_by("found_at", "pk")


def incident_outputs(incident: Incident) -> tuple[RankOutput, ...]:
    """Return the last output of the ranks whose end is a finding of the incident."""
    ends = Report.objects.filter(finding__incident=incident, kind="rank_exit")
    return outputs(ends.select_related("node").order_by("pk").distinct())


def failover_page(failover: Failover, *, now: datetime) -> FailoverPage:
    """Return what the page of a failover shows."""
    events = tuple(failover.events.all())
    earlier = tuple(failover.supersedes.all())
    superseded = failover if failover.superseded_by_id else next(iter(earlier), None)
    return FailoverPage(
        failover=failover,
        timeline=timeline(failover, events, now=now),
        events=events,
        findings=tuple(incident_findings(failover.incident)),
        validations=tuple(failover.validations.select_related("node").order_by("started_at")),
        orders=tuple(failover.orders.select_related("node").order_by("created_at")),
        lost_steps=goodput.lost_steps(failover.fault_step, failover.restore_step),
        differences=_differences(superseded) if superseded else (),
        earlier=earlier,
        limit_s=limit_s(failover),
        waits_until=failover.start_after if failover.start_after and failover.start_after > now else None,
    )
