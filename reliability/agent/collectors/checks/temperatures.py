"""Is anything in the machine too hot by its own sensors' limits?

Read: class/hwmon/hwmon*/{name,temp*_input,temp*_crit,temp*_max,temp*_fault,temp*_label} below /sys. Many boards have
inputs with nothing connected and limits that make no sense: only plausible values count, and only when they last.
"""

import re
from dataclasses import dataclass

from reliability.agent.collectors.checking import Option, Outcome
from reliability.agent.collectors.checks.asked import Asked
from reliability.agent.collectors.checks.sheet import Sheet, Trouble
from reliability.agent.collectors.checks.tree import Tree

_INPUT = re.compile(r"temp([0-9]{1,3})_input")
LEAST_LIMIT_C, MOST_LIMIT_C = 40.0, 150.0
LEAST_C, MOST_C = 1.0, 200.0
UNCONNECTED_C = (127.0, 127.5, 128.0, 255.0)
OPTIONS: dict[str, Option] = {
    "root": "/sys",
    "critical_s": 30.0,
    "high_s": 600.0,
}


@dataclass(frozen=True, slots=True)
class _Sensor:
    """One sensor, degrees Celsius; a limit that makes no sense is None."""

    name: str
    device: str
    now_c: float
    critical_c: float | None
    high_c: float | None


def look(asked: Asked) -> Outcome:
    """Return how it stands with each sensor."""
    tree = asked.tree().below("class", "hwmon")
    chips = [name for name in tree.names() if name.startswith("hwmon")]
    sensors = [sensor for chip in chips for sensor in _sensors(tree.below(chip))]
    sheet = Sheet(asked.past)
    for sensor in sensors:
        _judge(asked, sheet, sensor)
    nearest = min(sensors, key=_room_c, default=None)
    sheet.measured |= {"sensors": len(sensors), "hottest_c": max((each.now_c for each in sensors), default=None)}
    if nearest is None:
        return sheet.outcome("Nothing to look at: this machine shows no temperatures.")
    sheet.measured |= {"nearest": nearest.name, "nearest_c": nearest.now_c, "nearest_limit_c": nearest.critical_c}
    return sheet.outcome(
        f"{len(sensors)} sensors, none at its limit; the hottest has {sheet.measured['hottest_c']:g} °C."
    )


def _room_c(sensor: _Sensor) -> float:
    limits = [limit for limit in (sensor.critical_c, sensor.high_c) if limit is not None]
    return min(limits) - sensor.now_c if limits else MOST_C


def _sensors(tree: Tree) -> list[_Sensor]:
    chip, device = tree.text("name") or "sensor", tree.device("device")
    found = []
    for name in tree.names():
        numbered = _INPUT.fullmatch(name)
        if numbered is None:
            continue
        which = f"temp{numbered[1]}"
        now_c = _degrees(tree, name)
        if now_c is None or not LEAST_C <= now_c <= MOST_C or now_c in UNCONNECTED_C or tree.number(f"{which}_fault"):
            continue
        label = tree.text(f"{which}_label") or which
        critical_c, high_c = _limit(tree, f"{which}_crit"), _limit(tree, f"{which}_max")
        found.append(_Sensor(f"{chip} {label}".strip()[:80], device or chip, now_c, critical_c, high_c))
    return found


def _degrees(tree: Tree, name: str) -> float | None:
    value = tree.number(name)
    return None if value is None else value / 1000


def _limit(tree: Tree, name: str) -> float | None:
    value = _degrees(tree, name)
    return value if value is not None and LEAST_LIMIT_C <= value <= MOST_LIMIT_C else None


def _judge(asked: Asked, sheet: Sheet, sensor: _Sensor) -> None:
    critical = sensor.critical_c is not None and sensor.now_c >= sensor.critical_c
    high = not critical and sensor.high_c is not None and sensor.now_c >= sensor.high_c
    place = f"{sensor.device} {sensor.name}"
    fields = {"device": sensor.device, "module": sensor.name}
    critical_s = asked.past.held_s(f"{place} critical", critical)
    high_s = asked.past.held_s(f"{place} high", high)
    if critical and critical_s >= asked.limit("critical_s"):
        text = f"{sensor.name} has {sensor.now_c:g} °C, at or above its critical {sensor.critical_c:g} °C."
        sheet.stands(Trouble(code="temperature-critical", place=place, evidence=text, fields=fields))
    if high and high_s >= asked.limit("high_s"):
        text = f"{sensor.name} has {sensor.now_c:g} °C, at or above its high mark of {sensor.high_c:g} °C."
        sheet.stands(Trouble(code="temperature-high", place=place, evidence=text, fields=fields))
