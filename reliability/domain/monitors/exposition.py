"""What are the samples of a Prometheus text exposition? Strict, with the number of the first line that is wrong.

The formats are those of prometheus.io/docs/instrumenting/exposition_formats and OpenMetrics, as far as exporters write
them: comments, HELP texts, samples with labels, a timestamp or exemplar behind the value. Time is linear in the
text. A reader of our own: the maintained one (prometheus-client) names no line and keeps all of the text as families.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from reliability.domain.fields import clean_text
from reliability.errors import InvalidInput

LONGEST_LINE = 16_384
MOST_LABELS = 64
_SAMPLE = re.compile(
    r"(?P<name>[a-zA-Z_:][a-zA-Z0-9_:]*)[ \t]*"
    r'(?:\{(?P<labels>(?:[^"{}]|"(?:[^"\\]|\\.)*+")*+)\})?[ \t]*'
    r"(?<=[ \t}])(?P<value>[^\s{}]+)(?:[ \t]+(?P<at>[-+0-9.eE]+))?[ \t]*(?:#[^\n]*)?"
)
_LABEL = re.compile(r'[ \t]*([a-zA-Z_][a-zA-Z0-9_]*)[ \t]*=[ \t]*"((?:[^"\\]|\\.)*)"[ \t]*(,|$)')
_ESCAPED = re.compile(r"\\(.)")
_HELP = re.compile(r"#[ \t]+HELP[ \t]+([a-zA-Z_:][a-zA-Z0-9_:]*)(?:[ \t]+(.*))?")
_MEANT = {"n": "\n"}
RIGHT = 'As in: DCGM_FI_DEV_XID_ERRORS{gpu="0",Hostname="n1"} 79'


@dataclass(frozen=True, slots=True)
class Sample:
    """One sample; `help` is the text of its metric's HELP line before it, empty without one."""

    line: int
    name: str
    labels: Mapping[str, str]
    value: float
    help: str


def samples(text: str) -> Iterator[Sample]:
    """Yield the samples in order. Raises InvalidInput whose field is 'line N' (from 1)."""
    helps: dict[str, str] = {}
    for number, line in enumerate(text.split("\n"), start=1):
        stripped = line.strip()
        if not stripped:
            continue
        if len(line) > LONGEST_LINE:
            raise _wrong(number, f"has {len(line)} characters", f"At most {LONGEST_LINE} are read.")
        if stripped.startswith("#"):
            told = _HELP.match(stripped)
            if told is not None:
                helps[told[1]] = told[2] or ""
            continue
        yield _sample(number, stripped, helps)


def _sample(number: int, line: str, helps: Mapping[str, str]) -> Sample:
    found = _SAMPLE.fullmatch(line)
    if found is None:
        raise _wrong(number, "is no sample", RIGHT)
    return Sample(
        line=number,
        name=found["name"],
        labels=_labels(number, found["labels"] or ""),
        value=_value(number, found["value"]),
        help=helps.get(found["name"], ""),
    )


def _labels(number: int, text: str) -> Mapping[str, str]:
    labels: dict[str, str] = {}
    at = 0
    while at < len(text.rstrip()):
        found = _LABEL.match(text, at)
        if found is None or found[1] in labels:
            raise _wrong(number, f"has a label that is none, or twice, behind {text[:at][-40:]!r}", RIGHT)
        if len(labels) >= MOST_LABELS:
            raise _wrong(number, "has too many labels", f"At most {MOST_LABELS} are read.")
        labels[found[1]] = clean_text(_ESCAPED.sub(lambda each: _MEANT.get(each[1], each[1]), found[2]))
        at = found.end()
    return labels


def _value(number: int, text: str) -> float:
    try:
        if "_" in text:
            raise ValueError
        return float(text)
    except ValueError as error:
        raise _wrong(number, f"has the value {text[:40]!r}, which is no number", RIGHT) from error


def _wrong(number: int, what: str, hint: str) -> InvalidInput:
    return InvalidInput(f"line {number}", what, hint=hint)
