"""What does gpud say? The answers of its /v1/states, /v1/events and /v1/info, as types of its api/v1 give them.

An event tells what happened once; events of type Info are no news. A state stands until the component is healthy. An
Xid is counted by its event alone, so that the state that follows it is not a second one.
"""

from collections.abc import Mapping
from typing import Any

from reliability.domain import fields as f
from reliability.domain.faults import Matcher
from reliability.domain.faults.words import Value
from reliability.domain.monitors.clock_times import instant
from reliability.domain.monitors.naming import pci, slug, told_by, xid_number
from reliability.domain.monitors.words import GPUD, Condition, Event, Said

MOST = 10_000
_text = f.nullable(f.cut_text(most=4000), "")
_name = f.nullable(f.text(most=300), "")
_extra = f.nullable(f.plain_values, {})

_STATE = f.record({"name": (_name, False), "health": (_name, False), "reason": (_text, False), "error": (_text, False)})
_EVENT = f.record(
    {
        "name": (_name, False),
        "type": (_name, False),
        "message": (_text, False),
        "time": (instant, True),
        "extra_info": (_extra, False),
    }
)
_LISTS = {"states": (f.nullable(f.list_of(_STATE, most=MOST), []), False)} | {
    "events": (f.nullable(f.list_of(_EVENT, most=MOST), []), False)
}
_COMPONENT = f.record(
    {
        "component": (f.text(most=200, least=1), True),
        "node": (_name, False),
        "info": (f.nullable(f.record(_LISTS), {}), False),
        **_LISTS,
    }
)
HEALTHY, NO_WORD = "Healthy", ("Initializing", "")
BAD = ("Unhealthy", "Degraded")


def read(value: object, path: str, matcher: Matcher, said: Said) -> None:
    """Take in what one component says. Raises InvalidInput with the path of what is wrong."""
    component = _COMPONENT(value, path)
    info = component["info"]
    for number, state in enumerate([*component["states"], *info.get("states", [])]):
        _take_state(component, state, f"{path}.states.{number}", matcher, said)
    for number, event in enumerate([*component["events"], *info.get("events", [])]):
        _take_event(component, event, f"{path}.events.{number}", matcher, said)


def _take_state(
    component: Mapping[str, Any], state: Mapping[str, Any], where: str, matcher: Matcher, said: Said
) -> None:
    if state["health"] not in (HEALTHY, *BAD):
        said.ignored["state without health" if state["health"] in NO_WORD else "health not known"] += 1
        return
    name, words = component["component"], " ".join(each for each in (state["reason"], state["error"]) if each)
    told = told_by(words, matcher)
    counted_by_event = told is not None and told[0].startswith(("xid-", "sxid-"))
    code, fields = (slug("gpud", name), {}) if told is None or counted_by_event else told
    said.items.append(
        Condition(
            where=where,
            source=GPUD,
            node=component["node"],
            name=f"{name}/{state['name']}"[:200],
            stands=state["health"] != HEALTHY,
            code=code,
            evidence=f"gpud: {name} is {state['health']}. {words}".strip()[:2000],
            fields=fields,
        )
    )


def _take_event(
    component: Mapping[str, Any], event: Mapping[str, Any], where: str, matcher: Matcher, said: Said
) -> None:
    if event["type"] == "Info":
        said.ignored["event of type Info"] += 1
        return
    name = event["name"] or component["component"]
    told = told_by(event["message"], matcher) or told_by(_xid_in(name, event["extra_info"]), matcher)
    code, fields = told or (slug("gpud", name), {})
    said.items.append(
        Event(
            where=where,
            source=GPUD,
            node=component["node"],
            name=f"{component['component']}/{name}/{event['message']}",
            at=event["time"],
            code=code,
            evidence=f"gpud: {name}. {event['message']}".strip()[:2000],
            fields={**_device(event["extra_info"]), **fields},
        )
    )


def _xid_in(name: str, extra: Mapping[str, Value]) -> str:
    """Return the words that name an Xid which stands in the event's extra values."""
    if "xid" not in name.lower():
        return ""
    kind = "SXid" if "sxid" in name.lower() else "Xid"
    data = next((extra[key] for key in ("xid", "sxid", "data") if key in extra), "")
    number = xid_number(str(data))
    return str(data) if number is None else f"{kind} {number}"


def _device(extra: Mapping[str, Value]) -> dict[str, Value]:
    told = str(extra.get("device_uuid") or extra.get("device_id") or extra.get("gpu_uuid") or "")
    return {"device": (pci(told) or told)[:100]} if told else {}
