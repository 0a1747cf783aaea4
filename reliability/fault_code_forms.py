"""What people can enter about fault codes: a search, a line to try, a change with its reason."""

from typing import Any

from django import forms

from reliability.domain.faults import Action, FaultClass, FaultCode, Origin, Severity
from reliability.domain.faults.phrases import LONGEST
from reliability.domain.faults.text import JUDGED
from reliability.forms import StyledForm
from reliability.models.nodes import choices

VALUES = ("fault_class", "action", "severity", "meaning", "advice", "debounce_s", "origin", "phrase")


class SearchForm(StyledForm):
    """Which codes are shown."""

    words = forms.CharField(label="Words in code, meaning or advice", required=False, max_length=100)
    family = forms.ChoiceField(label="Family", required=False)
    fault_class = forms.ChoiceField(label="Class", required=False, choices=[("", "any class"), *choices(FaultClass)])
    action = forms.ChoiceField(label="Action", required=False, choices=[("", "any action"), *choices(Action)])

    def __init__(self, *args: Any, families: list[str], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        field = self.fields["family"]
        assert isinstance(field, forms.ChoiceField)
        field.choices = [("", "any family"), *((name, name) for name in families)]


class LineForm(StyledForm):
    """A line of a log to try."""

    as_it_is = ("line",)
    line = forms.CharField(
        label="A line of a log",
        required=False,
        max_length=JUDGED,
        strip=False,
        widget=forms.Textarea(attrs={"rows": 2, "class": "form-control mono", "spellcheck": "false"}),
    )
    origin = forms.ChoiceField(
        label="Written by", required=False, choices=[("", "anything: by its form"), *choices(Origin)]
    )


class ReasonForm(StyledForm):
    """Why a code is changed, and what the person saw of it."""

    version = forms.IntegerField(min_value=0, widget=forms.HiddenInput)
    reason = forms.CharField(
        label="Why",
        max_length=500,
        widget=forms.TextInput(attrs={"placeholder": "kept with the change", "autocomplete": "off"}),
    )


class ChangeForm(ReasonForm):
    """What a code means and what is done."""

    fault_class = forms.ChoiceField(label="Class", choices=choices(FaultClass))
    severity = forms.ChoiceField(label="Severity", choices=choices(Severity))
    action = forms.ChoiceField(label="Action", choices=choices(Action))
    meaning = forms.CharField(label="Meaning", max_length=300)
    advice = forms.CharField(label="Advice", max_length=300)
    debounce_s = forms.FloatField(
        label="Must stand for (s)", min_value=0, max_value=3600, help_text="Before its action is taken."
    )
    origin = forms.ChoiceField(label="Its lines are written by", choices=choices(Origin))
    phrase = forms.CharField(
        label="One more line that stands for it",
        required=False,
        max_length=LONGEST,
        help_text="Its text, with {name} for one word and * for anything: GPU {device} lost * after {seconds} s",
    )
    field_order: tuple[str, ...] = (*VALUES, "reason", "version")

    @classmethod
    def of(cls, row: FaultCode, *, version: int, phrase: str) -> "ChangeForm":
        """Return the form as a code stands."""
        known = {name: getattr(row, name) for name in VALUES if name != "phrase"}
        return cls(initial={**known, "phrase": phrase, "version": version})

    def values(self) -> dict[str, Any]:
        """Return what was entered of a code."""
        return {name: self.cleaned_data[name] for name in VALUES}


class AddForm(ChangeForm):
    """A code that is new."""

    code = forms.CharField(label="Code", max_length=64, help_text="Small letters, digits, hyphens: fan-failed")
    field_order = ("code", *VALUES, "reason", "version")
