"""What is asked of the planner: one text for each value, where each value comes from, and what is wrong with it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from django import forms

from reliability.domain.planner import reading
from reliability.domain.planner.durations import number, seconds
from reliability.domain.planner.request import Request
from reliability.domain.planner.values import WEEK_S
from reliability.errors import InvalidInput
from reliability.forms import StyledForm
from reliability.models import Job
from reliability.plan_quantities import BY_NAME, QUANTITIES, RATE, RATE_UNITS, Quantity, in_words, rate_in_words
from reliability.selectors.plan_inputs import Known

MEASURED, ENTERED, DEFAULT = "measured", "entered", "default"
AT_FIELD = dict.fromkeys((*RATE_UNITS, "faults", "exposure", "prior", "observed_nodes"), RATE)
"""Names of the reader that are one field of the form."""
CONFIRMED = ("save_stall", "recovery", "downtime", "mtbf")
"""What a plan by itself must not take from a default unless a person said so."""
LONGEST = 64


@dataclass(frozen=True, slots=True)
class Chosen:
    """One value of the form: the text that is shown, and where it comes from."""

    quantity: Quantity
    text: str
    source: str
    known: Known
    measured: str
    """What is measured, in words; '' for nothing yet."""

    @property
    def told(self) -> str:
        """Where the value comes from, in words."""
        if self.source != ENTERED:
            return self.known.told
        return f"entered by you; measured is {self.measured}" if self.measured else "entered by you"

    @property
    def options(self) -> list[tuple[str, str, bool]]:
        """The sources to choose from: name, words, and whether there is such a value."""
        there = bool(self.measured)
        return [
            (MEASURED, "measured" if there else "measured: nothing yet", there),
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
        unit = asked.get("mtbf_unit", RATE)
        self.unit = unit if unit in RATE_UNITS else RATE
        self.question: Request | None = None
        self.chosen = {quantity.name: self._choose(quantity) for quantity in QUANTITIES}
        texts = {name: chosen.text for name, chosen in self.chosen.items()}
        super().__init__({**texts, "job": job.name if job else "", "mtbf_unit": self.unit})
        for quantity in QUANTITIES:
            self.fields[quantity.name] = forms.CharField(label=quantity.label, required=False, strip=True)
        self.fields["mtbf_unit"] = forms.ChoiceField(choices=list(RATE_UNITS.items()), required=False)

    def _choose(self, quantity: Quantity) -> Chosen:
        name = quantity.name
        text = self._asked.get(name, "")[:LONGEST].strip()
        source = self._source(name, text)
        measured = self._measured.get(name)
        known = measured if measured is not None and source != DEFAULT else self._defaults[name]
        nodes = self._nodes()
        if source != ENTERED:
            text = in_words(quantity, known.value, self.unit, nodes)
        elif name == RATE:
            text = self._converted(text)
        words = in_words(quantity, measured.value, self.unit, nodes) if measured else ""
        return Chosen(quantity, text, source, known, words)

    def _source(self, name: str, text: str) -> str:
        asked, shown = self._asked.get(f"{name}_from", ""), self._asked.get(f"{name}_shown")
        typed = bool(text) if not asked else shown is not None and shown.strip() != text
        if asked == ENTERED or typed:
            return ENTERED
        return DEFAULT if asked == DEFAULT or name not in self._measured else MEASURED

    def _converted(self, text: str) -> str:
        """Return the rate in the chosen unit when only the unit was changed, else as it was typed."""
        before = self._asked.get("mtbf_was", self.unit)
        if before not in RATE_UNITS or before == self.unit or self._asked.get("mtbf_shown", "").strip() != text:
            return text
        known: dict[str, object] = {"save_stall": 0, "recovery": 0, "target": 0.5, "nodes": self._nodes()}
        found, _ = reading.read({**known, before: text})
        if found is None:
            return text
        per_s = found.faults_per_s
        return rate_in_words(1.0 / per_s if per_s else None, self.unit, self._nodes()) or text

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
        return self.cleaned_data

    def values(self) -> dict[str, object]:
        """Return what the reader gets: texts as they were entered, numbers as they are known."""
        values: dict[str, object] = {}
        for name, chosen in self.chosen.items():
            known = chosen.known
            if chosen.source == ENTERED:
                values[self.unit if name == RATE else name] = chosen.text or None
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

    def address(self) -> dict[str, str]:
        """Return the shortest query that asks the same: what was entered, and sources other than the best known."""
        asked = {"job": str(self["job"].value())}
        for name, chosen in self.chosen.items():
            if chosen.source == ENTERED:
                asked |= {name: chosen.text, f"{name}_from": ENTERED}
            elif chosen.source == DEFAULT and chosen.measured:
                asked[f"{name}_from"] = DEFAULT
        return asked | ({"mtbf_unit": self.unit} if self.unit != RATE else {})

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


class AutomaticForm(StyledForm):
    """Within which limits a job is planned by itself. Durations as in the planner; the service judges the limits.

    Values that nothing has measured yet must be confirmed, each with a number to plan with.
    """

    target = forms.CharField(label="Target", max_length=LONGEST, help_text="A fraction, such as 0.97.")
    shortest_period = forms.CharField(
        label="Shortest period", max_length=LONGEST, help_text="Never more often than this, such as 1 min."
    )
    longest_period = forms.CharField(
        label="Longest period", max_length=LONGEST, help_text="Never less often than this, such as 1 h."
    )
    change_ratio = forms.CharField(
        label="Least change", max_length=LONGEST, help_text="1.25: leave the period while the best is within a quarter."
    )
    least_interval = forms.CharField(
        label="Least time between plans", max_length=LONGEST, help_text="No change sooner than this, such as 1 h."
    )

    def __init__(self, *args: Any, known: Mapping[str, Known], **kwargs: Any) -> None:
        super().__init__(*args, auto_id="auto_%s", **kwargs)
        for name in CONFIRMED:
            if known[name].kind != MEASURED:
                text = in_words(BY_NAME[name], known[name].value)
                label = f"{BY_NAME[name].label}, until measured"
                field = forms.CharField(label=label, max_length=LONGEST, initial=text)
                field.widget.attrs["class"] = "form-control"
                self.fields[f"confirmed.{name}"] = field

    @property
    def limits_shown(self) -> list[forms.BoundField]:
        """The limits themselves."""
        return [bound for bound in self.visible_fields() if not bound.name.startswith("confirmed.")]

    @property
    def assumed(self) -> list[forms.BoundField]:
        """The values to confirm."""
        return [bound for bound in self.visible_fields() if bound.name.startswith("confirmed.")]

    def clean(self) -> dict[str, Any]:
        """Read the texts; every error stands at its field."""
        super().clean()
        for name, text in list(self.cleaned_data.items()):
            try:
                self.cleaned_data[name] = self._read(name, text)
            except InvalidInput as error:
                self.blame(error)
        return self.cleaned_data

    @staticmethod
    def _read(name: str, text: str) -> Any:
        known = name.removeprefix("confirmed.")
        if known in reading.FIELDS:
            return reading.FIELDS[known](text, name)
        return number(text, name, "Give a number such as 1.25.") if name == "change_ratio" else seconds(text, name)

    def limits(self) -> dict[str, Any]:
        """Return what the service takes: seconds and numbers."""
        clean = self.cleaned_data
        return {
            "target": clean["target"],
            "shortest_period_s": clean["shortest_period"],
            "longest_period_s": clean["longest_period"],
            "change_ratio": clean["change_ratio"],
            "least_interval_s": clean["least_interval"],
            "confirmed": {name: clean[f"confirmed.{name}"] for name in CONFIRMED if f"confirmed.{name}" in clean},
        }

    def blame(self, error: InvalidInput) -> None:
        """Put an error of the service at its field."""
        name = error.field.removesuffix("_s")
        self.add_error(name if name in self.fields else None, told_at_field(error))
