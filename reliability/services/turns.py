"""Was this piece of work done a moment ago, or is it waiting already? So a controller that is behind does it once.

Under load the queue holds several messages that ask for the same: the first does the work of all. A turn that is lost
with its process, or with the clock set back, is free again after its time.
"""

import logging
from datetime import UTC, datetime, timedelta

from django.db import InterfaceError, OperationalError
from django.db.models import Q

from reliability.models import ServiceBeat

LONG_AGO = datetime(1970, 1, 1, tzinfo=UTC)

log = logging.getLogger(__name__)


def take(name: str, now: datetime, every_s: float) -> bool:
    """Take a turn, unless one was taken in the `every_s` seconds before."""
    turn = ServiceBeat.objects.filter(name=name)
    free = Q(beat_at__lte=now - timedelta(seconds=every_s)) | Q(beat_at__gt=now + timedelta(seconds=every_s))
    if turn.filter(free).exists():
        return bool(turn.filter(free).update(beat_at=now))
    if turn.exists():
        return False
    return ServiceBeat.objects.get_or_create(name=name, defaults={"started_at": now, "beat_at": now})[1]


def count_from(name: str, at: datetime) -> None:
    """Count a turn from a later time than it was taken at: what waited meanwhile asks for nothing that was not done."""
    ServiceBeat.objects.filter(name=name, beat_at__lt=at).update(beat_at=at)


def give_back(name: str) -> None:
    """Free a turn at once, outside a transaction. While the database is busy or away it frees itself after its time."""
    try:
        ServiceBeat.objects.filter(name=name, beat_at__gt=LONG_AGO).update(beat_at=LONG_AGO)
    except (OperationalError, InterfaceError) as error:
        log.warning("The turn %s could not be given back: %s", name, error)
