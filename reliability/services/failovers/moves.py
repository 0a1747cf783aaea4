"""The one writer of `Failover.state`: compare-and-set along the table, with the event row in the same transaction."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from django.db import transaction

from reliability.domain.failover import TERMINAL, Event, State, row_for
from reliability.errors import IllegalTransition
from reliability.models import Failover, FailoverEvent
from reliability.services import clock, dispatch
from reliability.services.failovers import effects

AUTOMATION = "stepkeeper"


@dataclass(frozen=True)
class Outcome:
    """What a step found out: the event to take, and what it saw, for the record."""

    event: Event
    detail: Mapping[str, Any] = field(default_factory=dict)
    actor: str = AUTOMATION


def move(failover: Failover, outcome: Outcome) -> None:
    """Take an event. Raises IllegalTransition when the table has no row, or when another process was first."""
    source = State(failover.state)
    row = row_for(source, outcome.event)
    now = clock.now()
    with transaction.atomic():
        ended = {"ended_at": now} if row.target in TERMINAL else {}
        taken = Failover.objects.filter(pk=failover.pk, state=source).update(state=row.target, state_since=now, **ended)
        if taken != 1:
            raise IllegalTransition(f"Failover {failover.pk} is not in state {source} any more.")
        FailoverEvent.objects.create(
            failover=failover,
            at=now,
            source=source,
            event=outcome.event,
            target=row.target,
            sentence=row.sentence,
            actor=outcome.actor,
            detail=dict(outcome.detail),
        )
        failover.refresh_from_db()
        effects.apply(failover, outcome.event, source=source, now=now, detail=outcome.detail)
        dispatch.changed("overview", f"failover:{failover.pk}", f"job:{failover.job_id}")
