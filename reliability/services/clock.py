"""What time is it for the services? The one place that reads the clock, so that tests can move it."""

from datetime import datetime

from django.utils import timezone


def now() -> datetime:
    """Return the server's time, aware, UTC."""
    return timezone.now()


def seconds_since(instant: datetime | None, now: datetime) -> float | None:
    """Return how long ago an instant was, None for none."""
    return None if instant is None else (now - instant).total_seconds()
