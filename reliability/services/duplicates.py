"""Is a finding the same as one that is known already? Then it only counts up.

The same is: same node, job, attempt, rank and code, at the same place (device, part of a GPU, link, server), while the
incident is open. A line at the same place long after the first is a new event: repeats are counted by events. What a
second witness tells, as a foreign monitor beside the node's own agent, is the same event seen twice and counts once.
"""

from collections.abc import Mapping
from datetime import datetime, timedelta

from django.db.models import F, Q

from reliability.domain.faults import Matcher
from reliability.domain.faults.findings import LONGEST_EVIDENCE, PRINTED
from reliability.domain.faults.places import can_be_one, place_of
from reliability.domain.faults.weighing import EVENT_GAP_S
from reliability.domain.faults.words import Value
from reliability.models import Finding, Job, Node
from reliability.selectors import fault_codes
from reliability.selectors.fault_context import fields_of

FLOOD_S = 150.0
"""Lines of one place that come no further apart are one finding with a count, unless the code is watched for repeats.

An agent tells of what goes on once a minute.
"""
WITNESS_S = 120.0
"""So much later at most another witness tells of the same event: monitors look once or twice a minute."""
LOOKED_AT = 200
AGENT = "agent"
LONGEST_SOURCE = 80


def ends_nothing(node: Node, code: str) -> bool:
    """Return whether a code says that something is over of which nothing is open: then the report alone is kept."""
    clears = fault_codes.table().lookup(code).clears
    standing = Q(incident=None) | Q(incident__closed_at=None)
    return bool(clears) and not Finding.objects.filter(standing, node=node, code=clears).exists()


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
    fields: Mapping[str, Value] | None = None,
    source: str = "",
) -> bool:
    """Count a finding that is known already, and return whether it was."""
    rows = Finding.objects.filter(node=node, job=job, epoch=epoch, code=code)
    standing = rows.filter(Q(incident=None) | Q(incident__closed_at=None)).order_by("-last_at", "-id")[:LOOKED_AT]
    matcher = fault_codes.matcher()
    rule = matcher.table.lookup(code).repeat
    oldest = now - timedelta(seconds=FLOOD_S if rule is None else EVENT_GAP_S)
    told = fields or fields_of(code, evidence, matcher)
    for known in standing:
        if (source or AGENT) not in _sources(known):
            if _seen_by_another(known, told, matcher, now):
                _note_witness(known, source, count, now)
                return True
        elif known.rank == rank and _same(known, evidence, told, matcher, oldest):
            Finding.objects.filter(pk=known.pk).update(count=F("count") + count, last_at=now)
            return True
    return False


def _sources(known: Finding) -> list[str]:
    return [each or AGENT for each in known.source.split(", ")]


def _note_witness(known: Finding, source: str, count: int, now: datetime) -> None:
    sources = ", ".join((*_sources(known), source or AGENT))
    told = {"source": sources[:LONGEST_SOURCE], "count": max(known.count, count), "last_at": now}
    Finding.objects.filter(pk=known.pk).update(**told)


def _fields(known: Finding, matcher: Matcher) -> Mapping[str, Value]:
    return known.fields or fields_of(known.code, known.evidence, matcher)


def _seen_by_another(known: Finding, told: Mapping[str, Value], matcher: Matcher, now: datetime) -> bool:
    """Return whether a finding of another source can be the same event: near in time, and no place that differs."""
    if known.found_at < now - timedelta(seconds=WITNESS_S):
        return False
    return can_be_one(_fields(known, matcher), told)


def _same(known: Finding, evidence: str, told: Mapping[str, Value], matcher: Matcher, oldest: datetime) -> bool:
    if known.source == PRINTED:
        return True  # it is only noted, and each line of it may have its own time
    if not told:
        return known.evidence == evidence[:LONGEST_EVIDENCE]
    if known.last_at < oldest:
        return False
    return place_of(_fields(known, matcher)) == place_of(told)
