"""Within which limits is a job planned by itself, and what stands in for what nobody has measured yet?"""

from collections.abc import Mapping
from typing import Any

from django import forms

from reliability.domain.planner import reading
from reliability.domain.planner.durations import number, seconds, spoken
from reliability.errors import InvalidInput
from reliability.forms import StyledForm
from reliability.plan_forms import CONFIRMED, LONGEST, told_at_field
from reliability.plan_quantities import BY_NAME, in_words
from reliability.selectors.plan_inputs import Known, is_assumed

EXAMPLES = {
    "target": "a fraction such as 0.97",
    "shortest_period": "a time such as 1 min",
    "longest_period": "a time such as 1 h",
    "change_ratio": "a number such as 1.25",
    "least_interval": "a time such as 1 h",
}


def _nothing_to_confirm(name: str) -> str:
    if name in CONFIRMED:
        return f"{BY_NAME[name].label} is measured by now: there is nothing to confirm. Look at the limits again."
    label = BY_NAME[name].label if name in BY_NAME else f"'{name[:LONGEST]}'"
    return f"{label} is not a value that automatic planning asks for: nothing was set."


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
        for name, example in EXAMPLES.items():
            self.fields[name].error_messages["required"] = f"Give {example}."
        for name in CONFIRMED:
            if is_assumed(known[name]):
                text = in_words(BY_NAME[name], known[name].value)
                label = f"{BY_NAME[name].label}, until measured"
                field = forms.CharField(label=label, max_length=LONGEST, initial=text)
                field.error_messages["required"] = "Give a time such as 12 h: it is not measured yet."
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

    @property
    def assumed_names(self) -> str:
        """What these are, as a list of words."""
        return ", ".join(str(bound.label).lower().removesuffix(", until measured") for bound in self.assumed)

    def clean(self) -> dict[str, Any]:
        """Read the texts; every error stands at its field."""
        super().clean()
        for name in self.data:
            if str(name).startswith("confirmed.") and name not in self.fields:
                self.add_error(None, _nothing_to_confirm(str(name).removeprefix("confirmed.")))
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

    @property
    def stands_in(self) -> str:
        """What is planned with until it is measured, as a sentence."""
        told = [f"{BY_NAME[name].label.lower()} {spoken(value)}" for name, value in self.limits()["confirmed"].items()]
        return f" Until measured it plans with {', '.join(told)}." if told else ""
