"""What may a person change about a code, and what does the row become?

Values are those of `VALUES`; each is checked alone and names itself when it is wrong.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from enum import StrEnum
from typing import Any

from reliability.domain.faults.phrases import Phrase
from reliability.domain.faults.table import Table
from reliability.domain.faults.words import Action, FaultClass, FaultCode, Line, Origin, Severity, Weight
from reliability.errors import InvalidInput

OWN_SOURCE = "own"
LONGEST_SENTENCE = 300
LONGEST_DEBOUNCE_S = 3600.0
_CODE = re.compile(r"[a-z][a-z0-9]*(?:-[a-z0-9]+)*")
_NEEDED = ("fault_class", "action", "severity", "meaning", "advice")
_REPORTED_BY_US = ("stepkeeper", "exit-code")


def _word(words: type[StrEnum]) -> Callable[[str, Any], str]:
    def read(name: str, value: Any) -> str:
        known = [str(each) for each in words]
        if value not in known:
            raise InvalidInput(name, f"{value!r} is none of {', '.join(known)}", hint="Choose one of them.")
        return str(value)

    return read


def _sentence(name: str, value: Any) -> str:
    text = value.strip() if isinstance(value, str) else ""
    if not text.endswith(".") or not 2 <= len(text) <= LONGEST_SENTENCE or not text.isprintable():
        raise InvalidInput(
            name, "is no sentence", hint=f"At most {LONGEST_SENTENCE} characters on one line, with a full stop."
        )
    return text


def _debounce_s(name: str, value: Any) -> float:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not 0 <= value <= LONGEST_DEBOUNCE_S:
        raise InvalidInput(name, f"{value!r} is no time from 0 to {LONGEST_DEBOUNCE_S:.0f} s", hint="0 acts at once.")
    return float(value)


def _phrase(_name: str, value: Any) -> str:
    text = value.strip() if isinstance(value, str) else ""
    return Phrase(text).text if text else ""


VALUES: Mapping[str, Callable[[str, Any], Any]] = {
    "fault_class": _word(FaultClass),
    "action": _word(Action),
    "severity": _word(Severity),
    "meaning": _sentence,
    "advice": _sentence,
    "debounce_s": _debounce_s,
    "origin": _word(Origin),
    "phrase": _phrase,
}
"""What can be changed, with what reads a value. Each raises InvalidInput with the name of the value."""


def read_values(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return checked values. Raises InvalidInput for a name that is none, or a value that is wrong."""
    unknown = sorted(set(given) - set(VALUES))
    if unknown:
        raise InvalidInput(unknown[0], "is nothing that can be changed", hint=f"There are: {', '.join(VALUES)}.")
    return {name: VALUES[name](name, value) for name, value in given.items()}


def read_code(code: str) -> str:
    """Return a code's name. Raises InvalidInput (field `code`) when it cannot be one."""
    if len(code) > 64 or not _CODE.fullmatch(code):
        hint = "Small letters, digits and single hyphens, at most 64, a letter first: fan-failed."
        raise InvalidInput("code", f"{code!r} cannot be a code", hint=hint)
    return code


def may_be_switched_off(row: FaultCode) -> None:
    """Raise InvalidInput (field `code`) for a code that Stepkeeper itself reports: it needs a meaning."""
    if row.source in _REPORTED_BY_US:
        hint = "Change its action to observe instead."
        raise InvalidInput("code", f"{row.code} is reported by Stepkeeper itself and stays known", hint=hint)


def changed_row(shipped: Table, code: str, values: Mapping[str, Any]) -> FaultCode:
    """Return the row of a code with a person's values. `values` may hold `enabled` besides those of `VALUES`.

    Raises InvalidInput when an added code lacks a value, or a code that never decides alone is given an action.
    """
    origin = Origin(values.get("origin") or (shipped[code].origin if code in shipped else Origin.OUTPUT))
    phrase = values.get("phrase", "")
    lines = (Line(pattern=f"phrase:{phrase}", literals=(Phrase(phrase).literal,)),) if phrase else ()
    known = shipped.get(code)
    if known is None:
        missing = [name for name in _NEEDED if name not in values]
        if missing:
            raise InvalidInput(missing[0], "is needed for a code that is new", hint=f"Needed: {', '.join(_NEEDED)}.")
    row = known or FaultCode(
        code=code,
        source=OWN_SOURCE,
        meaning=values["meaning"],
        fault_class=FaultClass(values["fault_class"]),
        action=Action(values["action"]),
        severity=Severity(values["severity"]),
        advice=values["advice"],
    )
    action = Action(values.get("action", row.action))
    if row.weight in (Weight.FOLLOW_UP, Weight.UNEXPLAINED) and action is not Action.OBSERVE:
        hint = "What it is a consequence of decides; leave it at observe."
        raise InvalidInput("action", f"{code} never decides alone", hint=hint)
    return replace(
        row,
        action=action,
        fault_class=FaultClass(values.get("fault_class", row.fault_class)),
        severity=Severity(values.get("severity", row.severity)),
        meaning=values.get("meaning", row.meaning),
        advice=values.get("advice", row.advice),
        debounce_s=float(values.get("debounce_s", row.debounce_s)),
        origin=origin,
        lines=(*row.lines, *lines),
        enabled=bool(values.get("enabled", True)),
    )
