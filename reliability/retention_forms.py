"""What a person sets for the snapshots of a job: what each tier keeps, and when one is tried."""

import re
from collections.abc import Mapping
from typing import Any

from django import forms

from reliability.domain import retention
from reliability.domain.planner import durations
from reliability.domain.retention import TierRule
from reliability.domain.snapshots import Tier
from reliability.errors import InvalidInput
from reliability.forms import StyledForm

_SIZE = re.compile(r"(\d{1,18}(?:\.\d{1,6})?)\s*([KMGTP]?)(i?)B?", re.IGNORECASE)
_POWERS = "_KMGTP"
SIZE_HINT = "Write a size as 500 GB, 1.5 TB or 200 GiB; empty: no cap."
PARTS = ("keep_newest", "every_steps", "keep_for_s", "cap_bytes")


def size_bytes(text: str, field: str) -> int:
    """Return how many bytes a text such as `500 GB` or `1.5TiB` means; 0 for none. Raises InvalidInput."""
    if not text.strip():
        return 0
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise InvalidInput(field, f"{durations.shown(text.strip())} is not a size", hint=SIZE_HINT)
    number, unit, binary = match.groups()
    base, power = (1024 if binary else 1000), max(_POWERS.find(unit.upper()), 0)
    return round(float(number) * float(base**power))


def size_text(count: int) -> str:
    """Return a number of bytes as the field takes it; nothing for no cap."""
    if not count:
        return ""
    for base, suffix in ((1000, "B"), (1024, "iB")):
        for power in range(len(_POWERS) - 1, 0, -1):
            if count % base**power == 0:
                return f"{count // base**power} {_POWERS[power]}{suffix}"
    return f"{count} B"


def time_text(seconds: float) -> str:
    """Return a time as the field takes it, exactly; nothing for none."""
    spoken = durations.spoken(seconds)
    exact = durations.seconds(spoken, "time") == seconds
    return "" if not seconds else spoken if exact else f"{seconds!r} s"


class RetentionForm(StyledForm):
    """What the SSDs and storage keep. Fields are named `tier_part`, as in `ssd_keep_newest`."""

    def __init__(self, *args: Any, rules: Mapping[Tier, TierRule], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for tier, rule in rules.items():
            self._add(tier, rule)
        for bound in self:
            bound.field.widget.attrs["class"] = "form-control"

    def _add(self, tier: Tier, rule: TierRule) -> None:
        newest = forms.IntegerField(label="Newest snapshots", min_value=1, max_value=retention.MOST_KEPT)
        newest.help_text = "So many whole ones stay, as far as the cap has room for them."
        steps = forms.IntegerField(
            label="Of each so many steps the first", required=False, min_value=0, max_value=retention.MOST_STEPS
        )
        steps.help_text = "For going back far: 10000 keeps one of each 10 000 steps. Empty: none."
        time = forms.CharField(label="Those younger than", required=False, max_length=60)
        time.help_text = "As 12h or 7d, by the age that the ledger recorded. Empty: none."
        cap = forms.CharField(label="At most", required=False, max_length=40)
        where = "on each node's SSD" if tier is Tier.SSD else "in all"
        cap.help_text = f"As 500 GB or 1.5 TB {where}; the oldest go first, never the last. Empty: no cap."
        for name, field, value in (
            ("keep_newest", newest, rule.keep_newest),
            ("every_steps", steps, rule.every_steps or None),
            ("keep_for_s", time, time_text(rule.keep_for_s)),
            ("cap_bytes", cap, size_text(rule.cap_bytes)),
        ):
            field.initial = value
            self.fields[f"{tier}_{name}"] = field

    @property
    def by_tier(self) -> list[tuple[Tier, list[forms.BoundField]]]:
        """Every tier with its fields."""
        return [(tier, [self[f"{tier}_{name}"] for name in PARTS]) for tier in retention.RULED]

    def clean(self) -> dict[str, Any]:
        """Read times and sizes."""
        values = dict(self.cleaned_data)
        for tier in retention.RULED:
            for name, read in (("keep_for_s", _time), ("cap_bytes", size_bytes)):
                field = f"{tier}_{name}"
                if field in values:
                    values[field] = self._read(read, str(values[field] or ""), field)
        return values

    def _read(self, read: Any, text: str, field: str) -> Any:
        try:
            return read(text, field)
        except InvalidInput as error:
            self.refuse(error, field)
            return None

    def rules(self) -> dict[Tier, TierRule]:
        """Return what was entered; the form must be valid."""
        given = self.cleaned_data
        return {
            tier: TierRule(**{name: given[f"{tier}_{name}"] or 0 for name in PARTS})  # an empty field is no wish
            for tier in retention.RULED
        }

    def refuse(self, error: InvalidInput, field: str = "") -> None:
        """Show an error at its field; `ssd.cap_bytes` is `ssd_cap_bytes` here."""
        name = field or error.field.replace(".", "_")
        told = f"{error.message.removeprefix(f'{error.field}: ').capitalize()}. {error.hint}".strip()
        self.add_error(name if name in self.fields else None, told)


def _time(text: str, field: str) -> float:
    return durations.seconds(text, field) if text.strip() else 0.0


class DistrustForm(StyledForm):
    """Why a snapshot must never be restored."""

    reason = forms.CharField(label="Reason", max_length=500, help_text="One line. It is never restored then.")


class ScheduleForm(StyledForm):
    """When the newest stored snapshot of a job is tried by itself."""

    every_hours = forms.FloatField(
        label="Every so many hours", required=False, min_value=0.1, max_value=24 * 365, help_text="Empty: never."
    )
    every_snapshots = forms.IntegerField(
        label="Every so many snapshots", required=False, min_value=1, max_value=100_000, help_text="Empty: never."
    )
