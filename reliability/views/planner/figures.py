"""The planner's figures: what each shows as a sentence, its values for table and CSV, and how Plotly draws it.

The frames are built and checked by Plotly once; an answer only fills in values, so that a change on the page costs
milliseconds. A trace carries the name of its colour; the browser knows the themes.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from django.utils.html import escape
from django.utils.safestring import SafeString, mark_safe

from reliability.domain.planner import curves, exact, spares
from reliability.domain.planner.answer import Answer
from reliability.errors import InvalidInput
from reliability.views.planner import frames
from reliability.views.planner.axes import log_range, rate_range, time_ticks
from reliability.views.planner.words import number, percent, spoken

POINTS = 97
SPARSE = 49
TABLE_ROWS = 11
MOST_STANDBYS = 60
MOST_LOAD = 10_000.0
"""So many nodes in repair at once are a fleet's, and no number of standbys is told for them."""
RARE = 0.01
FACTORS = tuple(10.0 ** (2 * at / (SPARSE - 1) - 1) for at in range(SPARSE))

Cell = float | int | None
Words = Callable[[Any], str]
Drawn = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Figure:
    """One figure: the sentence it shows, named columns of values with how they are told, and what Plotly draws."""

    name: str
    title: str
    heads: tuple[str, ...]
    columns: tuple[str, ...]
    words: tuple[Words, ...]
    values: Sequence[tuple[Cell, ...]]
    drawn: Drawn

    @property
    def rows(self) -> list[list[str]]:
        """A few of the values in words, evenly spaced, both ends among them."""
        last = len(self.values) - 1
        kept = sorted({round(index * last / (TABLE_ROWS - 1)) for index in range(TABLE_ROWS)})
        return [[told(value) for told, value in zip(self.words, self.values[at], strict=True)] for at in kept]

    @property
    def body(self) -> SafeString:
        """The rows as HTML; a template would take longer for it than for all the rest of the page."""
        lines = [[escape(cell) for cell in row] for row in self.rows]
        cells = ('</td><td class="n">'.join(row[1:]) for row in lines)
        return mark_safe(  # noqa: S308 (every cell is escaped above)
            "".join(
                f'<tr><th scope="row">{row[0]}</th><td class="n">{rest}</td></tr>'
                for row, rest in zip(lines, cells, strict=True)
            )
        )


def all_figures(found: Answer) -> list[Figure]:
    """Return the figures that the answer has values for; what no model can compute is left out, never an error."""
    made = [_made(build, found) for build in (_rate, _losses, _optimum, _standbys)]
    return [figure for figure in made if figure is not None]


def _made(build: Callable[[Answer], Figure | None], found: Answer) -> Figure | None:
    try:
        return build(found)
    except InvalidInput:
        return None


def as_json(figures: Sequence[Figure]) -> SafeString:
    """Return what the browser draws, by the name of the figure, as JSON that can stand in a page."""
    text = json.dumps({figure.name: figure.drawn for figure in figures}, allow_nan=False, separators=(",", ":"))
    for sign, code in (("<", "\\u003C"), (">", "\\u003E"), ("&", "\\u0026")):
        text = text.replace(sign, code)
    return mark_safe(text)  # noqa: S308 (nothing in it can end a script)


def _present_s(found: Answer) -> float | None:
    return found.present.period_s if found.present else None


def _short(value: float) -> float:
    """Cut to what a drawing can show: the page is sent anew at each change."""
    return float(f"{value:.6g}")


def _percents(values: Sequence[float | None]) -> list[float | None]:
    return [None if value is None else round(100 * value, 4) for value in values]


def _rate(found: Answer) -> Figure:
    rows = curves.rate_curve(found.inputs, POINTS, _present_s(found))
    band = _credible_band(found, [period_s for period_s, _, _ in rows])
    values = [(*row, *ends) for row, ends in zip(rows, band, strict=True)]
    drawn = frames.rate()
    xs, best_s = [_short(row[0]) for row in rows], found.used_s
    low, high, lower, curve, best, now = drawn["data"]
    low |= {"x": xs, "y": _percents([row[3] for row in values])}
    high |= {"x": xs, "y": _percents([row[4] for row in values])}
    lower |= {"x": xs, "y": _percents([row[2] for row in rows])}
    curve |= {"x": xs, "y": _percents([row[1] for row in rows]), "customdata": [_hover(row) for row in values]}
    if best_s and found.exact.period_s is not None:
        best |= {"x": [best_s], "y": _percents([exact.ettr_at(found.inputs, best_s)])}
    if found.present:
        now |= {"x": [found.present.period_s], "y": _percents([found.present.ettr])}
    if found.credible is None:
        low["visible"] = high["visible"] = False
    _mark_target(drawn["layout"], found, xs)
    drawn["layout"]["xaxis"] |= {"range": log_range(xs), **time_ticks(xs[0], xs[-1])}
    drawn["layout"]["yaxis"]["range"] = rate_range(found)
    heads = ("Period, start to start", "Effective training rate", "By first order", "At many faults", "At few faults")
    columns = ("period_s", "ettr", "ettr_first_order", "ettr_low", "ettr_high")
    told = (spoken, percent, percent, percent, percent)
    shown = len(heads) if found.credible else len(heads) - 2
    rows_shown = [row[:shown] for row in values]
    return Figure("rate", _rate_title(found), heads[:shown], columns[:shown], told[:shown], rows_shown, drawn)


