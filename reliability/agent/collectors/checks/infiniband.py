"""Are the ports of the InfiniBand and RoCE adapters up, as fast as they were, and free of errors?

Read: class/infiniband/*/ports/*/{state,phys_state,rate,link_layer,counters/*} below /sys. A port counts from the moment
it was seen active: one that never was is not used. The rate to expect is the highest that was seen twice in a row.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from reliability.agent.collectors.checking import Option, Outcome
from reliability.agent.collectors.checks.asked import Asked
from reliability.agent.collectors.checks.sheet import Sheet, Trouble
from reliability.agent.collectors.checks.tree import Tree

HOUR_S = 3600.0
FLAP_WINDOW_S = 600.0
OPTIONS: dict[str, Option] = {
    "root": "/sys",
    "ports": 0.0,
    "gbps": 0.0,
    "symbol_errors_per_hour": 120.0,
    "receive_errors_per_hour": 120.0,
    "flaps": 3.0,
    "slow_s": 20.0,
}
_STATE = re.compile(r"([0-9]{1,2}): ?(\w+)")
_RATE = re.compile(r"([0-9]{1,5}(?:\.[0-9]{1,3})?) Gb/sec\b.*")
_COUNTERS = ("symbol_error", "link_downed", "port_rcv_errors")
_LINK_ERRORS = (
    ("symbol_error", "symbol_errors_per_hour", "symbol errors"),
    ("port_rcv_errors", "receive_errors_per_hour", "faulty packets"),
)


@dataclass(frozen=True, slots=True)
class _Port:
    """One port: `active` None when its state cannot be read. `gbps`: its rate, 10^9 bits a second."""

    name: str
    device: str
    state: str
    active: bool | None
    gbps: float | None
    counters: Mapping[str, int | None]

    @property
    def fields(self) -> dict[str, str | int]:
        return {"device": self.device, "port": self.name}


def look(asked: Asked) -> Outcome:
    """Return how it stands with each port."""
    tree = asked.tree().below("class", "infiniband")
    ports = [port for adapter in tree.names() for port in _ports(tree.below(adapter), adapter)]
    sheet = Sheet(asked.past)
    for port in ports:
        _judge(asked, sheet, port)
    _gone(asked, sheet, tree, {port.name for port in ports})
    active = sum(1 for port in ports if port.active)
    _missing(asked, sheet, tree, [port.active for port in ports])
    rates = [port.gbps for port in ports if port.active and port.gbps is not None]
    sheet.measured |= {
        "ports": len(ports),
        "active": active,
        "lowest_gbps": min(rates, default=None),
        "states": {port.name: port.state for port in ports},
    }
    if not ports and not asked.past.known() and not asked.limit("ports"):
        return sheet.outcome("Nothing to look at: this machine has no InfiniBand ports.")
    others = f" {len(ports) - active} never were." if active < len(ports) else ""
    return sheet.outcome(f"{active} ports are active.{others}")


def _missing(asked: Asked, sheet: Sheet, tree: Tree, active: list[bool | None]) -> None:
    """Fewer active ports than an operator wants; what cannot be read is not missing."""
    wanted = int(asked.limit("ports"))
    if sum(each is not False for each in active) >= wanted:
        return
    if tree.hidden() or not asked.tree().there("class"):
        sheet.unknown("The ports cannot be seen.")
        return
    text = f"only {sum(map(bool, active))} port(s) are active, expect >={wanted} port(s)"
    sheet.stands(Trouble(code="ib-ports-missing", place="ports", evidence=text))


def _gone(asked: Asked, sheet: Sheet, tree: Tree, here: set[str]) -> None:
    """A port that was active and of which there is no trace any more is down too."""
    for name in sorted(set(asked.past.known()) - here):
        adapter, _, number = name.partition("/")
        if asked.tree().there("class") and tree.absent(adapter, "ports", number):
            text = f"Port {name} is gone; it was active before."
            sheet.stands(Trouble(code="ib-port-down", place=name, evidence=text, fields={"device": adapter}))
        else:
            sheet.unknown(f"Port {name} cannot be seen any more.")


def _ports(tree: Tree, adapter: str) -> list[_Port]:
    return [_port(tree.below("ports", number), adapter, number) for number in tree.names("ports") if number.isdecimal()]


def _port(tree: Tree, adapter: str, number: str) -> _Port:
    state, physical = (_STATE.fullmatch(tree.text(name) or "") for name in ("state", "phys_state"))
    rate = _RATE.fullmatch(tree.text("rate") or "")
    words = ", ".join(found[2] for found in (state, physical) if found)
    return _Port(
        name=f"{adapter}/{number}",
        device=Tree(tree.root).device("..", "..", "device") or adapter,
        state=words or "cannot be read",
        active=state[2] == "ACTIVE" if state else None,
        gbps=float(rate[1]) if rate else None,
        counters={name: tree.number("counters", name) for name in _COUNTERS},
    )


def _judge(asked: Asked, sheet: Sheet, port: _Port) -> None:
    if port.active is None:
        sheet.unknown(f"The state of port {port.name} cannot be read.")
        return
    expected = asked.past.highest(port.name, port.gbps if port.active else None)
    losses = asked.past.rise(f"{port.name} link_downed", port.counters["link_downed"])
    if expected is None:
        return
    if not port.active:
        text = f"Port {port.name} is down ({port.state}); it was active before."
        sheet.stands(Trouble(code="ib-port-down", place=port.name, evidence=text, fields=port.fields))
    _flapping(asked, sheet, port, losses)
    _slow(asked, sheet, port, asked.limit("gbps") or expected)
    _errors(asked, sheet, port)


def _flapping(asked: Asked, sheet: Sheet, port: _Port, losses: int) -> None:
    lately = asked.past.within(f"{port.name} losses", losses, FLAP_WINDOW_S)
    if lately >= asked.limit("flaps"):
        text = f"Port {port.name} lost its link {lately} times within ten minutes."
        sheet.stands(Trouble(code="ib-flapping", place=port.name, evidence=text, fields=port.fields))


def _slow(asked: Asked, sheet: Sheet, port: _Port, expected: float) -> None:
    slow = bool(port.active) and port.gbps is not None and port.gbps < expected
    held_s = asked.past.held_s(f"{port.name} slow", slow)
    if slow and held_s >= asked.limit("slow_s"):
        text = f"Port {port.name} runs at {port.gbps:g} Gb/s; {expected:g} Gb/s are expected."
        sheet.stands(Trouble(code="ib-port-slow", place=port.name, evidence=text, fields=port.fields))


def _errors(asked: Asked, sheet: Sheet, port: _Port) -> None:
    for counter, limit, what in _LINK_ERRORS:
        risen = asked.past.rise(f"{port.name} {counter}", port.counters[counter])
        lately = asked.past.within(f"{port.name} {counter}", risen, HOUR_S)
        if lately > asked.limit(limit):
            text = f"Port {port.name} counted {lately} {what} in the last hour."
            fields = {**port.fields, "counter": counter}
            trouble = Trouble(code="ib-port-errors", place=f"{port.name} {counter}", evidence=text, fields=fields)
            sheet.stands(trouble)
