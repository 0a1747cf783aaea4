"""What may be forgotten: records of work that is long over, so that the database does not grow for ever.

What recoveries did (failovers with every event), open incidents, and what orders of living jobs are keyed by is kept.
Each round removes a bounded number of rows of each kind, so that no round takes long.
"""

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Any

from django.conf import settings
from django.db.models import Exists, F, OuterRef, Q, QuerySet, Window
from django.db.models.functions import RowNumber

from reliability.domain.snapshots import CopyState, Tier
from reliability.models import (
    Finding,
    Job,
    NodeEvent,
    OrderRecord,
    Report,
    Snapshot,
    SnapshotCopy,
    SnapshotTier,
    Validation,
)

BATCH = 500
FINDINGS_DAYS = 90
GONE_COPIES_H = 24
CHECKS_OF_A_NODE = 20
ANSWERED = (OrderRecord.State.DONE, OrderRecord.State.FAILED, OrderRecord.State.REFUSED, OrderRecord.State.EXPIRED)


def forget_old(now: datetime) -> int:
    """Remove a batch of every kind of record that is no longer needed; returns how many rows went."""
    return sum(_remove(which(now)) for which in KINDS)


def _remove(rows: QuerySet[Any]) -> int:
    pks = list(rows.values_list("pk", flat=True)[: LARGE.get(rows.model, BATCH)])
    return rows.model._default_manager.filter(pk__in=pks).delete()[0] if pks else 0


def _before(now: datetime) -> datetime:
    return now - timedelta(days=settings.KEEP_REPORTS_DAYS)


def _reports(now: datetime) -> QuerySet[Report]:
    """A node sends nothing again that was answered, so that its number is not needed to know a repeat."""
    return Report.objects.exclude(state=Report.State.NEW).filter(received_at__lt=_before(now)).order_by("pk")


def _orders(now: datetime) -> QuerySet[OrderRecord]:
    """Keys of a job that is not over still keep an order from being given twice; orders of recoveries are history."""
    over = Q(job=None) | Q(job__state__in=Job.TERMINAL)
    rows = OrderRecord.objects.filter(over, state__in=ANSWERED, failover=None, ended_at__lt=_before(now))
    return rows.order_by("created_at")


def _checks(now: datetime) -> QuerySet[Validation]:
    place = Window(RowNumber(), partition_by=[F("node")], order_by=[F("started_at").desc(), F("id").desc()])
    numbered = Validation.objects.exclude(ended_at=None).annotate(place=place)
    return numbered.filter(place__gt=CHECKS_OF_A_NODE).order_by("pk")


def _findings(now: datetime) -> QuerySet[Finding]:
    """Those of incidents that recovered something stay: they say why."""
    rows = Finding.objects.filter(incident__closed_at__lt=now - timedelta(days=FINDINGS_DAYS))
    return rows.filter(incident__failovers=None).order_by("pk")


def _copies(now: datetime) -> QuerySet[SnapshotCopy]:
    """Copies that are gone: what they came to stays counted with their snapshot."""
    gone = SnapshotCopy.objects.filter(state__in=(CopyState.DELETED, CopyState.LOST))
    return gone.filter(changed_at__lt=now - timedelta(hours=GONE_COPIES_H)).order_by("changed_at")


def _snapshots(now: datetime) -> QuerySet[Snapshot]:
    """Snapshots of which nothing is left, except the newest that storage once held: that one existed is known by it."""
    stored = SnapshotTier.objects.filter(tier=Tier.STORAGE, ever__gt=0)
    never = ~Exists(stored.filter(snapshot=OuterRef("pk")))
    later = Exists(stored.filter(job=OuterRef("job"), step__gt=OuterRef("step")))
    left = Exists(SnapshotCopy.objects.filter(snapshot=OuterRef("pk")))
    return Snapshot.objects.filter(never | later, ~left, held=0, created_at__lt=_before(now)).order_by("pk")


def _node_events(now: datetime) -> QuerySet[NodeEvent]:
    """What people did to nodes and hardware stays; that a check or the condition changed is of use for a while."""
    short = (NodeEvent.Kind.HEALTH, NodeEvent.Kind.CHECK, NodeEvent.Kind.ROLE)
    return NodeEvent.objects.filter(kind__in=short, at__lt=now - timedelta(days=FINDINGS_DAYS)).order_by("pk")


LARGE: Mapping[type[Any], int] = {SnapshotCopy: 10_000, Report: 10_000}
"""Rows that come in by the thousand, as one for each rank and tier of every save, or of a flood, go as fast."""

KINDS: tuple[Callable[[datetime], QuerySet[Any]], ...] = (
    _reports,
    _orders,
    _checks,
    _findings,
    _copies,
    _snapshots,
    _node_events,
)
