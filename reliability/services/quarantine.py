"""Which hardware must not be used, whatever the name of the node it is in?

Hardware comes in by an incident that calls it bad, by a check that found wrong bits, or by a person. It comes out when
a person says that it is repaired: by the quarantine itself, or by releasing the last hold on the node it was found in.
"""

from django.db import IntegrityError, transaction

from reliability.domain.health import hardware
from reliability.errors import DomainError, InvalidInput
from reliability.models import Incident, Node, Quarantine, QuarantineOverride
from reliability.selectors import quarantined
from reliability.services import clock, dispatch, node_events
from reliability.services.node_events import AUTOMATION, Kind

LONGEST = 500


def put(node: Node, *, reason: str, by: str = AUTOMATION, incident: Incident | None = None) -> Quarantine:
    """Quarantine the hardware of a node. One that stands already is returned as it is."""
    standing = quarantined.standing().filter(node=node).first()
    if standing is not None:
        return standing
    own = hardware.own(hardware.identities(node.hardware_ids), quarantined.of_other_live_nodes(node))
    values = {
        "found_as": node.name,
        "identities": sorted(own),
        "reason": reason,
        "incident": incident,
        "created_at": clock.now(),
        "created_by": by,
    }
    try:
        with transaction.atomic():
            made = Quarantine.objects.create(node=node, **values)
    except IntegrityError:  # another one was quicker
        return quarantined.standing().get(node=node)
    what = ", ".join(map(hardware.spoken, made.identities)) or "this node alone: it has no hardware id of its own"
    node_events.record(node, Kind.QUARANTINE, f"Quarantined: {what}. {reason}", actor=by, quarantine=made.pk)
    _changed()
    return made


def put_by_hand(node: Node, *, reason: str, by: str) -> Quarantine:
    """Quarantine the hardware of a node because a person says so. Raises InvalidInput, DomainError."""
    said = _said("reason", reason)
    if quarantined.standing().filter(node=node).exists():
        raise DomainError(f"The hardware of {node.name} is quarantined already.")
    return put(node, reason=said, by=by)


def _said(field: str, text: str) -> str:
    text = text.strip()
    if not text or len(text) > LONGEST:
        hint = f"Say why in 1 to {LONGEST} letters; it is kept and shown."
        raise InvalidInput(field, "is needed" if not text else f"has {len(text)} letters", hint=hint)
    return text


def release(found: Quarantine, *, by: str, note: str) -> None:
    """Let the hardware be used again. Raises InvalidInput without a note, DomainError when it is released already."""
    if not _release(found, by=by, note=_said("note", note)):
        raise DomainError("This quarantine was released already.", hint="Its page says by whom and why.")


def _release(found: Quarantine, *, by: str, note: str) -> bool:
    with transaction.atomic():
        rows = Quarantine.objects.filter(pk=found.pk, released_at=None)
        if not rows.update(released_at=clock.now(), released_by=by, release_note=note):
            return False
        if found.node is not None:
            node_events.record(
                found.node, Kind.QUARANTINE, f"Quarantine released: {note}", actor=by, quarantine=found.pk
            )
        _changed()
    return True


def release_of(node: Node, *, by: str, note: str) -> None:
    """Release the quarantine that was found on this node, with the last hold on it."""
    for found in quarantined.standing().filter(node=node).select_related("node"):
        _release(found, by=by, note=note)


def release_put_by(incident: Incident, node: Node, *, note: str) -> None:
    """Release what an incident had quarantined of a node, where it turned out not to be the node's own fault."""
    for found in quarantined.standing().filter(node=node, incident=incident).select_related("node"):
        _release(found, by=AUTOMATION, note=note)


def override(found: Quarantine, node: Node, *, by: str, note: str) -> QuarantineOverride:
    """Let one node be used in spite of a quarantine; for all others it stands. Raises InvalidInput, DomainError."""
    said = _said("note", note)
    if found.released_at is not None:
        raise DomainError("This quarantine was released already: nothing needs an override.")
    values = {"note": said, "by": by, "at": clock.now()}
    with transaction.atomic():
        made, fresh = QuarantineOverride.objects.get_or_create(quarantine=found, node=node, defaults=values)
        if not fresh:
            raise DomainError(f"{made.by} gave {node.name} an override already.", hint="It stands until the release.")
        node_events.record(
            node,
            Kind.QUARANTINE,
            f"Used in spite of the quarantine of {found.found_as}: {said}",
            actor=by,
            quarantine=found.pk,
        )
        _changed()
    return made


def _changed() -> None:
    dispatch.changed("overview", *(f"node:{pk}" for pk in quarantined.watched()))
