"""Which monitor sent this, and what does it say?"""

from reliability.domain.faults import Matcher
from reliability.domain.monitors import exposition, gpud, metrics, problems
from reliability.domain.monitors.words import Said
from reliability.errors import InvalidInput

MOST_PARTS = 10_000
_FORMS = (
    "Give gpud's components ([{component, states}] or [{component, events}]), or the node problem detector's status "
    "({source, events, conditions})."
)


def read_text(text: str) -> Said:
    """Return what a Prometheus text exposition says. Raises InvalidInput whose field is 'line N'."""
    return metrics.read(exposition.samples(text))


def read_json(body: object, matcher: Matcher) -> Said:
    """Return what a monitor's JSON says, one object or a list of them. Raises InvalidInput with the path."""
    parts = body if isinstance(body, list) else [body]
    if len(parts) > MOST_PARTS:
        raise InvalidInput("body", f"has {len(parts)} items", hint=f"At most {MOST_PARTS} are possible.")
    said = Said()
    for number, part in enumerate(parts):
        path = f"body.{number}" if isinstance(body, list) else "body"
        if not isinstance(part, dict):
            raise InvalidInput(path, "is not an object", hint=_FORMS)
        if "component" in part:
            gpud.read(part, path, matcher, said)
        elif "events" in part or "conditions" in part:
            problems.read(part, path, matcher, said)
        else:
            raise InvalidInput(path, "is of no monitor known here", hint=_FORMS)
    return said
