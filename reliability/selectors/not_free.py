"""Why do nodes not count as free for a job that waits? One sentence for the first few, those without a slot first."""

import textwrap
from collections.abc import Collection
from datetime import datetime

from django.db.models import Exists, OuterRef

from reliability.domain.health import USABLE
from reliability.models import Job, Node
from reliability.selectors import core, maintenance, standbys

SHOWN = 6
LONGEST_REASON = 80


def sentence(job: Job, free: Collection[Node], now: datetime) -> str:
    """Return what keeps the other nodes from this job, '' when there are none."""
    others = Node.objects.exclude(pk__in=[node.pk for node in free])
    others = others.order_by(Exists(core.active_slots().filter(node=OuterRef("pk"))), "name")
    named = list(others[:SHOWN])
    if not named:
        return ""
    taken = dict(core.active_slots().filter(node__in=named).values_list("node_id", "job__name"))
    holds = dict(core.active_holds().filter(node__in=named).order_by("-pk").values_list("node_id", "reason"))
    planned = maintenance.current(now, named)
    kept = standbys.kept_free()

    def why(node: Node) -> str:
        if node.pk in taken:
            return f"has a slot of {taken[node.pk]}"
        if node.runtime != job.runtime:
            return f"runs {node.runtime or 'no known runtime'}"
        if node.health not in USABLE:
            return f"is {node.health}"
        if node.pk in holds:
            return f"is held ({textwrap.shorten(holds[node.pk].rstrip('.'), LONGEST_REASON, placeholder=' ...')})"
        if node.pk in planned:
            ends_at = max(window.ends_at for window in planned[node.pk])
            return f"is in planned maintenance until {ends_at:%Y-%m-%d %H:%M} UTC"
        return "is kept free for a recovery" if node.name in kept else "is not free yet"

    told = ", ".join(f"{node.name} {why(node)}" for node in named)
    more = others.count() - len(named)
    return f"{told}, and {more} more" if more else told
