"""What does the node problem detector say? Its Status (pkg/types): temporary problems as events, others as conditions.

Conditions of a Kubernetes node have the same form, with `lastTransitionTime`. `Ready` and its like mean the opposite of
a problem and are left out.
"""

from collections.abc import Mapping
from typing import Any

from reliability.domain import fields as f
from reliability.domain.faults import Matcher
from reliability.domain.faults.words import Value
from reliability.domain.monitors.clock_times import instant
from reliability.domain.monitors.naming import DETECTOR_REASONS, slug, told_by
from reliability.domain.monitors.words import NPD, Condition, Event, Said

MOST = 10_000
_text = f.nullable(f.cut_text(most=4000), "")
_name = f.nullable(f.text(most=300), "")
_EVENT = f.record(
    {
        "severity": (_name, False),
        "timestamp": (instant, True),
        "reason": (f.text(most=300), True),
        "message": (_text, False),
    }
)
_CONDITION = f.record(
    {
        "type": (f.text(most=200, least=1), True),
        "status": (f.one_of("True", "False", "Unknown"), True),
        "reason": (_name, False),
        "message": (_text, False),
    }
)
_STATUS = f.record(
    {
        "source": (_name, False),
        "node": (_name, False),
        "events": (f.nullable(f.list_of(_EVENT, most=MOST), []), False),
        "conditions": (f.nullable(f.list_of(_CONDITION, most=MOST), []), False),
    }
)
GOOD_WHEN_TRUE = frozenset({"Ready"})


def read(value: object, path: str, matcher: Matcher, said: Said) -> None:
    """Take in one Status. Raises InvalidInput with the path of what is wrong."""
    status = _STATUS(value, path)
    for number, event in enumerate(status["events"]):
        _take_event(status, event, f"{path}.events.{number}", matcher, said)
    for number, condition in enumerate(status["conditions"]):
        _take_condition(status, condition, f"{path}.conditions.{number}", matcher, said)


def _code(reasons: tuple[str, ...], message: str, matcher: Matcher) -> tuple[str, dict[str, Value]]:
    known = next((DETECTOR_REASONS[reason] for reason in reasons if reason in DETECTOR_REASONS), None)
    return told_by(message, matcher) or (known or slug("npd", reasons[0] or reasons[-1]), {})


def _take_event(status: Mapping[str, Any], event: Mapping[str, Any], where: str, matcher: Matcher, said: Said) -> None:
    if event["severity"] == "info":
        said.ignored["event of severity info"] += 1
        return
    code, fields = _code((event["reason"],), event["message"], matcher)
    said.items.append(
        Event(
            where=where,
            source=NPD,
            node=status["node"],
            name=f"{status['source']}/{event['reason']}/{event['message']}",
            at=event["timestamp"],
            code=code,
            evidence=f"{status['source'] or NPD}: {event['reason']}. {event['message']}".strip()[:2000],
            fields=fields,
        )
    )


def _take_condition(
    status: Mapping[str, Any], condition: Mapping[str, Any], where: str, matcher: Matcher, said: Said
) -> None:
    if condition["status"] == "Unknown" or condition["type"] in GOOD_WHEN_TRUE:
        said.ignored["condition that is no problem's"] += 1
        return
    code, fields = _code((condition["reason"], condition["type"]), condition["message"], matcher)
    said.items.append(
        Condition(
            where=where,
            source=NPD,
            node=status["node"],
            name=condition["type"],
            stands=condition["status"] == "True",
            code=code,
            evidence=f"{condition['type']}: {condition['reason']}. {condition['message']}".strip()[:2000],
            fields=fields,
        )
    )
