"""What the overview and the frame of every page show."""

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db.models import Q

from reliability.domain.failover import OPEN, State
from reliability.domain.health import NodeHealth, NodeRole
from reliability.models import Drill, Failover, Hold, Incident, Job, Node, Room, Slot
from reliability.selectors import core
from reliability.selectors.node_pages import StandbyLine, standby_lines
from reliability.selectors.progress import JobLine, Risk, job_lines
from reliability.selectors.rooms import warnings

RECENT = timedelta(hours=1)
ENDED_STAYS = timedelta(hours=12)
ROWS = 12
FOLDED = 200


@dataclass(frozen=True)
class NavCounts:
    """Numbers beside the menu entries."""

    waiting: int
    incidents: int


@dataclass(frozen=True)
class NodeGroup:
    """Nodes that belong together on the board."""

    title: str
    standby: bool
    nodes: tuple[Node, ...]


@dataclass(frozen=True)
class Happening:
    """One line of the last hour. Exactly one of the two is set; `count` equal incidents are one line, at the newest."""

    at: datetime
    incident: Incident | None = None
    failover: Failover | None = None
    count: int = 1


@dataclass(frozen=True)
class Waiting:
    """A failover that waits for a person, and what a minute of waiting costs."""

    failover: Failover
    node_minutes: int


@dataclass(frozen=True)
class HeldNode:
    """A node that nobody may use until its holds are released, and by whom and why."""

    node: Node
    holds: tuple[Hold, ...]


@dataclass(frozen=True)
class Overview:
    """Everything of the overview page."""

    lines: tuple[JobLine, ...]
    active: int
    training: int
    stopped: tuple[JobLine, ...]
    worst: JobLine | None
    worst_risk: Risk
    waiting: tuple[Waiting, ...]
    stuck: tuple[Failover, ...]
    groups: tuple[NodeGroup, ...]
    health: tuple[tuple[NodeHealth, int], ...]
    held: tuple[HeldNode, ...]
    undecided: tuple[Job, ...]
    standbys: tuple[StandbyLine, ...]
    happenings: tuple[Happening, ...]
    drills: tuple[Drill, ...]
    warnings: tuple[Room, ...]

    @property
    def asks(self) -> int:
        """How many things wait for a person."""
        return len(self.waiting) + len(self.undecided) + len(self.held)

    @property
    def standbys_ready(self) -> int:
        """Standbys that could take over now."""
        return sum(1 for standby in self.standbys if standby.ready)


def nav_counts() -> NavCounts:
    """Return the numbers beside the menu entries: waiting failovers and open incidents."""
    return NavCounts(
        waiting=core.waiting_failovers().count(),
        incidents=Incident.objects.filter(closed_at=None).count(),
    )


def listed_jobs(now: datetime) -> list[Job]:
    """Return jobs that go on or ended lately."""
    return list(Job.objects.filter(~Q(state__in=Job.TERMINAL) | Q(ended_at__gt=now - ENDED_STAYS)))


def _groups(nodes: Iterable[Node], slots: Iterable[Slot]) -> tuple[NodeGroup, ...]:
    place = {slot.node_id: slot.job.name for slot in slots if slot.node_id}
    by_title: dict[tuple[int, str], list[Node]] = defaultdict(list)
    for node in nodes:
        if node.pk in place:
            by_title[0, place[node.pk]].append(node)
        elif node.role == NodeRole.TRAINING:
            by_title[1, "training, without a job"].append(node)
        else:
            by_title[2, f"standby, tier {node.tier}"].append(node)
    return tuple(NodeGroup(title, order == 2, tuple(group)) for (order, title), group in sorted(by_title.items()))


def _happenings(since: datetime) -> tuple[Happening, ...]:
    incidents = Incident.objects.filter(opened_at__gt=since).select_related("job", "node").order_by("-pk")[:FOLDED]
    failovers = Failover.objects.filter(created_at__gt=since).select_related("job", "failed_node", "standby")[:ROWS]
    lines = _folded(incidents)
    lines += [Happening(row.created_at, failover=row) for row in failovers]
    return tuple(sorted(lines, key=lambda line: line.at, reverse=True)[:ROWS])


