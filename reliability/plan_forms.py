"""What is asked of the planner: one text for each value, where each value comes from, and what is wrong with it."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from django import forms

from reliability.domain.planner import reading
from reliability.domain.planner.durations import seconds
from reliability.domain.planner.request import Request
from reliability.domain.planner.steps import MOST_STEPS
from reliability.domain.planner.values import WEEK_S
from reliability.errors import InvalidInput
from reliability.forms import StyledForm
from reliability.models import Job
from reliability.plan_quantities import QUANTITIES, RATE, RATE_UNITS, Quantity, in_words, rate_in_words
from reliability.selectors.plan_inputs import Known, is_assumed

MEASURED, ENTERED, DEFAULT = "measured", "entered", "default"
AT_FIELD = dict.fromkeys((*RATE_UNITS, "faults", "exposure", "prior", "observed_nodes"), RATE)
"""Names of the reader that are one field of the form."""
CONFIRMED = ("save_stall", "recovery", "downtime", "mtbf")
"""What a plan by itself must not take from a default unless a person said so."""
PER_NODE = "per_1000_node_days"
NEEDS_NODES = "Per 1000 node-days takes the number of nodes: give it below."
LONGEST = 64
LONGEST_TYPED = 100
IN_STEPS = re.compile(r"(\d{1,40}) ?steps?", re.ASCII)
PERIOD = "period"
TYPED = "mtbf_typed"
"""Carries a failure rate as it was typed while it is shown in another unit: `unit:text`."""


@dataclass(frozen=True, slots=True)
class Chosen:
    """One value of the form: the text that is shown, and where it comes from."""

    quantity: Quantity
    text: str
    source: str
    known: Known
    measured: str
    """What is measured, in words; '' for nothing yet."""
    counted: bool = True
    """Whether what is measured rests on something that was seen, and not on what is typical of others."""

    @property
    def assumed(self) -> bool:
        """Whether the value is nobody's: neither entered nor seen."""
        return self.source == DEFAULT or (self.source == MEASURED and not self.counted)

    @property
    def _sentence(self) -> tuple[str, str]:
        if self.source == ENTERED:
            word = "measured" if self.counted else "assumed"
            return (f"entered by you; {word} is {self.measured}" if self.measured else "entered by you"), ""
        return (self.known.brief, self.known.told) if self.known.brief else (self.known.told, "")

    @property
    def told(self) -> str:
        """Where the value comes from, in few words."""
        return self._sentence[0]

    @property
    def told_more(self) -> str:
        """The whole sentence, where it is a long one."""
        return self._sentence[1]

    @property
    def options(self) -> list[tuple[str, str, bool]]:
        """The sources to choose from: name, words, and whether there is such a value."""
        there = bool(self.measured)
        word = "measured" if self.counted else "assumed"
        return [
            (MEASURED, word if there else "measured: nothing yet", there),
            (ENTERED, "entered", True),
            (DEFAULT, "default", True),
        ]


def told_at_field(error: InvalidInput) -> str:
    """Return the sentence that stands at the field of an error."""
    told = reading.told(error)
    return told[:1].upper() + told[1:]


