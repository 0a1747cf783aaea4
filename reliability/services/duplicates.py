"""Is a finding the same as one that is known already? Then it only counts up.

The same is: same node, job, attempt, rank and code, at the same place (device, part of a GPU, link, server), while the
incident is open. A line at the same place long after the first is a new event: repeats are counted by events.
"""

from collections.abc import Mapping
from datetime import datetime, timedelta

from django.db.models import F, Q

from reliability.domain.faults import Matcher
from reliability.domain.faults.weighing import EVENT_GAP_S
from reliability.domain.faults.words import Value
from reliability.models import Finding, Job, Node
from reliability.selectors import fault_codes
from reliability.selectors.fault_context import fields_of

FLOOD_S = 60.0
"""Lines of one place within this time are one finding with a count, unless the code is watched for repeats."""
PLACES = ("device", "gpc", "tpc", "link", "switch", "server", "module", "interface", "peer", "node", "cgroup")
LOOKED_AT = 50


def counted_up(
    node: Node,
    code: str,
    *,
    job: Job | None,
    epoch: int | None,
    rank: int | None,
    evidence: str,
    count: int,
    now: datetime,
) -> bool:
    """Count a finding that is known already, and return whether it was."""
    rows = Finding.objects.filter(node=node, job=job, epoch=epoch, code=code, rank=rank)
    standing = rows.filter(Q(incident=None) | Q(incident__closed_at=None)).order_by("-id")[:LOOKED_AT]
    matcher = fault_codes.matcher()
    rule = matcher.table.lookup(code).repeat
    oldest = now - timedelta(seconds=FLOOD_S if rule is None else EVENT_GAP_S)
    told = fields_of(code, evidence, matcher)
    for known in standing:
        if _same(known, evidence, told, matcher, oldest):
            Finding.objects.filter(pk=known.pk).update(count=F("count") + count)
            return True
    return False


def _same(known: Finding, evidence: str, told: Mapping[str, Value], matcher: Matcher, oldest: datetime) -> bool:
    if not told:
        return known.evidence == evidence[: len(known.evidence) or None]
    if known.found_at < oldest:
        return False
    before = fields_of(known.code, known.evidence, matcher)
    return all(before.get(name) == told.get(name) for name in PLACES)
