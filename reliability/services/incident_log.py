"""What is written into the timeline of an incident, in the transaction that made it so."""

from reliability.models import Incident, IncidentEvent
from reliability.services import clock, dispatch

AUTOMATION = "stepkeeper"
Kind = IncidentEvent.Kind


def write(incident: Incident, kind: str, sentence: str, *, actor: str = AUTOMATION) -> IncidentEvent:
    """Add a line; nothing of a timeline is ever changed."""
    made = IncidentEvent.objects.create(incident=incident, at=clock.now(), kind=kind, sentence=sentence, actor=actor)
    dispatch.changed("overview", f"incident:{incident.pk}")
    return made


def write_once(incident: Incident, kind: str, sentence: str) -> None:
    """Add a line unless it stands there already."""
    if not IncidentEvent.objects.filter(incident=incident, kind=kind, sentence=sentence).exists():
        write(incident, kind, sentence)
