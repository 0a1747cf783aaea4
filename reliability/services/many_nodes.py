"""What is held back when so many nodes show the same at once that none may be blamed (domain/faults/radius.py)?

A failover that has begun is taken back as long as no slot has moved; marks of bad health that came of the same code are
lifted. A person may release it; from then on everything is done as if nobody had held it back.
"""

from reliability.domain.failover import Event, Kind, State
from reliability.domain.faults import Action, Judgement
from reliability.errors import DomainError
from reliability.models import Failover, Incident, Job, Node
from reliability.selectors import fault_codes
from reliability.services import clock, failovers, incident_log, node_health
from reliability.services.failovers.moves import Outcome, move


def mark(incident: Incident, judgement: Judgement) -> bool:
    """Note on an incident how far its code reached. Returns whether it is held back because of that from now on."""
    if judgement.wide:
        incident.reach = {**incident.reach, "codes": sorted({*incident.reach.get("codes", ()), *judgement.wide})}
    reach, meanwhile = judgement.reach, judgement.meanwhile
    if reach is None or meanwhile is None or incident.released_at is not None:
        _give_up_holding(incident, judgement)
        return False
    if _by_hand(incident):
        return False
    first = not incident.held_back
    incident.held_back, incident.meanwhile, incident.node = True, meanwhile, None
    seen = sorted({*incident.reach.get("nodes", ()), *reach.nodes})
    incident.reach = {
        **incident.reach,
        "code": reach.code,
        "nodes": seen,
        "total": reach.total,
        "of": reach.of,
        "window_s": reach.window_s,
    }
    meaning = fault_codes.table().lookup(reach.code).meaning
    incident.summary = f"{meaning} ({reach.code} on {len(seen)} of {reach.total} nodes of the {reach.of} at once)"
    return first


def outranked(incident: Incident, judgement: Judgement) -> bool:
    """Return whether a judgement says nothing of an incident: what a person has done by hand is not held back."""
    return judgement.meanwhile is not None and _by_hand(incident)


def _by_hand(incident: Incident) -> bool:
    return incident.pk is not None and incident.decisions.exclude(by_hand="").exists()


def _give_up_holding(incident: Incident, judgement: Judgement) -> None:
    """A fault of one node was found beside what many show: that node is replaced, the many are left where they are."""
    single = judgement.root is not None and judgement.root.code not in incident.reach.get("codes", ())
    if incident.held_back and single and judgement.action is Action.FAILOVER:
        incident.held_back, incident.meanwhile = False, ""
        told = f"Not held back any more: {incident.summary}. What many nodes show still moves none of them."
        incident_log.write(incident, incident_log.Kind.RAISED, told)


def action_of(incident: Incident) -> Action:
    """Return what is done about an incident now: less than it calls for while it is held back."""
    return Action(incident.meanwhile or Action.OBSERVE) if incident.held_back else Action(incident.action)


def note_held(incident: Incident) -> None:
    """Write down that an incident is held back, and lift the marks that its code had left on nodes."""
    done = action_of(incident).replace("_", " ")
    sentence = f"Held back: {incident.summary}. Nothing is moved and no node is marked; meanwhile: {done}."
    incident_log.write(incident, incident_log.Kind.HELD_BACK, sentence)
    for node in Node.objects.filter(findings__incident=incident).distinct():
        node_health.absolve(node, incident, note=incident.summary)


def released(incident: Incident, *, by: str, note: str) -> None:
    """Write down that a person released what was held back. Raises DomainError when nothing is."""
    if not incident.held_back or incident.closed_at is not None:
        raise DomainError(f"Nothing of incident {incident.pk} is held back.", hint="Load the page anew.")
    incident.held_back, incident.meanwhile = False, ""
    incident.released_by, incident.released_at = by, clock.now()
    incident.save(update_fields=["held_back", "meanwhile", "released_by", "released_at"])
    told = f"Released by {by}: done as if it were a fault of each node.{f' {note}' if note else ''}"
    incident_log.write(incident, incident_log.Kind.RELEASED, told, actor=by)


def take_back(standing: Failover, incident: Incident, job: Job) -> None:
    """End a failover that was begun before it was known how many nodes show the same, where that is still possible."""
    if standing.kind != Kind.FAILOVER:
        return
    if standing.moves:
        told = f"Failover {standing.pk} had moved a slot before it was known how many nodes show this: it goes on."
        incident_log.write_once(incident, incident_log.Kind.HELD_BACK, told)
        return
    waiting = standing.state == State.AWAITING_APPROVAL
    if waiting and action_of(incident) is not Action.RESTART_IN_PLACE:
        going_on = action_of(incident) is Action.OBSERVE
        move(standing, Outcome(Event.CANCELLED, {"reason": f"{incident.summary}.", "held_back": going_on}))
        Incident.objects.filter(pk=incident.pk).update(closed_at=None, close_reason="")
    else:
        if not waiting:  # its ranks are being stopped: they start again where they were
            incident.meanwhile = Action.RESTART_IN_PLACE
            incident.save(update_fields=["meanwhile"])
        failovers.supersede(standing, incident, reason=f"{incident.summary}: no node is blamed.")
    told = f"Failover {standing.pk} was taken back: no slot had moved."
    incident_log.write(incident, incident_log.Kind.HELD_BACK, told)
