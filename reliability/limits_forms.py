"""The limits that people may set."""

from typing import Any

from django import forms

from reliability import conf
from reliability.forms import StyledForm
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

    @classmethod
    def of_now(cls) -> "LimitsForm":
        """Return the form as the limits are."""
        policy = conf.cluster_policy()
        return cls(initial={name: getattr(policy, name) for name in SETTABLE})

    def values(self) -> dict[str, Any]:
        """Return what was entered."""
        return {name: self.cleaned_data[name] for name in SETTABLE}
