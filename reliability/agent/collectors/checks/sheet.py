"""What does a look come to: what stands, what happened since the look before, what could not be told?

A condition is told once when it begins, and once more, by its code with `-over`, when it is over. What happens is told
each time.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from reliability.agent.collectors.checking import Found, Outcome
from reliability.agent.collectors.checks.past import Past, Told
from reliability.agent.collectors.checks.tree import MOST_NUMBER, clean

OVER = "-over"
"""Ends the code of a condition that is over."""
MOST_REASON = 400
MOST_EVIDENCE = 1000
MOST_COUNT = 2**31 - 1
MOST_TOLD = 64
"""So many findings of one look are told; conditions that are left are told by the next look."""
MOST_MEASURED = 64
MOST_TEXT = 200
MOST_JSON = 3000
"""Characters of JSON of what one look measured: a heartbeat with more than 4000 would be refused."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trouble:
    """Something that is not as it should be: a code of the fault table, at one place of the node.

    `fields` tell the place as lines of logs do (device, module, interface). `silent`: it counts for the check and is
    not told, as what was told when it happened. `ends`: it is told when it is over.
    """

    code: str
    place: str
    evidence: str
    count: int = 1
    silent: bool = False
    ends: bool = True
    fields: Mapping[str, str | int] = field(default_factory=dict)

    def found(self) -> Found:
        """Return the finding that tells of it."""
        fields = {key: clean(each)[:MOST_TEXT] if isinstance(each, str) else each for key, each in self.fields.items()}
        count = max(1, min(self.count, MOST_COUNT))
        return Found(code=self.code, evidence=clean(self.evidence)[:MOST_EVIDENCE], count=count, fields=fields)


class Sheet:
    """Takes down what a look sees, and makes an outcome of it."""

    def __init__(self, past: Past) -> None:
        self._past = past
        self._standing: dict[str, Trouble] = {}
        self._events: list[Trouble] = []
        self._unknown: list[str] = []
        self.measured: dict[str, Any] = {}

    def stands(self, trouble: Trouble) -> None:
        """Something is not well now."""
        self._standing.setdefault(f"{trouble.code} {trouble.place}", trouble)

    def happened(self, trouble: Trouble) -> None:
        """Something happened since the look before."""
        self._events.append(trouble)

    def unknown(self, reason: str) -> None:
        """Something cannot be told: without a trouble the check comes to null, and nothing counts as over."""
        self._unknown.append(reason)

    def outcome(self, well: str) -> Outcome:
        """Return what the look comes to, with what is to be kept; `well` is the reason when nothing is wrong."""
        troubles = list(self._standing.values())
        ok, reasons = (None, self._unknown) if self._unknown else (True, [well])
        if troubles:
            ok, reasons = False, [*(each.evidence for each in troubles), *self._unknown]
        codes = list(dict.fromkeys(each.code for each in troubles))
        findings = (*self._begun(), *self._ended())
        return Outcome(
            ok=ok,
            reason=_joined(reasons),
            measured=fitting({**({"codes": codes} if codes else {}), **bounded(self.measured)}),
            findings=findings,
            state=self._past.kept(),
        )

    def _begun(self) -> list[Found]:
        """Return what is told of what happened and of what stands and did not before. What is silent is noted as ''."""
        before = self._past.told()
        told = [each.found() for each in self._events[:MOST_TOLD]]
        for key, each in self._standing.items():
            if key not in before and not each.silent:
                if len(told) >= MOST_TOLD:
                    continue
                told.append(each.found())
            self._past.tell(
                key, before.get(key, Told("" if each.silent or not each.ends else each.code, each.place, each.fields))
            )
        return told

    def _ended(self) -> list[Found]:
        """Return what is told of conditions that are over. While something cannot be told, none is."""
        over = []
        for key, told in self._past.told().items():
            if key in self._standing:
                continue
            if self._unknown:
                self._past.tell(key, told)
            elif told.code:
                sentence = f"Over: {told.code} at {told.place}."
                end = Trouble(code=told.code + OVER, place=told.place, evidence=sentence, fields=told.fields)
                over.append(end.found())
        return over


def _joined(reasons: list[str]) -> str:
    """Return as many sentences as fit, and how many more there are."""
    text, shown = "", 0
    for each in reasons:
        longer = f"{text} {clean(each)}".strip()
        if text and len(longer) > MOST_REASON - 20:
            break
        text, shown = longer, shown + 1
    more = f" And {len(reasons) - shown} more." if shown < len(reasons) else ""
    return text[: MOST_REASON - len(more)] + more


def fitting(measured: dict[str, Any]) -> dict[str, Any]:
    """Return as much of what was measured as a heartbeat takes; what is largest is left out first, and named."""
    left_out: list[str] = []
    while len(json.dumps({**measured, "left_out": left_out})) > MOST_JSON:
        largest = max(measured, key=lambda name: len(json.dumps(measured[name])))
        measured = {name: value for name, value in measured.items() if name != largest}
        left_out = [*left_out, largest][:10]
    return {**measured, **({"left_out": left_out} if left_out else {})}


def bounded(value: Any) -> Any:
    """Return a measured value as it can be sent: text and lists of bounded length, numbers within 64 bits."""
    if isinstance(value, dict):
        return {clean(str(key))[:80]: bounded(each) for key, each in list(value.items())[:MOST_MEASURED]}
    if isinstance(value, list | tuple):
        return [bounded(each) for each in value[:MOST_MEASURED]]
    if isinstance(value, str):
        return clean(value)[:MOST_TEXT]
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, int):
        return value if abs(value) <= MOST_NUMBER else None
    return round(value, 6) if isinstance(value, float) and abs(value) < 1e15 else None
