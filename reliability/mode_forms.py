"""What people can enter about decisions: whether one was right, and how much is done by itself."""

from typing import Any

from django import forms

from reliability.domain.modes import LEAST_PRECISION, MOST_DECISIONS, Need, Reach
from reliability.forms import StyledForm, shows
from reliability.models import ModeRule
from reliability.models.decisions import MODES
from reliability.models.nodes import choices
from reliability.selectors import fault_codes, precision

ALL_NODES = "all nodes"


class _ChangeForm(StyledForm):
    """Which nodes, why, and the newest change that the person saw."""

    group = forms.ChoiceField(label="On", required=False)
    seen = forms.IntegerField(min_value=0, widget=forms.HiddenInput)
    reason = forms.CharField(
        label="Why",
        max_length=500,
        widget=forms.TextInput(attrs={"placeholder": "kept with the change", "autocomplete": "off"}),
    )

    def __init__(self, *args: Any, groups: list[str], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._offer("group", ("", ALL_NODES), [(name, f"failure domain {name}") for name in groups])

    def _offer(self, name: str, first: tuple[str, str], others: list[tuple[str, str]]) -> None:
        field = self.fields[name]
        assert isinstance(field, forms.ChoiceField)
        field.choices = [first, *others]


class ScopeForm(_ChangeForm):
    """Which rule, on a page that shows it."""

    reach = forms.ChoiceField(choices=choices(Reach), widget=forms.HiddenInput)
    name = forms.CharField(required=False, max_length=64, widget=forms.HiddenInput)


class _ModeFields(_ChangeForm):
    """How much is done by itself, and what evidence automatic action needs."""

    mode = forms.ChoiceField(label="Done by itself", choices=[*MODES])
    needed_percent = forms.FloatField(
        label="Right decisions needed (%)",
        required=False,
        min_value=100 * LEAST_PRECISION,
        max_value=100,
        help_text="Before it may be automatic; empty: nothing is asked.",
    )
    least_decisions = forms.IntegerField(
        label="Of at least so many", required=False, min_value=1, max_value=MOST_DECISIONS
    )
    unlocks_itself = forms.BooleanField(
        label="Becomes automatic by itself",
        required=False,
        help_text="Else it is offered on the page of the code.",
        widget=forms.CheckboxInput(attrs={"class": "form-check-input"}),
    )
    field_order = (
        "reach", "name", "group", "mode", "needed_percent", "least_decisions", "unlocks_itself", "reason",
    )  # fmt: skip

    def clean(self) -> dict[str, Any]:
        """Ask for both numbers or none."""
        given = super().clean() or {}
        share, least = given.get("needed_percent"), given.get("least_decisions")
        bad = {"needed_percent", "least_decisions"} & set(self.errors)
        if (share is None) != (least is None) and not bad:
            missing = "least_decisions" if least is None else "needed_percent"
            self.add_error(missing, "Give both numbers, or neither.")
        return given

    def need(self) -> Need | None:
        """Return the evidence that is asked for."""
        share, least = self.cleaned_data["needed_percent"], self.cleaned_data["least_decisions"]
        return None if share is None else Need(precision=share / 100, decisions=least)


class CodeModeForm(_ModeFields):
    """For one code, on its page."""

    reach = forms.ChoiceField(choices=choices(Reach), widget=forms.HiddenInput)
    name = forms.CharField(required=False, max_length=64, widget=forms.HiddenInput)


class WideModeForm(_ModeFields):
    """For a family of codes, or for all."""

    reach = forms.ChoiceField(label="For", choices=[("all", "all codes"), ("family", "the family")])
    name = forms.ChoiceField(label="Family", required=False)

    def __init__(self, *args: Any, families: list[str], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._offer("name", ("", "none"), [(name, name) for name in families])


ModeForm = CodeModeForm | WideModeForm


class VerdictForm(forms.Form):
    """Whether a decision was right, and where the person was."""

    verdict = forms.CharField(max_length=8)
    note = forms.CharField(required=False, max_length=500, validators=[shows])


def code_form(code: str, *, groups: list[str], bound: Any = None) -> CodeModeForm:
    """Return the form for one code, as its rule on all nodes stands."""
    own = next(iter(precision.history(Reach.CODE, code)), None)
    values = {"seen": precision.newest_change(), "mode": "shadow", "reach": Reach.CODE, "name": code}
    return CodeModeForm(bound, initial={**values, **_standing(own)}, groups=groups, auto_id="id_mode_%s")


def wide_form(*, groups: list[str], bound: Any = None) -> WideModeForm:
    """Return the form for a family or all codes."""
    values = {"seen": precision.newest_change(), "mode": "shadow"}
    families = fault_codes.families(fault_codes.table())
    return WideModeForm(bound, initial=values, groups=groups, families=families, auto_id="id_mode_%s")


def _standing(rule: ModeRule | None) -> dict[str, Any]:
    if rule is None or not rule.mode:
        return {}
    percent = None if rule.needed_precision is None else round(100 * rule.needed_precision, 4)
    return {
        "mode": rule.mode,
        "needed_percent": percent,
        "least_decisions": rule.least_decisions,
        "unlocks_itself": rule.unlocks_itself,
    }