def _credible_band(found: Answer, periods_s: Sequence[float]) -> list[tuple[float | None, float | None]]:
    if found.credible is None:
        return [(None, None)] * len(periods_s)
    many, few = (_rates_at(found, 1.0 / mtbf_s, periods_s) for mtbf_s in found.credible.mtbf_s)
    return list(zip(many, few, strict=True))


def _rates_at(found: Answer, faults_per_s: float, periods_s: Sequence[float]) -> Sequence[float | None]:
    """Return the rates at so many faults; 0 where planned stops and their recoveries then take all time."""
    try:
        inputs = found.request.inputs_at(faults_per_s)
    except InvalidInput:
        return [0.0] * len(periods_s)
    return [exact.ettr_at(inputs, period_s) for period_s in periods_s]


def _hover(row: tuple[float, float, float | None, float | None, float | None]) -> str:
    period_s, _, lower, low, high = row
    told = [spoken(period_s), f"first order {percent(lower)}"]
    if low is not None and high is not None:
        told.append(f"as counted {percent(low, 1)} to {percent(high, 1)}")
    return "<br>".join(told)


def _mark_target(layout: Drawn, found: Answer, xs: Sequence[float]) -> None:
    """Draw the target, and the periods that keep it."""
    target = 100 * found.inputs.target
    line, band = layout["shapes"]
    line |= {"y0": target, "y1": target}
    layout["annotations"][0] |= {"y": target, "text": f"target {number(found.inputs.target)}"}
    interval = found.exact.interval_s
    if interval is None:
        layout["shapes"].remove(band)
        return
    band |= {"x0": max(interval[0], xs[0] / 2), "x1": interval[1] or xs[-1] * 2}


def _rate_title(found: Answer) -> str:
    at_s, target = found.used_s, number(found.inputs.target)
    if found.exact.interval_s is None:
        return f"No period reaches {target}; the best there is gives {percent(found.exact.ettr_max)}"
    low_s, high_s = found.exact.interval_s
    kept = f"from {spoken(low_s)}" + (f" to {spoken(high_s)}" if high_s else " on")
    best = f"Every {spoken(at_s)} is best: " if at_s and found.exact.period_s is not None else ""
    return f"{best}{target} is kept by any period {kept}"


def _losses(found: Answer) -> Figure:
    rows = curves.loss_curve(found.inputs, SPARSE, _present_s(found))
    drawn, xs = frames.losses(), [_short(period_s) for period_s, _ in rows]
    for trace in drawn["data"]:
        shares = [getattr(shares, trace["meta"]["share"]) for _, shares in rows]
        told = [f"{spoken(period_s)}: {percent(share)}" for period_s, share in zip(xs, shares, strict=True)]
        trace |= {"x": xs, "y": _percents(shares), "customdata": told}
    best_s = found.used_s
    if best_s and found.exact.period_s is not None:
        drawn["layout"]["shapes"][0] |= {"x0": best_s, "x1": best_s}
    else:
        drawn["layout"]["shapes"].clear()
    drawn["layout"]["xaxis"] |= {"range": log_range(xs), **time_ticks(xs[0], xs[-1])}
    lost = [1 - shares.useful for _, shares in rows]
    drawn["layout"]["yaxis"]["range"] = [0, 100 * min(max(lost), max(6 * min(lost), 1e-6))]
    values = [(at, s.saving, s.rollback, s.recovery, s.downtime) for at, s in rows]
    return Figure(
        "losses",
        _loss_title(found, best_s),
        ("Period, start to start", "Saving", "Rollback", "Recovery", "Downtime"),
        ("period_s", "saving", "rollback", "recovery", "downtime"),
        (spoken, percent, percent, percent, percent),
        values,
        drawn,
    )


