"""How values look on pages: durations, ages, sizes, states with a shape and a word, small bars."""

import json
from datetime import UTC, datetime
from statistics import median
from typing import Any

from django import template
from django.templatetags.static import static
from django.urls import NoReverseMatch, reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString

from reliability.domain import sizes
from reliability.domain.ledger import spans
from reliability.domain.planner import durations
from reliability.models import Failover
from reliability.templatetags.looks import LOOKS, STANDING_WORD

register = template.Library()

UNKNOWN = "unknown"


@register.simple_tag
def icon(name: str, css: str = "") -> SafeString:
    """Draw an icon of the sprite; it is decoration, the word beside it carries the meaning."""
    return format_html(
        '<svg class="icon {}" aria-hidden="true" focusable="false"><use href="{}#{}"></use></svg>',
        css,
        static("img/icons.svg"),
        name,
    )


@register.simple_tag
def linked(route: str, name: str, css: str = "") -> SafeString:
    """Link what was told by name, as a code or a node; a name that can be no address stands as text."""
    look = format_html(' class="{}"', css) if css else ""
    try:
        return format_html('<a{} href="{}">{}</a>', look, reverse(route, args=[name]), name)
    except NoReverseMatch:
        return format_html("<span{}>{}</span>", look, name)


@register.simple_tag
def chip(kind: str, value: Any, label: str = "") -> SafeString:
    """Draw a state as colour, shape and word. `kind` is one of LOOKS."""
    colour, shape = LOOKS[kind].get(value, ("info", "refresh") if kind == "state" else ("mute", "info"))
    word = label or str(value or UNKNOWN).replace("_", " ")
    return format_html('<span class="chip {}">{}{}</span>', colour, icon(shape), word)


@register.filter
def standing(value: Any) -> str:
    """Write how a snapshot stands on a tier."""
    return STANDING_WORD.get(value, words(value))


@register.filter
def rank_spans(ranks: Any) -> str:
    """Write ranks as '0-62, 64'."""
    return spans(ranks)


@register.filter
def duration(seconds: float | None) -> str:
    """Write seconds as people say them; the same as static/js/durations.js."""
    if seconds is None:
        return UNKNOWN
    s = max(0.0, float(seconds))
    if s < 10:
        return f"{s:.1f} s" if s >= 0.1 or s == 0 else f"{s * 1000:.0f} ms"
    whole = int(s)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    if whole < 86400:
        return f"{whole // 3600} h {whole % 3600 // 60} min"
    return f"{whole // 86400} d {whole % 86400 // 3600} h"


@register.filter
def spoken(seconds: float | None) -> str:
    """Write a planned duration in two units at most, as the planner's fields take it."""
    return UNKNOWN if seconds is None else durations.spoken(seconds)


@register.filter
def precise(seconds: float | None) -> str:
    """Write a measured duration to hundredths of a second while it is short, and to milliseconds while it is none."""
    if seconds is None:
        return UNKNOWN
    if seconds < 0.1:
        return f"{1000 * seconds:.{0 if seconds >= 0.001 else 1}f} ms"
    return f"{seconds:.2f} s" if seconds < 10 else duration(seconds)


@register.simple_tag(takes_context=True)
def ago(context: template.Context, at: datetime | float | None, absent: str = "never") -> SafeString:
    """Write the age of an instant; the browser counts it on from `data-at`."""
    if at is None:
        return format_html('<span class="dim">{}</span>', absent)
    stamp = at.timestamp() if isinstance(at, datetime) else float(at)
    seconds = max(0.0, context["now"].timestamp() - stamp)
    text = f"{int(seconds)} s ago" if seconds < 10 else f"{duration(seconds)} ago"
    return format_html('<time data-at="{}" datetime="{}" title="{}">{}</time>', *_instant(stamp), text)


@register.simple_tag(takes_context=True)
def until(context: template.Context, at: datetime | None) -> SafeString:
    """Write how long it is until an instant; the browser counts it down."""
    if at is None:
        return format_html('<span class="dim">{}</span>', "no limit")
    left = at.timestamp() - context["now"].timestamp()
    text = duration(left) if left > 0 else "now"
    return format_html('<time data-until="{}" datetime="{}" title="{}">{}</time>', *_instant(at.timestamp()), text)


