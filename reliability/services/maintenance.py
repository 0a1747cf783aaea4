"""Planned times of nodes: plan one, end one early. Server time only; nothing planned is changed afterwards."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db import transaction

from reliability.errors import DomainError, InvalidInput
from reliability.models import MaintenanceWindow, Node
from reliability.selectors import maintenance
from reliability.services import clock, dispatch

LONGEST = timedelta(days=14)
FURTHEST = timedelta(days=366)
SLACK = timedelta(seconds=90)
"""So far back a start may lie: forms know minutes only."""
LONGEST_REASON = 300
MOST_NODES = 10_000
Scope = MaintenanceWindow.Scope


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What a person wants to plan. `starts_at` None: now. `observe`, `stay`, `quiet`: what is muted."""

    scope: str
    ends_at: datetime
    reason: str
    starts_at: datetime | None = None
    nodes: Sequence[str] = ()
    domain: str = ""
    observe: bool = True
    stay: bool = True
    quiet: bool = True


def plan(wanted: Plan, *, by: str) -> MaintenanceWindow:
    """Plan a time. Raises InvalidInput that names the field."""
    now = clock.now()
    starts_at = wanted.starts_at or now
    _check_times(starts_at, wanted.ends_at, now)
    reason = _reason(wanted.reason)
    if not (wanted.observe or wanted.stay or wanted.quiet):
        raise InvalidInput("observe", "nothing is muted", hint="Choose at least one of observe, stay and quiet.")
    chosen, domain = _scope(wanted)
    with transaction.atomic():
        window = MaintenanceWindow.objects.create(
            scope=wanted.scope,
            domain=domain,
            starts_at=max(starts_at, now) if wanted.starts_at is None else starts_at,
            ends_at=wanted.ends_at,
            planned_until=wanted.ends_at,
            reason=reason,
            observe=wanted.observe,
            stay=wanted.stay,
            quiet=wanted.quiet,
            planned_by=by,
            planned_at=now,
        )
        window.nodes.set(chosen)
        _changed(window)
    return window


def end(window: MaintenanceWindow, *, by: str) -> MaintenanceWindow:
    """End a planned time now, or call it off before it began. Raises DomainError when it is over."""
    now = clock.now()
    with transaction.atomic():
        window = MaintenanceWindow.objects.select_for_update().get(pk=window.pk)
        if window.ends_at <= now or window.ended_at is not None:
            raise DomainError(f"Maintenance {window.pk} is over.", hint="Plan another one.")
        window.ends_at = max(now, window.starts_at) if now >= window.starts_at else window.starts_at
        window.ended_by, window.ended_at = by, now
        window.save(update_fields=["ends_at", "ended_by", "ended_at"])
        _changed(window)
    return window


def overlapping(window: MaintenanceWindow) -> list[MaintenanceWindow]:
    """Return other planned times that share a node and an instant: what each of them mutes is muted."""
    rows = maintenance.windows(window.starts_at, window.ends_at).exclude(pk=window.pk)
    own = {node.pk for node in maintenance.nodes_of(window)}
    shared = [row for row in rows if row.starts_at < window.ends_at and row.ends_at > row.starts_at]
    return [row for row in shared if own & {node.pk for node in maintenance.nodes_of(row)}]


def _check_times(starts_at: datetime, ends_at: datetime, now: datetime) -> None:
    told = f"it is {now:%Y-%m-%d %H:%M} UTC on the server"
    if starts_at < now - SLACK:
        raise InvalidInput("starts_at", f"is past: {told}", hint="Leave it empty to start now.")
    if starts_at > now + FURTHEST:
        raise InvalidInput("starts_at", "is more than a year ahead", hint="Plan it when it comes nearer.")
    if ends_at <= max(starts_at, now):
        raise InvalidInput("ends_at", f"is not after the start; {told}", hint="Times are UTC.")
    if ends_at - starts_at > LONGEST:
        hint = "Faults would be muted for so long; plan less and add to it, or hold the node."
        raise InvalidInput("ends_at", f"is more than {LONGEST.days} days after the start", hint=hint)


def _reason(text: str) -> str:
    reason = text.strip()
    if not reason or len(reason) > LONGEST_REASON or not reason.isprintable():
        raise InvalidInput("reason", "is needed, in one line", hint=f"At most {LONGEST_REASON} letters.")
    return reason


def _scope(wanted: Plan) -> tuple[list[Node], str]:
    """Return the nodes named, or the domain. Raises InvalidInput for nodes or a domain that there are not."""
    if wanted.scope not in Scope.values:
        raise InvalidInput("scope", f"{wanted.scope!r} is none", hint=f"One of: {', '.join(Scope.values)}.")
    if wanted.scope == Scope.NODES:
        return _named(wanted.nodes), ""
    if wanted.scope == Scope.DOMAIN:
        known = sorted(set(Node.objects.exclude(failure_domain="").values_list("failure_domain", flat=True)))
        if wanted.domain not in known:
            some = ", ".join(known[:10]) or "none: name the domain of a node on its page"
            raise InvalidInput("domain", f"{wanted.domain[:80]!r} is the domain of no node", hint=f"Known: {some}.")
        return [], wanted.domain
    return [], ""


def _named(names: Sequence[str]) -> list[Node]:
    wanted = list(dict.fromkeys(names))[:MOST_NODES]
    if not wanted:
        raise InvalidInput("nodes", "none is named", hint="Name at least one, or plan for a domain or for all.")
    found = {node.name: node for node in Node.objects.filter(name__in=wanted)}
    missing = [name for name in wanted if name not in found]
    if missing:
        raise InvalidInput("nodes", f"{', '.join(missing[:5])} is no node here", hint="See the list of nodes.")
    return [found[name] for name in wanted]


def _changed(window: MaintenanceWindow) -> None:
    topics = (f"node:{node.pk}" for node in maintenance.nodes_of(window)[:100])
    dispatch.changed("overview", "maintenance", *topics)
