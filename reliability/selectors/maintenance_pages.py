"""Planned maintenance as pages show it: a month as a table of days, and the windows as a list."""

import calendar
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta

from reliability.models import MaintenanceWindow, Node
from reliability.selectors import maintenance

LISTED = 50
SHOWN_NODES = 8
FIRST_YEAR, LAST_YEAR = 2000, 9998


@dataclass(frozen=True, kw_only=True)
class Row:
    """A window with its state and where it is."""

    window: MaintenanceWindow
    state: str
    where: str


@dataclass(frozen=True, kw_only=True)
class Day:
    """One day of the calendar (UTC) and the windows that share an instant with it."""

    day: date
    inside: bool
    today: bool
    rows: tuple[Row, ...]


@dataclass(frozen=True, kw_only=True)
class Month:
    """A month as weeks of seven days, Monday first."""

    first: date
    weeks: tuple[tuple[Day, ...], ...]
    before: date
    after: date


def where(window: MaintenanceWindow) -> str:
    """Return what a window is about, in words."""
    if window.scope == MaintenanceWindow.Scope.ALL:
        return "all nodes"
    if window.scope == MaintenanceWindow.Scope.DOMAIN:
        return f"domain {window.domain}"
    names = sorted(node.name for node in window.nodes.all())
    more = f" and {len(names) - SHOWN_NODES} more" if len(names) > SHOWN_NODES else ""
    return ", ".join(names[:SHOWN_NODES]) + more or "nodes that are gone"


def row(window: MaintenanceWindow, now: datetime) -> Row:
    """Return a window as it is shown."""
    return Row(window=window, state=maintenance.state_of(window, now), where=where(window))


def listed(now: datetime) -> list[Row]:
    """Return the windows that are not over, the next first, and then the last ones that are."""
    rows = MaintenanceWindow.objects.prefetch_related("nodes")
    ahead = rows.filter(ends_at__gt=now).order_by("starts_at", "id")
    over = rows.filter(ends_at__lte=now).order_by("-ends_at", "-id")[:LISTED]
    return [row(window, now) for window in (*ahead, *over)]


def month_of(text: str, now: datetime) -> date:
    """Return the first day of the month that is asked for as 2026-11; of this month for anything else."""
    try:
        asked = datetime.strptime(text, "%Y-%m").replace(tzinfo=UTC).date()
    except ValueError:
        asked = now.date()
    return asked.replace(day=1) if FIRST_YEAR <= asked.year <= LAST_YEAR else now.date().replace(day=1)


def month(first: date, now: datetime) -> Month:
    """Return a month's calendar."""
    weeks = calendar.Calendar().monthdatescalendar(first.year, first.month)
    start = datetime.combine(weeks[0][0], datetime.min.time(), UTC)
    end = datetime.combine(weeks[-1][-1], datetime.min.time(), UTC) + timedelta(days=1)
    rows = [row(window, now) for window in maintenance.windows(start, end)]
    return Month(
        first=first,
        weeks=tuple(tuple(_day(day, first, rows, now) for day in week) for week in weeks),
        before=(first - timedelta(days=1)).replace(day=1),
        after=(first + timedelta(days=32)).replace(day=1),
    )


def _day(day: date, first: date, rows: Sequence[Row], now: datetime) -> Day:
    start = datetime.combine(day, datetime.min.time(), UTC)
    end = start + timedelta(days=1)
    there = tuple(each for each in rows if each.window.starts_at < end and each.window.ends_at > start)
    return Day(day=day, inside=day.month == first.month, today=day == now.date(), rows=there)


def node_names() -> list[str]:
    """Return the names of nodes that a form offers."""
    return list(Node.objects.order_by("name").values_list("name", flat=True)[:1000])
