"""What a node's page tells of its condition: causes with what clears them, checks with their ages, what happened."""

from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import groupby

from reliability.domain.health import Cause, NodeHealth, hardware
from reliability.domain.health.condition import INCIDENT, QUARANTINE
from reliability.models import Incident, Node, NodeCheck, NodeEvent, Quarantine
from reliability.selectors import quarantined

ROWS = 40


@dataclass(frozen=True)
class CauseLine:
    """One cause as the page shows it; at most one of `incident` and `quarantine` is a number to follow."""

    state: NodeHealth
    text: str
    clears: str
    since: datetime
    ended_at: datetime | None
    incident: int | None = None
    quarantine: int | None = None

    @property
    def note(self) -> bool:
        """Whether it leaves the node healthy, as a hold does."""
        return self.state is NodeHealth.HEALTHY


@dataclass(frozen=True)
class CheckLine:
    """A standing check. `state` is one of passes, fails, no result, out of date, awaited; only the first is green."""

    row: NodeCheck
    state: str


@dataclass(frozen=True)
class QuarantineLine:
    """A quarantine that meets a node. `own`: it was found on this node; `override` says who lets it be used."""

    row: Quarantine
    own: bool
    what: tuple[str, ...]
    override: str
    override_note: str


@dataclass(frozen=True)
class Happening:
    """One line of a node's history."""

    at: datetime
    kind: str
    text: str
    actor: str = ""
    incident: Incident | None = None


def cause_lines(node: Node) -> tuple[CauseLine, ...]:
    """Return why the node is in its condition, the worst first."""
    return tuple(_cause(Cause.of(values)) for values in node.health_causes)


def _cause(cause: Cause) -> CauseLine:
    return CauseLine(
        state=cause.state,
        text=cause.text,
        clears=cause.clears,
        since=datetime.fromtimestamp(cause.since, UTC),
        ended_at=None if cause.ended_at is None else datetime.fromtimestamp(cause.ended_at, UTC),
        incident=_number(cause.key, INCIDENT),
        quarantine=_number(cause.key, QUARANTINE),
    )


def _number(key: str, begins: str) -> int | None:
    text = key.removeprefix(begins)
    return int(text) if key.startswith(begins) and text.isdecimal() else None


def check_state(row: NodeCheck, now: datetime) -> str:
    """Return in a word what a check says now; one that is out of date never says that all is well."""
    if row.ok is None and row.since > now:
        return "awaited"
    if row.stale_at is not None and row.stale_at < now:
        return "out of date"
    return {True: "passes", False: "fails", None: "no result"}[row.ok]


CHECK_ORDER = ("fails", "no result", "out of date", "awaited", "passes")


def check_lines(node: Node, now: datetime) -> tuple[CheckLine, ...]:
    """Return the node's standing checks, those that do not pass first."""
    lines = [CheckLine(row, check_state(row, now)) for row in node.checks.all()]
    return tuple(sorted(lines, key=lambda line: (CHECK_ORDER.index(line.state), line.row.name)))


def quarantine_lines(node: Node) -> tuple[QuarantineLine, ...]:
    """Return the quarantines that stand and mean hardware of this node, also those that are overridden for it."""
    rows = list(quarantined.standing().prefetch_related("overrides"))
    met = quarantined.carriers(rows)
    ids = hardware.identities(node.hardware_ids)
    found = []
    for row in rows:
        own = row.node_id == node.pk
        if own or any(each.pk == node.pk for each in met[row.pk]):
            given = next((each for each in row.overrides.all() if each.node_id == node.pk), None)
            what = tuple(hardware.spoken(each) for each in row.identities if own or each in ids)
            found.append(QuarantineLine(row, own, what, given.by if given else "", given.note if given else ""))
    return tuple(found)


def history(node: Node, *, most: int = ROWS) -> tuple[Happening, ...]:
    """Return what happened to a node, the newest first: events, and incidents that name it."""
    events = list(node.events.all()[: 4 * most])
    lines = [_together(list(rows)) for _, rows in groupby(events, key=_moment)]
    incidents = node.incidents.select_related("job").order_by("-opened_at")[:most]
    lines += [Happening(row.opened_at, "incident", row.summary, incident=row) for row in incidents]
    return tuple(sorted(lines, key=lambda line: line.at, reverse=True)[:most])


def _moment(row: NodeEvent) -> tuple[object, ...]:
    """Checks that came to the same with one heartbeat are one line; everything else stands for itself."""
    return (row.at, row.kind, row.detail.get("ok")) if row.kind == NodeEvent.Kind.CHECK else (row.pk,)


def _together(rows: list[NodeEvent]) -> Happening:
    first = rows[0]
    if len(rows) == 1:
        return Happening(first.at, first.kind, first.text, first.actor)
    names = ", ".join(sorted(str(row.detail.get("check", "")) for row in rows))
    word = {True: "pass", False: "fail", None: "give no result"}[first.detail.get("ok")]
    why = {row.text.partition(": ")[2] for row in rows}
    told = f" {why.pop()}" if len(why) == 1 else ""
    return Happening(first.at, first.kind, f"{len(rows)} checks {word}: {names}.{told}".rstrip(), first.actor)