class PlanForm(StyledForm):
    """The values of one question. What was not entered comes from what is known of the job.

    A value counts as entered when its source says so, and also when its text differs from the one that was shown:
    what a person types wins without a script too. Errors of the reader stand at the field that they are about.
    """

    job = forms.ModelChoiceField(
        Job.objects.order_by("name"), label="Job", to_field_name="name", required=False, empty_label="no job: what if"
    )

    def __init__(
        self,
        asked: Mapping[str, str],
        *,
        job: Job | None,
        measured: Mapping[str, Known],
        defaults: Mapping[str, Known],
    ) -> None:
        self._asked, self._measured, self._defaults = asked, measured, defaults
        self._typed = ("", "")
        self._unit_told = ""
        self.unit = self._wanted_unit()
        self.own_period = asked.get(PERIOD, "")[:LONGEST].strip()
        self.question: Request | None = None
        self.chosen = {quantity.name: self._choose(quantity) for quantity in QUANTITIES}
        texts = {name: chosen.text for name, chosen in self.chosen.items()}
        super().__init__({**texts, "job": job.name if job else "", "mtbf_unit": self.unit, PERIOD: self.own_period})
        for quantity in QUANTITIES:
            self.fields[quantity.name] = forms.CharField(label=quantity.label, required=False, strip=True)
        self.fields[PERIOD] = forms.CharField(label="A period of your own", required=False, strip=True)
        self.fields["mtbf_unit"] = forms.ChoiceField(choices=list(RATE_UNITS.items()), required=False)

    def _choose(self, quantity: Quantity) -> Chosen:
        name = quantity.name
        text = self._asked.get(name, "")[:LONGEST].strip()
        source = self._source(name, text)
        measured = self._measured.get(name)
        known = measured if measured is not None and source != DEFAULT else self._defaults[name]
        if name == RATE:
            text = self._rate(text) if source == ENTERED else self._known_rate(known)
        elif source != ENTERED:
            text = in_words(quantity, known.value)
        words = in_words(quantity, measured.value, self.unit, self._nodes()) if measured else ""
        return Chosen(quantity, text, source, known, words, measured is None or not is_assumed(measured))

    def _source(self, name: str, text: str) -> str:
        asked, shown = self._asked.get(f"{name}_from", ""), self._asked.get(f"{name}_shown")
        typed = bool(text) if not asked else shown is not None and shown.strip() != text
        if asked == ENTERED or typed:
            return ENTERED
        return DEFAULT if asked == DEFAULT or name not in self._measured else MEASURED

    def _wanted_unit(self) -> str:
        unit = self._asked.get("mtbf_unit", RATE)
        return unit if unit in RATE_UNITS else RATE

    def _known_rate(self, known: Known) -> str:
        """Return a known rate in the unit; in time between faults where that unit needs nodes that nobody knows."""
        text = rate_in_words(known.value, self.unit, self._nodes())
        if text:
            return text
        self.unit, self._unit_told = RATE, NEEDS_NODES
        return rate_in_words(known.value, RATE, None)

    def _rate(self, text: str) -> str:
        """Return an entered rate in the chosen unit.

        A text belongs to the unit that it was typed in until it could be converted; back in that unit it is the same
        text again.
        """
        before = self._asked.get("mtbf_was", self.unit)
        before = before if before in RATE_UNITS else self.unit
        untouched = self._asked.get("mtbf_shown", text).strip() == text
        unit, _, typed = self._asked.get(TYPED, "")[:LONGEST_TYPED].partition(":")
        if unit not in RATE_UNITS or self._in(before, unit, typed) != text:
            unit, typed = (before, text) if untouched else (self.unit, text)
        shown = typed if unit == self.unit else self._in(self.unit, unit, typed)
        if not shown and typed:
            self.unit, self._unit_told = before, self._why_not_converted(typed)
            return text
        self._typed = (unit, typed) if unit != self.unit else ("", "")
        return shown

    def _why_not_converted(self, typed: str) -> str:
        return NEEDS_NODES if self._nodes() is None else f"'{typed}' cannot be written in that unit: mend it first."

    def _in(self, unit: str, typed_in: str, typed: str) -> str:
        """Return a typed rate in another unit; '' where it cannot be."""
        if unit == typed_in:
            return typed
        known: dict[str, object] = {"save_stall": 0, "recovery": 0, "target": 0.5, "nodes": self._nodes()}
        found, _ = reading.read({name: value for name, value in known.items() if value is not None} | {typed_in: typed})
        if found is None:
            return ""
        per_s = found.faults_per_s
        return rate_in_words(1.0 / per_s if per_s else None, unit, self._nodes())

    def _nodes(self) -> float | None:
        """Return the number of nodes that a rate per node is about."""
        entered = self._asked.get("nodes", "").strip()
        if entered.isascii() and entered.isdigit() and 0 < len(entered) < 9:
            return float(entered)
        return (self._measured.get("nodes") or self._defaults["nodes"]).value

    def clean(self) -> dict[str, Any]:
        """Read the values; every error stands at its field."""
        super().clean()
        self.question, errors = reading.read(self.values())
        for error in errors:
            self.blame(error)
        if self._unit_told:
            self.add_error(RATE, self._unit_told)
        if self.own_period:
            self._check_own_period()
        return self.cleaned_data

    def _check_own_period(self) -> None:
        try:
            if self.own_steps is None:
                seconds(self.own_period, PERIOD, hint="Write steps or a time, such as 500 steps or 10 min.")
            elif not 1 <= self.own_steps <= MOST_STEPS:
                self.add_error(PERIOD, "Give at least 1 step and at most 10 000 000.")
        except InvalidInput as error:
            self.blame(error)

    @property
    def own_steps(self) -> int | None:
        """The number of steps of the period that a person gave; None for a time, and for none."""
        found = IN_STEPS.fullmatch(self.own_period)
        return int(found[1]) if found else None

    @property
    def typed(self) -> str:
        """The failure rate as it was typed, where it is shown in another unit."""
        return ":".join(self._typed) if self._typed[0] else ""

    def best_known(self) -> dict[str, Known]:
        """Return what is known of the job, whatever was chosen here."""
        return {**self._defaults, **self._measured}

    def values(self) -> dict[str, object]:
        """Return what the reader gets: texts as they were entered, numbers as they are known."""
        values: dict[str, object] = {}
        for name, chosen in self.chosen.items():
            known = chosen.known
            if chosen.source == ENTERED:
                unit, text = self._typed if name == RATE and self._typed[0] else (self.unit, chosen.text)
                values[unit if name == RATE else name] = text or None
            elif name != RATE or known.faults is None:
                values[name] = known.value
            else:
                values |= {"faults": known.faults, "exposure": known.exposure_s, "prior": known.prior}
                values["observed_nodes"] = (self._measured.get("nodes") or self._defaults["nodes"]).value
        return {name: value for name, value in values.items() if value is not None}

    def blame(self, error: InvalidInput) -> None:
        """Put an error of the reader or of the planner at its field."""
        name = AT_FIELD.get(error.field, error.field)
        self.add_error(name if name in self.fields else None, told_at_field(error))
        if name == "nodes" and self.unit == PER_NODE and "missing" in error.message:
            self.add_error(RATE, NEEDS_NODES)

    def address(self) -> dict[str, str]:
        """Return the shortest query that asks the same: what was entered, and sources other than the best known."""
        asked = {"job": str(self["job"].value())}
        for name, chosen in self.chosen.items():
            if chosen.source == ENTERED:
                asked |= {name: chosen.text, f"{name}_from": ENTERED}
            elif chosen.source == DEFAULT and chosen.measured:
                asked[f"{name}_from"] = DEFAULT
        more = {"mtbf_unit": self.unit if self.unit != RATE else "", TYPED: self.typed, PERIOD: self.own_period}
        return asked | {name: text for name, text in more.items() if text}

    def known(self) -> dict[str, Known]:
        """Return what is known, by the sources that were chosen."""
        return {name: chosen.known for name, chosen in self.chosen.items()}

    def entered(self) -> dict[str, float | None]:
        """Return what was entered, in seconds and plain numbers."""
        assert self.question is not None
        found = {
            name: getattr(self.question, chosen.quantity.attribute)
            for name, chosen in self.chosen.items()
            if chosen.source == ENTERED
        }
        if "planned_stops_per_week" in found:
            found["planned_stops_per_week"] *= WEEK_S
        return found
