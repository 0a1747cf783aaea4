"""Which period does a button of the planner order?"""

from typing import Any

from django import forms

from reliability.domain.planner.steps import MOST_STEPS
from reliability.forms import StyledForm


class OrderForm(StyledForm):
    """The number of steps on the button, or the one a person chose, and which plan was the newest one then."""

    every_steps = forms.IntegerField(min_value=1, max_value=MOST_STEPS, required=False)
    chosen_steps = forms.IntegerField(min_value=1, max_value=MOST_STEPS, required=False)
    accept_missed = forms.BooleanField(required=False)
    seen = forms.IntegerField(min_value=0, max_value=2**31 - 1, required=False)

    def clean(self) -> dict[str, Any]:
        """One of both numbers has to be there."""
        super().clean()
        given = [self.cleaned_data.get(name) for name in ("every_steps", "chosen_steps")]
        if not self.errors and given == [None, None]:
            self.add_error(None, "the number of steps did not come along. Press the button again.")
        return self.cleaned_data

    @property
    def why(self) -> str:
        """What is wrong with the numbers."""
        name, texts = next(iter(self.errors.items()))
        told = str(texts[0])
        given = str(self.data.get(name, ""))[:20]
        return f"'{given}' is no number of steps. {told}" if name in self.fields else told

    def order(self) -> dict[str, Any]:
        """Return what the service takes."""
        clean = self.cleaned_data
        chosen = clean["chosen_steps"]
        return {
            "shown": clean["every_steps"] if chosen is None else None,
            "chosen_steps": chosen,
            "accept_missed": clean["accept_missed"],
            "seen": clean["seen"],
        }
