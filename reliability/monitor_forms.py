"""What people can enter about foreign monitors: a token for one."""

from typing import Any

from django import forms

from reliability.forms import StyledForm
from reliability.models import Node


class MonitorTokenForm(StyledForm):
    """Which monitor gets a token, and of which nodes it may speak."""

    name = forms.CharField(
        label="Monitor",
        max_length=80,
        widget=forms.TextInput(attrs={"placeholder": "for example: dcgm of rack 7", "autocomplete": "off"}),
    )
    node = forms.ModelChoiceField(
        label="It may speak of",
        queryset=Node.objects.none(),
        required=False,
        empty_label="every node it names",
        help_text="One node is the safer choice where each node has a monitor of its own.",
    )

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        node = self.fields["node"]
        assert isinstance(node, forms.ModelChoiceField)
        node.queryset = Node.objects.order_by("name")