def _folded(incidents: Iterable[Incident]) -> list[Happening]:
    """Return one line for all incidents that say the same, newest first."""
    newest: dict[tuple[int | None, int | None, str], Incident] = {}
    counts: Counter[tuple[int | None, int | None, str]] = Counter()
    for row in incidents:
        key = (row.job_id, row.node_id, row.code or row.summary)
        newest.setdefault(key, row)
        counts[key] += 1
    return [Happening(row.opened_at, incident=row, count=counts[key]) for key, row in newest.items()]


def _held_nodes(nodes: Iterable[Node]) -> tuple[HeldNode, ...]:
    holds: dict[int, list[Hold]] = defaultdict(list)
    for hold in core.active_holds():
        holds[hold.node_id].append(hold)
    return tuple(HeldNode(node, tuple(holds[node.pk])) for node in nodes if holds[node.pk])


def _undecided(lines: Iterable[JobLine]) -> tuple[Job, ...]:
    """Return the jobs that wait for a person and for which no recovery is open: only a person can go on."""
    waiting = [line.job for line in lines if line.job.state == Job.State.WAITING]
    asked = set(Failover.objects.filter(job__in=waiting, state__in=OPEN).values_list("job_id", flat=True))
    return tuple(job for job in waiting if job.pk not in asked)


def _open_failovers() -> tuple[tuple[Waiting, ...], tuple[Failover, ...]]:
    stuck_states = (State.FENCE_UNCONFIRMED, State.WAITING_FOR_STANDBY)
    rows = Failover.objects.filter(state__in=(State.AWAITING_APPROVAL, *stuck_states))
    rows = rows.select_related("job", "failed_node", "standby").order_by("created_at")
    waiting = tuple(Waiting(row, row.job.nodes) for row in rows if row.state == State.AWAITING_APPROVAL)
    return waiting, tuple(row for row in rows if row.state in stuck_states)


def _worst(lines: Iterable[JobLine]) -> tuple[JobLine | None, Risk]:
    at_risk = [line for line in lines if not line.over and not line.plain and line.node_risk.steps is not None]
    worst = max(at_risk, key=lambda line: (line.node_risk.seconds or 0, line.node_risk.steps or 0), default=None)
    return worst, worst.node_risk if worst else Risk()


def overview(*, now: datetime) -> Overview:
    """Return what the overview shows."""
    lines = job_lines(listed_jobs(now), now=now)
    active = [line for line in lines if line.job.state not in Job.TERMINAL]
    nodes = list(Node.objects.all())
    held = _held_nodes(nodes)
    for each in held:
        each.node.open_holds = each.holds  # type: ignore[attr-defined] # the board shows it on the tile
    slots = [slot for line in active for slot in line.slots]
    for line in active:
        for slot in line.slots:
            slot.job = line.job
    health = Counter(NodeHealth(node.health) for node in nodes)
    waiting, stuck = _open_failovers()
    worst, worst_risk = _worst(lines)
    return Overview(
        lines=tuple(lines),
        active=len(active),
        training=sum(1 for line in active if line.training),
        stopped=tuple(line for line in active if not line.training),
        worst=worst,
        worst_risk=worst_risk,
        waiting=waiting,
        stuck=stuck,
        groups=_groups(nodes, slots),
        health=tuple((state, health[state]) for state in NodeHealth if health[state]),
        held=held,
        undecided=_undecided(active),
        standbys=tuple(standby_lines(nodes, busy={slot.node_id for slot in slots})),
        happenings=_happenings(now - RECENT),
        drills=tuple(Drill.objects.select_related("job", "node", "failover")[:5]),
        warnings=tuple(warnings()),
    )
