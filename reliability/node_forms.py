"""What people can enter about nodes: holds, their release, quarantine, what fails together."""

from datetime import datetime, timedelta

from django import forms

from reliability.forms import StyledForm

LASTS = {"": None, "1h": 1, "8h": 8, "24h": 24, "7d": 7 * 24, "30d": 30 * 24}
LONGEST = 500


def _why(label: str, placeholder: str, help_text: str = "") -> forms.CharField:
    widget = forms.TextInput(attrs={"placeholder": placeholder, "autocomplete": "off", "data-keep": ""})
    return forms.CharField(label=label, max_length=LONGEST, help_text=help_text, widget=widget)


class HoldForm(StyledForm):
    """Why a node must not be used, and for how long."""

    reason = _why("Reason", "for example: memory errors, part ordered", "Shown wherever the node is passed over.")
    lasts = forms.ChoiceField(
        label="Ends by itself",
        required=False,
        choices=[
            ("", "no: when it is released"),
            ("1h", "in 1 hour"),
            ("8h", "in 8 hours"),
            ("24h", "in 24 hours"),
            ("7d", "in 7 days"),
            ("30d", "in 30 days"),
        ],
    )

    def until(self, now: datetime) -> datetime | None:
        """Return when the hold ends by itself, None for never."""
        hours = LASTS[self.cleaned_data["lasts"]]
        return None if hours is None else now + timedelta(hours=hours)


class NoteForm(StyledForm):
    """Why something is lifted."""

    note = _why("Why", "kept with the release")


class QuarantineForm(StyledForm):
    """Why hardware must not be used."""

    reason = _why(
        "What is wrong with its hardware",
        "for example: memory errors come back",
        "It is refused under any name until the quarantine is released.",
    )


class DomainForm(StyledForm):
    """What fails together with a node."""

    domain = forms.CharField(
        label="Failure domain",
        required=False,
        max_length=80,
        help_text="Nodes of one domain never keep each other's copies. Empty: it fails for itself. "
        "An agent that names its domain itself says so again whenever it registers.",
        widget=forms.TextInput(attrs={"placeholder": "for example: rack-7", "autocomplete": "off"}),
    )
