"""Do the network links of this machine stand, and are they as fast as they were?

Read: class/net/*/{carrier,operstate,speed,device} below /sys. Looked at are devices with hardware of their own, and
those named in `interfaces`. A link counts from the moment it was seen up. One that vanishes was taken away on purpose
(a container got it) as often as it broke: only named ones must be there.
"""

from dataclasses import dataclass

from reliability.agent.collectors.checking import Option, Outcome
from reliability.agent.collectors.checks.asked import Asked
from reliability.agent.collectors.checks.sheet import Sheet, Trouble
from reliability.agent.collectors.checks.tree import Tree

FASTEST_MBPS = 10_000_000
OPTIONS: dict[str, Option] = {
    "root": "/sys",
    "interfaces": "",
    "slow_s": 30.0,
}


@dataclass(frozen=True, slots=True)
class _Link:
    """One interface; `up` is None when that cannot be read. `mbps`: 10^6 bits a second, None where none is told."""

    name: str
    device: str
    state: str
    up: bool | None
    mbps: int | None

    @property
    def fields(self) -> dict[str, str | int]:
        return {"device": self.device, "interface": self.name}


def look(asked: Asked) -> Outcome:
    """Return how it stands with each link."""
    tree = asked.tree().below("class", "net")
    named = {name.strip() for name in str(asked.options["interfaces"]).split(",")} - {""}
    links = [_link(tree.below(name), name) for name in tree.names() if name in named or tree.there(name, "device")]
    sheet = Sheet(asked.past)
    for link in links:
        _judge(asked, sheet, link, must=link.name in named)
    for name in sorted(named - {link.name for link in links}):
        if tree.there() and tree.absent(name):
            text = f"There is no network interface {name}."
            sheet.stands(Trouble(code="net-link-down", place=name, evidence=text, fields={"device": name}))
        else:
            sheet.unknown(f"Interface {name} cannot be seen.")
    sheet.measured |= {
        "links": {link.name: link.state for link in links},
        "mbps": {link.name: link.mbps for link in links if link.mbps is not None},
    }
    if not links and not named:
        return sheet.outcome("Nothing to look at: this machine has no network devices of its own.")
    up = sum(1 for link in links if link.up)
    return sheet.outcome(f"{up} links are up." + (f" {len(links) - up} never were." if up < len(links) else ""))


def _link(tree: Tree, name: str) -> _Link:
    carrier, state, speed = tree.number("carrier"), tree.text("operstate"), tree.number("speed")
    up = carrier == 1 if carrier in (0, 1) else {"up": True, "down": False, "lowerlayerdown": False}.get(state or "")
    return _Link(
        name=name,
        device=tree.device("device") or name,
        state=(state or "cannot be read")[:40],
        up=up,
        mbps=speed if speed is not None and 0 < speed <= FASTEST_MBPS else None,
    )


def _judge(asked: Asked, sheet: Sheet, link: _Link, *, must: bool) -> None:
    if link.up is None:
        if must:
            sheet.unknown(f"Whether {link.name} is up cannot be read.")
        return
    seen = asked.past.highest(f"{link.name} up", 1 if link.up else None)
    expected = asked.past.highest(link.name, link.mbps if link.up else None)
    if not link.up and (must or seen):
        text = f"The link of {link.name} is down ({link.state})" + ("; it was up before." if seen else ".")
        sheet.stands(Trouble(code="net-link-down", place=link.name, evidence=text, fields=link.fields))
    slow = link.up and link.mbps is not None and expected is not None and link.mbps < expected
    held_s = asked.past.held_s(f"{link.name} slow", slow)
    if slow and held_s >= asked.limit("slow_s"):
        text = f"The link of {link.name} runs at {link.mbps} Mb/s; it was {expected} Mb/s before."
        sheet.stands(Trouble(code="net-link-slow", place=link.name, evidence=text, fields=link.fields))
