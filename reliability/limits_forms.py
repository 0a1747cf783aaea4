"""The limits that people may set."""

from typing import Any

from django import forms
from django.http import QueryDict

from reliability import conf
from reliability.domain.fields import MAX_INTEGER
from reliability.forms import StyledForm
from reliability.models import LimitChange
from reliability.services import limits
from reliability.services.limits import SETTABLE


class LimitsForm(StyledForm):
    """When silence counts, and when many nodes are too many to blame."""

    silence_s = forms.FloatField(
        label="A silent node is unreachable after (s)",
        help_text="At least three heartbeats plus the worst retry of an agent.",
    )
    proof_s = forms.FloatField(label="No step for so long is a proof (s)")
    lone_node_s = forms.FloatField(
        label="Silence of a node that is alone in its job (s)", help_text="At least the silence limit."
    )
    radius_share = forms.FloatField(
        label="Many nodes: more than this share", help_text="The same code on so many at once is one event."
    )
    radius_nodes = forms.IntegerField(label="Or so many nodes")
    radius_window_s = forms.FloatField(label="Within (s)")
    reason = forms.CharField(label="Why", max_length=300)
    seen = forms.IntegerField(min_value=0, max_value=MAX_INTEGER, widget=forms.HiddenInput)

    @classmethod
    def of_now(cls) -> "LimitsForm":
        """Return the form as the limits are."""
        policy = conf.cluster_policy()
        return cls(initial={name: getattr(policy, name) for name in SETTABLE} | {"seen": limits.newest()})

    def again(self, given: QueryDict) -> "LimitsForm":
        """Return a form, after somebody else set the limits meanwhile, that keeps what was typed and no more.

        A limit that the person left as it was seen is now what the other set; one that both changed stays as typed.
        """
        before, made = limits.in_force_after(self.cleaned_data["seen"]), LimitChange.objects.first()
        now = limits.in_force_after(made.pk if made else 0)
        data = given.copy()
        data["seen"] = str(made.pk if made else 0)
        changed = [name for name in SETTABLE if now[name] != before[name]]
        kept = [name for name in changed if self.cleaned_data[name] != before[name]]
        for name in changed:
            if name not in kept:
                data[name] = str(now[name])
        form = type(self)(data)
        who = made.changed_by if made else "The settings"
        for name in changed:
            told = f"{who} set it to {now[name]:g} meanwhile"
            form.add_error(name, f"{told}; yours is still entered." if name in kept else f"{told}.")
        form.add_error(None, "Nothing was set: somebody set the limits meanwhile. Look at them, then set yours again.")
        return form

    def clean(self) -> dict[str, Any] | None:
        """Say on the form that the hidden field is wrong."""
        if "seen" in self.errors:
            self.add_error(None, "Which limits you saw is not known. Load the page again.")
        return super().clean()

    def values(self) -> dict[str, Any]:
        """Return what was entered."""
        return {name: self.cleaned_data[name] for name in SETTABLE}
