"""Where does the lost time go, in words and as a bar?"""

from typing import Any

from reliability.domain.planner.answer import Answer
from reliability.domain.planner.values import DAY_S
from reliability.views.planner.words import part, spoken

LOSSES = (
    ("saving", "saving", "the stalls of saves", 45),
    ("rollback", "rollback", "steps that are done again after a fault", -45),
    ("recovery", "recovery", "loading and starting after a fault", 90),
    ("downtime", "downtime", "no attempt runs: detection, swap, cluster away", 0),
    ("waiting", "waiting for a node", "a lost node finds no standby, and a repair must end first", 20),
)


def lost(found: Answer) -> dict[str, Any]:
    """Return the time lost in a day, by cause, with the places of its parts in a bar of 1000."""
    shares = _shares(found)
    total = sum(shares.values())
    rows, at = [], 0.0
    for name, label, what, turn in LOSSES:
        if name not in shares:
            continue
        width = 1000 * shares[name] / total if total else 0.0
        told = {"name": name, "label": label, "what": what, "turn": turn, "per_day": spoken(DAY_S * shares[name])}
        rows.append({**told, "share": part(shares[name]), "from": f"{at:.1f}", "width": f"{width:.1f}"})
        at += width
    return {
        "title": _title(shares, total),
        "words": ", ".join(f"{row['label']} {row['per_day']}" for row in rows),
        "rows": rows,
        "total": spoken(DAY_S * total),
        "share": part(total),
    }


def _shares(found: Answer) -> dict[str, float]:
    """Return the lost shares of all time; where standbys are known, the wait for a repair apart from the downtime."""
    told = {name: max(0.0, getattr(found.shares, name)) for name in ("saving", "rollback", "recovery", "downtime")}
    if found.spares is not None:
        exposed = max(0.0, 1.0 - told["downtime"])
        wait_s = max(0.0, found.inputs.downtime_s - found.request.downtime_s)
        told["waiting"] = min(told["downtime"], found.inputs.faults_per_s * exposed * wait_s)
        told["downtime"] -= told["waiting"]
    return told


def _title(shares: dict[str, float], total: float) -> str:
    if not total:
        return "Of a day, nothing is lost"
    most = max(shares, key=lambda name: shares[name])
    label = {name: label for name, label, _, _ in LOSSES}[most]
    how = "most of it to" if shares[most] > total / 2 else "the largest part to"
    return f"Of a day, {spoken(DAY_S * total)} are lost, {how} {label}"


def undone_s(found: Answer, period_s: float) -> float:
    """Return how much training a fault undoes on average: half a period, and what its newest copy lags behind."""
    return period_s / 2 + found.inputs.lag_s(period_s)