def _instant(stamp: float) -> tuple[str, str, str]:
    instant = datetime.fromtimestamp(stamp, UTC)
    return f"{stamp:.3f}", instant.isoformat(timespec="milliseconds"), instant.strftime("%Y-%m-%d %H:%M:%S UTC")


@register.filter
def clock(at: datetime | None) -> str:
    """Write the time of day, UTC."""
    return at.strftime("%H:%M:%S") if at else ""


@register.filter
def fine_clock(at: datetime | None) -> str:
    """Write the time of day to tenths of a second, UTC."""
    return f"{at.strftime('%H:%M:%S')}.{at.microsecond // 100_000}" if at else ""


@register.filter
def instant(at: datetime | None) -> str:
    """Write date and time of day, UTC."""
    return at.strftime("%Y-%m-%d %H:%M:%S UTC") if at else UNKNOWN


@register.filter
def sized(count: Any) -> str:
    """Write a number of bytes; what a node tells may be anything, so what is no number is unknown."""
    if isinstance(count, bool) or not isinstance(count, int | float):
        return UNKNOWN
    return sizes.spoken(count)


@register.filter
def grouped(number: Any) -> str:
    """Write a whole number in groups of three; what a node tells may be anything, so what is no number is unknown."""
    if isinstance(number, bool) or not isinstance(number, int | float):
        return UNKNOWN
    return f"{number:,}".replace(",", "\u202f")


@register.filter
def percent(share: float | None, digits: int = 2) -> str:
    """Write a share of 1 as per cent."""
    return UNKNOWN if share is None else f"{100 * share:.{digits}f} %"


@register.filter
def decimal(value: float | None, digits: int = 2) -> str:
    """Write a number with fixed digits."""
    return UNKNOWN if value is None else f"{value:.{digits}f}"


@register.filter
def words(value: Any) -> str:
    """Write a code name as words."""
    return str(value or "").replace("_", " ")


HARDWARE_NAMES = {
    "machine_id": "Machine",
    "product_uuid": "Board",
    "gpu_uuids": "GPUs",
    "macs": "Network cards",
    "cpus": "Processors",
    "cpu_model": "Processor",
    "memory_bytes": "Memory",
    "kernel": "Kernel",
}


@register.filter
def hardware(key: Any) -> str:
    """Write the name of a fact about a machine."""
    return HARDWARE_NAMES.get(str(key)) or words(key).capitalize()


@register.filter
def listed(value: Any) -> str:
    """Write what a node told: lists with commas, nothing as 'none'."""
    if isinstance(value, list | tuple):
        return ", ".join(str(item) for item in value) or "none"
    return "unknown" if value in (None, "") else str(value)


@register.filter
def split_words(text: str) -> list[str]:
    """Return the words of a text."""
    return text.split()


@register.filter
def lookup(mapping: Any, key: Any) -> Any:
    """Return mapping[key], or nothing."""
    return mapping.get(key) if hasattr(mapping, "get") else None


@register.filter
def pretty(value: Any) -> str:
    """Write structured values as indented JSON."""
    return json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False, default=str)


@register.simple_tag
def bar(share: float | None, label: str, css: str = "ok") -> SafeString:
    """Draw a share of 1 as a bar, in SVG because the page allows no inline style."""
    width = 0.0 if share is None else 100 * min(1.0, max(0.0, share))
    return format_html(
        '<svg class="bar {}" role="img" aria-label="{}" viewBox="0 0 100 6" preserveAspectRatio="none">'
        '<rect class="track" width="100" height="6"/><rect class="fill" width="{}" height="6"/></svg>',
        css,
        label,
        f"{width:.1f}",
    )


@register.inclusion_tag("parts/field.html")
def field(bound: Any, css: str = "") -> dict[str, Any]:
    """Draw a form field with label, help and errors."""
    return {"field": bound, "css": css}


@register.filter
def recovery_time(failover: Failover) -> float | None:
    """Return the seconds from the first finding to the end of a recovery."""
    return (failover.ended_at - failover.fault_at).total_seconds() if failover.ended_at else None


@register.filter
def rate(bytes_per_s: Any) -> str:
    """Write a measured bandwidth; of several rounds, the median."""
    rounds = bytes_per_s if isinstance(bytes_per_s, list | tuple) else [bytes_per_s]
    numbers = [value for value in rounds if isinstance(value, int | float)]
    return f"{sized(median(numbers))}/s" if numbers else UNKNOWN
