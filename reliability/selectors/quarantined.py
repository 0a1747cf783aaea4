"""Which quarantines stand, and which nodes have hardware that is meant by one?"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta

from django.db.models import QuerySet

from reliability import conf
from reliability.domain.health import QuarantineSeen, hardware
from reliability.models import Node, Quarantine, QuarantineOverride


def standing() -> QuerySet[Quarantine]:
    """Return the quarantines that are not released."""
    return Quarantine.objects.filter(released_at=None)


def live_nodes(*, now: datetime | None = None) -> QuerySet[Node]:
    """Return the nodes that were heard within the silence limit before the newest word of any node."""
    newest = (
        now
        or Node.objects.exclude(last_seen_at=None)
        .order_by("-last_seen_at")
        .values_list("last_seen_at", flat=True)
        .first()
    )
    if newest is None:
        return Node.objects.none()
    return Node.objects.filter(last_seen_at__gte=newest - timedelta(seconds=conf.cluster_policy().silence_s))


def of_other_live_nodes(node: Node) -> list[frozenset[str]]:
    """Return the identities of each live node but this one."""
    others = live_nodes().exclude(pk=node.pk).only("hardware_ids")
    return [hardware.identities(each.hardware_ids) for each in others]


def watched() -> list[int]:
    """Return the nodes in which quarantined hardware was found."""
    return [pk for pk in standing().values_list("node_id", flat=True) if pk is not None]


def by_node(nodes: Iterable[Node]) -> dict[int, tuple[QuarantineSeen, ...]]:
    """Return node -> the quarantines that keep it from use. One query when nothing is quarantined, else three.

    A quarantine means the node it was found on, and every other node that carries one of its identities, unless
    several live nodes carry that identity. An override takes its node out.
    """
    rows = list(standing().order_by("pk"))
    if not rows:
        return {}
    overridden = set(QuarantineOverride.objects.filter(quarantine__in=rows).values_list("quarantine_id", "node_id"))
    carried = {each.pk: hardware.identities(each.hardware_ids) for each in live_nodes().only("hardware_ids")}
    found: dict[int, list[QuarantineSeen]] = defaultdict(list)
    for node in nodes:
        ids = hardware.identities(node.hardware_ids)
        for row in rows:
            seen = None if (row.pk, node.pk) in overridden else _seen(row, node, ids, carried)
            if seen is not None:
                found[node.pk].append(seen)
    return {node: tuple(seen) for node, seen in found.items()}


def _seen(
    row: Quarantine, node: Node, ids: frozenset[str], carried: Mapping[int, frozenset[str]]
) -> QuarantineSeen | None:
    """Return how a quarantine meets a node, None when it does not."""
    since = row.created_at.timestamp()
    if row.node_id == node.pk:
        return QuarantineSeen(number=row.pk, reason=row.reason, since=since, incident=row.incident_id)
    same = ids & set(row.identities)
    if not same:
        return None
    others = [has for pk, has in carried.items() if pk not in (node.pk, row.node_id)]
    counting = sorted(hardware.own(same, others))
    if not counting:
        return None
    return QuarantineSeen(
        number=row.pk,
        reason=row.reason,
        since=since,
        found_as=row.found_as,
        what=hardware.spoken(counting[0]),
        incident=row.incident_id,
    )


def carriers(rows: Iterable[Quarantine]) -> dict[int, list[Node]]:
    """Return quarantine -> the other nodes that carry hardware of it now, by the same rule, overridden ones too."""
    wanted = {row.pk: row for row in rows}
    nodes = list(Node.objects.all()) if wanted else []
    live = {each.pk for each in live_nodes().only("pk")} if wanted else set()
    ids = {node.pk: hardware.identities(node.hardware_ids) for node in nodes}
    carried = {pk: each for pk, each in ids.items() if pk in live}
    return {
        pk: [node for node in nodes if node.pk != row.node_id and _seen(row, node, ids[node.pk], carried)]
        for pk, row in wanted.items()
    }


def spoken(row: Quarantine) -> tuple[str, ...]:
    """Return the identities of a quarantine as people read them."""
    return tuple(hardware.spoken(identity) for identity in row.identities)


def shared(nodes: Iterable[Node]) -> frozenset[str]:
    """Return the identities that several of the live nodes among these carry: they tell no machine again."""
    live = set(live_nodes().values_list("pk", flat=True))
    counts = Counter(each for node in nodes if node.pk in live for each in hardware.identities(node.hardware_ids))
    return frozenset(identity for identity, count in counts.items() if count > 1)
