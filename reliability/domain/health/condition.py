"""What condition is a node in, why, and what would clear it?

The condition is derived from what is known now and from what it was before: getting worse waits until a trouble has
stood for a while, getting better until it has been over for a while, and a node that changes to and fro stays
degraded. Nothing here decides a failover.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from reliability.domain.faults.words import Action, FaultClass
from reliability.domain.health.words import PLACE, NodeHealth

STABLE_S = 30.0
WORN = (FaultClass.HARDWARE, FaultClass.THERMAL, FaultClass.NETWORK)
"""An observed incident of one of these classes says something of the node it was seen on."""
LOST = "node-lost"
"""A lost node is unreachable, which is told by its silence."""
CHECK, INCIDENT, QUARANTINE, HOLD = "check:", "incident:", "quarantine:", "hold:"
SILENT, FLAPPING, MARKED = "silent", "flapping", "marked"


@dataclass(frozen=True, kw_only=True)
class Rules:
    """When a trouble begins and ends to count. Seconds; `flaps` times worse within `flap_window_s` is flapping.

    What gets worse within `together_s` is worse once: many checks may stop for one reason.
    """

    debounce_s: float = 10.0
    stable_s: float = STABLE_S
    flaps: int = 4
    flap_window_s: float = 600.0
    together_s: float = 1.5


@dataclass(frozen=True, kw_only=True)
class CheckSeen:
    """A standing check as it was last told. `ok` is None without a result, `since` when it began to be what it is.

    Instants are the server's, seconds. `checked_at` is when the check last ended, None when it never did; older than
    `limit_s` it is out of date.
    """

    name: str
    ok: bool | None
    since: float
    checked_at: float | None
    limit_s: float
    reason: str = ""


@dataclass(frozen=True, kw_only=True)
class IncidentSeen:
    """An open incident that names the node. `of_job` is False when it is the node's alone.

    `asked`: a person was asked whether the job leaves the node, and has not decided.
    """

    number: int
    summary: str
    code: str
    fault_class: str
    action: str
    of_job: bool
    since: float
    asked: bool = False


@dataclass(frozen=True, kw_only=True)
class HoldSeen:
    """A hold in force."""

    number: int
    owner: str
    reason: str
    since: float


@dataclass(frozen=True, kw_only=True)
class QuarantineSeen:
    """Hardware of this node that is quarantined. `found_as` is the node's own name then; '' when it is this node."""

    number: int
    reason: str
    since: float
    found_as: str = ""
    what: str = ""
    incident: int | None = None


