"""Who keeps a node from new work, and who may let it go?

Several holds stand at once, each with its owner. Automation lifts only its own; people lift any with a word of why. A
hold may end by itself at an instant that its owner gave.
"""

from datetime import datetime

from django.db import transaction

from reliability.errors import DomainError, InvalidInput
from reliability.models import Hold, Node
from reliability.selectors import core
from reliability.services import clock, dispatch, node_events, node_health
from reliability.services.node_events import AUTOMATION, Kind

EXPIRY = "expiry"
LONGEST = 500


def hold(node: Node, *, owner: str, reason: str, until: datetime | None = None) -> Hold:
    """Keep a node from new work until the hold is released; the same owner and reason hold once.

    Raises InvalidInput when `until` is not in the future.
    """
    now = clock.now()
    if until is not None and until <= now:
        raise InvalidInput("until", "is over already", hint="Give an instant in the future, or leave it empty.")
    with transaction.atomic():
        Node.objects.select_for_update(no_key=True).get(pk=node.pk)  # two who ask at once are one hold
        standing = core.active_holds().filter(node=node, owner=owner, reason=reason).first()
        if standing is not None:
            return standing
        made = Hold.objects.create(node=node, owner=owner, reason=reason, created_at=now, expires_at=until)
        ends = f" until {until:%Y-%m-%d %H:%M} UTC" if until else ""
        node_events.record(node, Kind.HOLD, f"Held{ends}: {reason}", actor=owner, at=now, hold=made.pk)
        dispatch.changed("overview", f"node:{node.pk}")
    return made


def release_hold(hold: Hold, *, by: str, note: str = "") -> bool:
    """Lift a hold and, when a person lifts the last, the bad health that came with it. Returns whether it stood.

    Raises DomainError when automation would lift another's, InvalidInput when a person lifts another person's
    without a note.
    """
    if by == AUTOMATION and hold.owner != AUTOMATION:
        raise DomainError(f"This hold is {hold.owner}'s: automation lifts only its own.")
    note = note.strip()
    if not note and hold.owner not in (by, AUTOMATION):
        raise InvalidInput("note", "is needed", hint=f"{hold.owner} holds this node: say why you release it.")
    if len(note) > LONGEST:
        raise InvalidInput("note", f"has {len(note)} letters", hint=f"At most {LONGEST} are possible.")
    return _lift(hold, by=by, note=note)


def _lift(hold: Hold, *, by: str, note: str) -> bool:
    with transaction.atomic():
        node = Node.objects.select_for_update(no_key=True).get(pk=hold.node_id)
        values = {"released_at": clock.now(), "released_by": by, "release_note": note}
        if not Hold.objects.filter(pk=hold.pk, released_at=None).update(**values):
            return False
        why = f" {note}" if note else ""
        node_events.record(node, Kind.HOLD, f"Hold released: {hold.reason}.{why}", actor=by, hold=hold.pk)
        if by != EXPIRY and not core.active_holds().filter(node=node).exists():
            _forgive(node, by=by, note=note)
        dispatch.changed("overview", f"node:{node.pk}")
    return True


def _forgive(node: Node, *, by: str, note: str) -> None:
    if by != AUTOMATION:
        node_health.forgive(node, by=by, note=note or "The last hold was released.")


def expire(now: datetime) -> int:
    """End the holds whose time is over; returns how many."""
    over = core.active_holds().filter(expires_at__lte=now).select_related("node")
    return sum(_lift(each, by=EXPIRY, note="Its time is over.") for each in over)
