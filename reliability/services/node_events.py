"""What happened to a node? Append-only, and written in the transaction that made it happen."""

from datetime import datetime, timedelta
from typing import Any

from reliability.models import Node, NodeEvent
from reliability.services import clock

Kind = NodeEvent.Kind
AUTOMATION = "automation"
MOST_CHANGES = 60
CHANGES_WITHIN = timedelta(minutes=10)
"""A check that changes to and fro fills no disk: after so many changes of a node within this time no more are kept."""


def record(
    node: Node,
    kind: NodeEvent.Kind,
    text: str,
    *,
    actor: str = AUTOMATION,
    at: datetime | None = None,
    worse: bool = False,
    **detail: Any,
) -> None:
    """Keep one event."""
    NodeEvent.objects.create(
        node=node, kind=kind, text=text, actor=actor, at=at or clock.now(), worse=worse, detail=detail
    )


def check_changed(node: Node, text: str, *, at: datetime, worse: bool, **detail: Any) -> None:
    """Keep that a standing check changed, unless it does so all the time."""
    lately = NodeEvent.objects.filter(node=node, kind=Kind.CHECK, at__gt=at - CHANGES_WITHIN)
    if lately.count() < MOST_CHANGES:
        record(node, Kind.CHECK, text, at=at, worse=worse, **detail)