@dataclass(frozen=True, kw_only=True)
class Seen:
    """What is known of a node now.

    `silent_since` is when it was last heard, given only when it counts as silent, and `heard_told` that instant as
    people read it. `listening_since` is since when heartbeats could be taken in at all. `worsened` are the instants at
    which it got worse lately.
    """

    silent_since: float | None = None
    heard_told: str = ""
    listening_since: float = 0.0
    checks: tuple[CheckSeen, ...] = ()
    incidents: tuple[IncidentSeen, ...] = ()
    holds: tuple[HoldSeen, ...] = ()
    quarantines: tuple[QuarantineSeen, ...] = ()
    worsened: tuple[float, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Cause:
    """One reason for the state of a node: what it makes of it, in words, and what would clear it.

    `since` and `ended_at` are instants in seconds; one that ended counts until it has been over long enough.
    """

    key: str
    state: NodeHealth
    text: str
    clears: str
    since: float
    ended_at: float | None = None

    def as_values(self) -> dict[str, Any]:
        """Return it as it is kept."""
        return {
            "key": self.key,
            "state": str(self.state),
            "text": self.text,
            "clears": self.clears,
            "since": round(self.since, 3),
            "ended_at": None if self.ended_at is None else round(self.ended_at, 3),
        }

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> "Cause":
        """Return what `as_values` gave."""
        return cls(**{**values, "state": NodeHealth(values["state"])})


@dataclass(frozen=True, kw_only=True)
class Condition:
    """The state of a node and its causes, the worst first. Causes may be notes that leave it healthy, as holds are."""

    state: NodeHealth = NodeHealth.UNKNOWN
    causes: tuple[Cause, ...] = ()
    told: str = field(default="", compare=False)

    @property
    def reason(self) -> str:
        """The worst cause in words, '' for a healthy node."""
        worst = next((cause for cause in self.causes if cause.state is self.state), None)
        return worst.text if worst is not None and self.state is not NodeHealth.HEALTHY else ""


def derive(seen: Seen, previous: Condition, *, now: float, rules: Rules) -> Condition:
    """Return the condition of a node at `now` (seconds), given what it was before."""
    before = {cause.key: cause for cause in previous.causes}
    standing = [
        *_marked(previous, now),
        *_quarantines(seen),
        *_incidents(seen),
        *_silence(seen),
        *_checks(seen, before, now, rules),
        *_flapping(seen, before, now, rules),
        *_holds(seen),
    ]
    lasting = [replace(each, since=_since(each, before)) for each in standing]
    causes = sorted([*lasting, *_recovering(lasting, before, now, rules)], key=_place)
    state = causes[0].state if causes else NodeHealth.HEALTHY
    return Condition(state=state, causes=tuple(causes))


def _place(cause: Cause) -> tuple[int, bool, float, str]:
    return PLACE[cause.state], cause.ended_at is not None, cause.since, cause.key


def _since(cause: Cause, before: Mapping[str, Cause]) -> float:
    """A cause that came back before it was over for good began when it began first."""
    known = before.get(cause.key)
    return min(cause.since, known.since) if known is not None else cause.since


def _marked(previous: Condition, now: float) -> list[Cause]:
    """A node that somebody marked as bad without a cause that is known stays so until its holds are lifted."""
    kept = [cause for cause in previous.causes if cause.key == MARKED]
    if kept or previous.causes or previous.state is not NodeHealth.UNHEALTHY:
        return kept
    text = previous.told or "It was marked as not fit."
    return [Cause(key=MARKED, state=previous.state, text=text, clears="Hold it and release the hold.", since=now)]


def _silence(seen: Seen) -> list[Cause]:
    if seen.silent_since is None:
        return []
    heard = f" since {seen.heard_told}" if seen.heard_told else ""
    return [
        Cause(
            key=SILENT,
            state=NodeHealth.UNREACHABLE,
            text=f"Nothing heard{heard}; that alone is no failure.",
            clears="It is heard again.",
            since=seen.silent_since,
        )
    ]


def _quarantines(seen: Seen) -> list[Cause]:
    return [
        Cause(
            key=f"{QUARANTINE}{each.number}",
            state=NodeHealth.UNHEALTHY,
            text=_quarantine_told(each),
            clears="The hardware is repaired and the quarantine released, or an override for this node is given.",
            since=each.since,
        )
        for each in seen.quarantines
    ]


def _quarantine_told(each: QuarantineSeen) -> str:
    if not each.found_as:
        return each.reason
    incident = f" in incident {each.incident}" if each.incident is not None else ""
    return f"Its {each.what} is quarantined: bad as {each.found_as}{incident}. {each.reason}"


def _incidents(seen: Seen) -> list[Cause]:
    known = {each.incident for each in seen.quarantines}
    found = []
    for each in seen.incidents:
        state = _state_of(each)
        if state is NodeHealth.HEALTHY or each.number in known:
            continue
        clears = "The incident is closed." if each.of_job else "The hold it brought is released, or it is closed."
        if state is NodeHealth.DEGRADED:
            clears = "The request is decided." if each.of_job else "Nothing new of the kind is found for a while."
        key = f"{INCIDENT}{each.number}"
        found.append(Cause(key=key, state=state, text=each.summary, clears=clears, since=each.since))
    return found


def _state_of(each: IncidentSeen) -> NodeHealth:
    """Return what an open incident makes of the node it names. What is a job's affair leaves its nodes healthy.

    Only a person's approval makes a node unhealthy where one is asked.
    """
    hardware = each.fault_class == FaultClass.HARDWARE
    if each.of_job:
        bad = hardware and each.action == Action.FAILOVER and each.code != LOST
        if bad and each.asked:
            return NodeHealth.DEGRADED
        return NodeHealth.UNHEALTHY if bad else NodeHealth.HEALTHY
    if each.action == Action.HOLD:
        return NodeHealth.UNHEALTHY
    return NodeHealth.DEGRADED if each.fault_class in WORN else NodeHealth.HEALTHY


def _holds(seen: Seen) -> list[Cause]:
    """A hold keeps a node from new work and says nothing of its health."""
    return [
        Cause(
            key=f"{HOLD}{each.number}",
            state=NodeHealth.HEALTHY,
            text=f"Held by {each.owner}: {each.reason}",
            clears="The hold is released.",
            since=each.since,
        )
        for each in seen.holds
    ]


def _checks(seen: Seen, before: Mapping[str, Cause], now: float, rules: Rules) -> list[Cause]:
    """A check that fails, gave no result or is out of date counts once it has been so for the debounce time."""
    found = []
    for check in seen.checks:
        cause = _check(check, seen, now, rules)
        if cause is not None and (cause.key in before or now - cause.since >= rules.debounce_s):
            found.append(cause)
    return found


def _check(check: CheckSeen, seen: Seen, now: float, rules: Rules) -> Cause | None:
    told = f": {check.reason}" if check.reason else "."
    key, clears = f"{CHECK}{check.name}", f"The check passes for {rules.stable_s:g} s."
    expired = _expired(check, seen, now)
    if expired is not None:
        text = f"Check {check.name} is out of date: no result for more than {check.limit_s:g} s."
        return Cause(key=key, state=NodeHealth.UNKNOWN, text=text, clears=clears, since=expired)
    if check.ok is None:
        text = f"Check {check.name} gave no result{told}"
        return Cause(key=key, state=NodeHealth.UNKNOWN, text=text, clears=clears, since=check.since)
    if not check.ok:
        text = f"Check {check.name} fails{told}"
        return Cause(key=key, state=NodeHealth.DEGRADED, text=text, clears=clears, since=check.since)
    return None


def _expired(check: CheckSeen, seen: Seen, now: float) -> float | None:
    """Return since when a check is out of date, None when it is not.

    What is heard of no node at all, or of this one, is told by its silence: checks do not grow old from that.
    """
    if check.checked_at is None or seen.silent_since is not None:
        return None
    expires = max(check.checked_at + check.limit_s, seen.listening_since)
    return expires if now > expires else None


def _flapping(seen: Seen, before: Mapping[str, Cause], now: float, rules: Rules) -> list[Cause]:
    lately = _moments((at for at in seen.worsened if now - at <= rules.flap_window_s), rules.together_s)
    needed = 1 if FLAPPING in before else rules.flaps
    if len(lately) < needed:
        return []
    minutes = rules.flap_window_s / 60
    return [
        Cause(
            key=FLAPPING,
            state=NodeHealth.DEGRADED,
            text=f"It changes to and fro: it got worse {rules.flaps} times or more within {minutes:g} min.",
            clears=f"It stays as it is for {minutes:g} min.",
            since=min(lately),
        )
    ]


def _moments(instants: Iterable[float], together_s: float) -> list[float]:
    """Return the first of each run of instants that lie together."""
    found: list[float] = []
    for at in sorted(instants):
        if not found or at - found[-1] > together_s:
            found.append(at)
    return found


def _recovering(standing: list[Cause], before: Mapping[str, Cause], now: float, rules: Rules) -> list[Cause]:
    """Return what ended a moment ago and still counts. What a person or silence decided ends at once."""
    known = {cause.key for cause in standing}
    found = []
    for key, cause in before.items():
        slow = key.startswith(CHECK) or (key.startswith(INCIDENT) and cause.state is NodeHealth.DEGRADED)
        if key in known or not slow:
            continue
        ended_at = now if cause.ended_at is None else cause.ended_at
        if now - ended_at < rules.stable_s:
            found.append(replace(cause, ended_at=ended_at))
    return found