def _loss_title(found: Answer, best_s: float | None) -> str:
    if best_s is None or found.exact.period_s is None:
        return "Without faults only saving costs time"
    shares = exact.shares_at(found.inputs, best_s)
    return (
        f"Saving costs less with a longer period, rollback more: at {spoken(best_s)} "
        f"{percent(shares.saving, 1)} and {percent(shares.rollback, 1)}"
    )


def _optimum(found: Answer) -> Figure | None:
    inputs = found.inputs
    if inputs.mtbf_s is None or not inputs.save_stall_s or found.exact.period_s is None:
        return None
    by_faults, by_stall = (curves.optimum_curve(inputs, vary, SPARSE) for vary in ("mtbf_s", "save_stall_s"))
    faults = [(factor, *best) for factor, (_, *best) in zip(FACTORS, reversed(by_faults), strict=True)]
    stalls = [(factor, *best) for factor, (_, *best) in zip(FACTORS, by_stall, strict=True)]
    values = [(one[0], one[1], one[2], two[1], two[2]) for one, two in zip(faults, stalls, strict=True)]
    drawn = frames.optimum()
    for trace, rows in zip(drawn["data"], (faults, stalls), strict=False):
        told = [f"{factor:.3g} times: every {_told(at_s)}, {percent(rate)}" for factor, at_s, rate in rows]
        trace |= {
            "x": [_short(row[0]) for row in rows],
            "y": [row[1] and _short(row[1]) for row in rows],
            "customdata": told,
        }
    drawn["data"][2] |= {"x": [1], "y": [found.exact.period_s]}
    periods = [row[1] for row in (*faults, *stalls) if row[1]]
    drawn["layout"]["yaxis"] |= {"range": log_range([min(periods), max(periods)], 0.04)}
    drawn["layout"]["yaxis"] |= time_ticks(min(periods), max(periods), most=6)
    twice_faults, _ = curves.best_with(inputs, "mtbf_s", inputs.mtbf_s / 2)
    twice_stall, _ = curves.best_with(inputs, "save_stall_s", inputs.save_stall_s * 2)
    return Figure(
        "optimum",
        f"With twice the faults: {_every(twice_faults)}; with twice the save stall: {_every(twice_stall)}",
        ("Times as much as now", "Faults: period", "Faults: rate", "Stall: period", "Stall: rate"),
        ("factor", "period_s_by_faults", "ettr_by_faults", "period_s_by_stall", "ettr_by_stall"),
        ("{:.3g}".format, _told, percent, _told, percent),
        values,
        drawn,
    )


def _told(value_s: float | None) -> str:
    return "unknown" if value_s is None else spoken(value_s)


def _every(period_s: float | None) -> str:
    return "no time is left to train" if period_s is None else f"every {spoken(period_s)}"


def _standbys(found: Answer) -> Figure | None:
    request = found.request
    load = request.load_at(found.inputs.faults_per_s)
    if load <= 0:
        return None
    enough = spares.standbys_for(load, RARE) if load < MOST_LOAD else None
    last = min(max(request.standbys or 0, enough or 0, 3) + 2, MOST_STANDBYS)
    values = [(count, spares.erlang_b(count, load), spares.erlang_b(count + 1, load)) for count in range(last + 1)]
    drawn, counts = frames.standbys(), [row[0] for row in values]
    for trace, column in zip(drawn["data"], (1, 2), strict=False):
        trace |= {"x": counts, "y": [100 * row[column] or None for row in values]}
    if request.standbys is not None and request.standbys <= last:
        drawn["data"][2] |= {"x": [request.standbys], "y": [100 * values[request.standbys][1] or None]}
    drawn["layout"]["xaxis"] |= {"range": [-0.4, last + 0.4], "dtick": 1 if last <= 12 else 5}
    return Figure(
        "standbys",
        _standbys_title(request.standbys, load, enough),
        ("Standbys", "Lost nodes that find none", "Time short of nodes"),
        ("standbys", "p_no_standby", "share_short"),
        (str, percent, percent),
        values,
        drawn,
    )


def _standbys_title(count: int | None, load: float, enough: int | None) -> str:
    needed = f"{enough} standby{'' if enough == 1 else 's'} keep it at 1 % or less"
    if enough is None:
        needed = f"about {load:.2g} nodes are in repair at once"
    if count is None:
        return f"How often a lost node finds no standby: {needed}"
    have = f"With {count} standby{'' if count == 1 else 's'} {percent(spares.erlang_b(count, load))} of lost nodes"
    return f"{have} find none" + ("" if enough is not None and count >= enough else f"; {needed}")
