"""The figures without values, as Plotly's own classes build and check them; made once, filled for each answer."""

import json
from collections.abc import Callable
from functools import cache
from typing import Any

import plotly.graph_objects as go

LOSSES = (("saving", ""), ("rollback", "/"), ("recovery", "."), ("downtime", "\\"))
"""What costs time, and the texture that tells it from its neighbours without colour."""


def _axis(title: str, **more: Any) -> dict[str, Any]:
    return {"title": {"text": title}, "fixedrange": True, "ticks": "outside", "tickangle": 0, **more}


def _layout(x: dict[str, Any], y: dict[str, Any], **more: Any) -> dict[str, Any]:
    margin = {"l": 62, "r": 16, "t": 34, "b": 46}
    legend = {"orientation": "h", "x": 0, "y": 1.02, "xanchor": "left", "yanchor": "bottom", "traceorder": "normal"}
    shown = {"showlegend": True, "legend": legend | {"itemclick": False, "itemdoubleclick": False}}
    return {"template": None, "autosize": True, "margin": margin, "xaxis": x, "yaxis": y, **shown, **more}


def _line(name: str, tone: str, *, soft: bool = False, **more: Any) -> dict[str, Any]:
    return {"type": "scatter", "mode": "lines", "name": name, "meta": {"tone": tone, "soft": soft}, **more}


def _point(name: str, tone: str, position: str, symbol: str) -> dict[str, Any]:
    marker = {"size": 12, "symbol": symbol}
    return {
        "type": "scatter",
        "mode": "markers+text",
        "name": name,
        "text": [name],
        "textposition": position,
        "meta": {"tone": tone, "soft": False},
        "marker": marker,
        "hoverinfo": "skip",
        "cliponaxis": False,
        "showlegend": False,
    }


def _frame(build: Callable[[], go.Figure]) -> Callable[[], dict[str, Any]]:
    """Return a function that gives a fresh copy of a figure that is built once."""
    built = cache(lambda: str(build().to_json()))
    return lambda: dict(json.loads(built()))


def _rate() -> go.Figure:
    data = [
        _line("many faults", "--sk-accent", soft=True, line={"width": 0}, showlegend=False, hoverinfo="skip"),
        _line("90 % credible range", "--sk-accent", soft=True, line={"width": 0}, hoverinfo="skip"),
        _line("first order, a lower bound", "--sk-dim", line={"width": 1.5, "dash": "dot"}, hoverinfo="skip"),
        _line(
            "effective training rate",
            "--sk-accent",
            line={"width": 2.5},
            hovertemplate="every %{customdata}<br><b>%{y:.2f} %</b><extra></extra>",
        ),
        _point("best", "--sk-ok", "top center", "circle"),
        _point("now", "--sk-warn", "bottom center", "diamond"),
    ]
    data[1]["fill"] = "tonexty"
    shapes = [
        {"type": "line", "name": "--sk-bad", "xref": "paper", "x0": 0, "x1": 1, "line": {"width": 1.5, "dash": "dash"}},
        {"type": "rect", "name": "--sk-ok", "yref": "paper", "y0": 0, "y1": 1, "layer": "below", "line": {"width": 0}},
    ]
    label = {"name": "--sk-bad", "xref": "paper", "x": 1, "xanchor": "right", "showarrow": False}
    layout = _layout(
        _axis("period, start to start (log scale)", type="log"),
        _axis("effective training rate", ticksuffix=" %"),
        hovermode="x",
        shapes=shapes,
        annotations=[label],
    )
    return go.Figure({"data": data, "layout": layout})


def _losses() -> go.Figure:
    data = [
        _line(
            name,
            f"--plan-{name}",
            line={"width": 1},
            stackgroup="lost",
            fillpattern={"shape": texture, "size": 7, "solidity": 0.25},
            hovertemplate=name + " %{customdata}<extra></extra>",
        )
        for name, texture in LOSSES
    ]
    for trace, (name, _) in zip(data, LOSSES, strict=True):
        trace["meta"]["share"] = name
        trace["fill"] = "tonexty"
    best = {"type": "line", "name": "--sk-text", "yref": "paper", "y0": 0, "y1": 1, "line": {"width": 1, "dash": "dot"}}
    layout = _layout(
        _axis("period, start to start (log scale)", type="log"),
        _axis("share of all time", ticksuffix=" %"),
        hovermode="x unified",
        shapes=[best],
    )
    return go.Figure({"data": data, "layout": layout})


def _optimum() -> go.Figure:
    hover = "%{customdata}<extra></extra>"
    data = [
        _line("faults", "--plan-rollback", line={"width": 2.5}, hovertemplate="faults " + hover),
        _line("save stall", "--plan-saving", line={"width": 2.5, "dash": "dash"}, hovertemplate="stall " + hover),
        _point("as it is", "--sk-ok", "middle right", "circle"),
    ]
    factors = {"tickvals": [0.1, 0.2, 0.5, 1, 2, 5, 10], "ticktext": ["0.1", "0.2", "0.5", "1", "2", "5", "10"]}
    layout = _layout(
        _axis("times as much as now (log scale)", type="log", range=[-1, 1], **factors),
        _axis("best period", type="log"),
        hovermode="x",
    )
    layout["margin"]["l"] = 82
    return go.Figure({"data": data, "layout": layout})


def _standbys() -> go.Figure:
    data = [
        _line(
            "lost nodes that find none",
            "--sk-accent",
            mode="lines+markers",
            line={"width": 2},
            marker={"size": 8},
            hovertemplate="%{x} standbys: %{y:.3~g} % of lost nodes find none<extra></extra>",
        ),
        _line(
            "time short of nodes",
            "--sk-dim",
            mode="lines+markers",
            line={"width": 1.5, "dash": "dot"},
            marker={"size": 7, "symbol": "square"},
            hovertemplate="short of nodes %{y:.3~g} % of the time<extra></extra>",
        ),
        _point("now", "--sk-warn", "top right", "diamond"),
    ]
    one = {"type": "line", "name": "--sk-ok", "xref": "paper", "x0": 0, "x1": 1, "y0": 1, "y1": 1}
    layout = _layout(
        _axis("number of standbys"),
        _axis("", type="log", ticksuffix=" %", dtick=1, exponentformat="none"),
        hovermode="x",
        shapes=[one | {"line": {"width": 1.5, "dash": "dash"}}],
    )
    return go.Figure({"data": data, "layout": layout})


rate = _frame(_rate)
losses = _frame(_losses)
optimum = _frame(_optimum)
standbys = _frame(_standbys)
