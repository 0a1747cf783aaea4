"""What is known of nodes and standbys: condition, holds, checks with their measurements, what they reported."""

from collections import defaultdict
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import datetime

from django.db.models import Case, IntegerField, Prefetch, QuerySet, Value, When
from django.utils import timezone

from reliability.domain.health import PLACE, SERVING, USABLE, NodeRole
from reliability.domain.standby import Verdict
from reliability.models import Finding, Hold, Node, OrderRecord, Report, Room, Slot, Validation
from reliability.selectors import core, maintenance, node_history
from reliability.selectors.node_history import CauseLine, CheckLine, Happening, QuarantineLine
from reliability.selectors.rooms import warnings

ROWS = 20


@dataclass(frozen=True)
class StandbyLine:
    """A standby with its newest result per check. `ready` means: usable, not held, every known check passed.

    `planned`: in which maintenance it is now, in words, '' in none.
    """

    node: Node
    holds: tuple[Hold, ...]
    checks: tuple[Validation, ...]
    warm_for: tuple[str, ...]
    planned: str = ""

    @property
    def validated(self) -> bool:
        """Whether every check passed the last time it ran."""
        kinds = {check.check_kind for check in self.checks}
        return kinds == set(Validation.Check.values) and all(check.verdict == Verdict.PASS for check in self.checks)

    @property
    def usable(self) -> bool:
        """Whether it may take a slot at all, were it the only one."""
        return self.node.health in SERVING and not self.holds and not self.planned

    @property
    def ready(self) -> bool:
        """Whether it could take a slot over now."""
        return self.node.health in USABLE and self.usable and self.validated


@dataclass(frozen=True)
class NodePage:
    """Everything of a node's page."""

    node: Node
    slots: tuple[Slot, ...]
    holds: tuple[Hold, ...]
    past_holds: tuple[Hold, ...]
    validations: tuple[Validation, ...]
    findings: tuple[Finding, ...]
    refused: tuple[Report, ...]
    orders: tuple[OrderRecord, ...]
    warnings: tuple[Room, ...]
    causes: tuple[CauseLine, ...]
    checks: tuple[CheckLine, ...]
    quarantines: tuple[QuarantineLine, ...]
    history: tuple[Happening, ...]


def nodes_with_places() -> QuerySet[Node]:
    """Return nodes with open holds and slots prefetched, for lists; the worst first."""
    places = (When(health=state, then=Value(place)) for state, place in PLACE.items())
    worst = Case(*places, default=Value(0), output_field=IntegerField())
    return (
        Node.objects.annotate(worst=worst)
        .order_by("worst", "name")
        .prefetch_related(
            Prefetch("holds", Hold.objects.filter(released_at=None), to_attr="open_holds"),
            Prefetch("slots", core.active_slots().select_related("job"), to_attr="places"),
        )
    )


def newest_checks(nodes: Collection[int]) -> dict[int, tuple[Validation, ...]]:
    """Return the newest ended or running validation of each kind per node."""
    newest: dict[tuple[int, str], Validation] = {}
    for row in Validation.objects.filter(node__in=nodes).order_by("started_at"):
        newest[row.node_id, row.check_kind] = row
    by_node: dict[int, list[Validation]] = defaultdict(list)
    for (node, _), row in sorted(newest.items()):
        by_node[node].append(row)
    return {node: tuple(rows) for node, rows in by_node.items()}


def warm_for(node: Node) -> tuple[str, ...]:
    """Return the jobs the node holds a warm container of, as its last heartbeat told."""
    return tuple(
        sorted(
            job for job, told in node.containers.items() if isinstance(told, dict) and told.get("container") == "warm"
        )
    )


def standby_lines(nodes: Iterable[Node], *, busy: Collection[int | None]) -> list[StandbyLine]:
    """Return the standbys among the nodes, best tier first."""
    standbys = sorted(
        (node for node in nodes if node.role == NodeRole.STANDBY and node.pk not in busy),
        key=lambda node: (node.tier, node.name),
    )
    keys = [node.pk for node in standbys]
    holds: dict[int, list[Hold]] = defaultdict(list)
    for hold in Hold.objects.filter(node__in=keys, released_at=None):
        holds[hold.node_id].append(hold)
    checks = newest_checks(keys)
    windows = maintenance.current(timezone.now(), standbys)
    away = {pk: maintenance.told(found[0]) for pk, found in windows.items()}
    return [
        StandbyLine(node, tuple(holds[node.pk]), checks.get(node.pk, ()), warm_for(node), away.get(node.pk, ""))
        for node in standbys
    ]


def node_page(node: Node, *, now: datetime) -> NodePage:
    """Return what the page of a node shows."""
    holds = list(node.holds.all()[: 2 * ROWS])
    return NodePage(
        node=node,
        slots=tuple(core.active_slots().filter(node=node).select_related("job")),
        holds=tuple(hold for hold in holds if hold.released_at is None),
        past_holds=tuple(hold for hold in holds if hold.released_at is not None),
        validations=tuple(node.validations.select_related("failover")[:ROWS]),
        findings=tuple(node.findings.select_related("job", "incident")[:ROWS]),
        refused=tuple(node.reports.filter(state=Report.State.REFUSED).order_by("-pk")[:ROWS]),
        orders=tuple(node.orders.select_related("job").order_by("-created_at")[:ROWS]),
        warnings=tuple(warnings(nodes=[node.pk])),
        causes=node_history.cause_lines(node),
        checks=node_history.check_lines(node, now),
        quarantines=node_history.quarantine_lines(node),
        history=node_history.history(node),
    )
