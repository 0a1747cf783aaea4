"""Does the machine's memory make errors? Counters of the kernel's EDAC, for each module.

Read: devices/system/edac/mc/mc*/ below /sys: ue_count, ce_count, and of each dimm*/ or rank*/ its counts and label. An
uncorrected error is a fault; corrected ones warn when a module makes many within a day.
"""

from dataclasses import dataclass

from reliability.agent.collectors.checking import Option, Outcome
from reliability.agent.collectors.checks.asked import Asked
from reliability.agent.collectors.checks.sheet import Sheet, Trouble
from reliability.agent.collectors.checks.tree import Tree

DAY_S = 86_400.0
OPTIONS: dict[str, Option] = {
    "root": "/sys",
    "corrected_per_day": 50.0,
}


@dataclass(frozen=True, slots=True)
class _Module:
    """One memory module, or what a controller could tie to none. `named` is how the kernel's own lines name it."""

    key: str
    controller: str
    named: str
    uncorrected: int | None
    corrected: int | None


def look(asked: Asked) -> Outcome:
    """Return how many errors each module made since the look before, and in the last day."""
    tree = asked.tree().below("devices", "system", "edac", "mc")
    controllers = [name for name in tree.names() if name.startswith("mc") and name[2:].isdecimal()]
    sheet = Sheet(asked.past)
    sheet.measured |= {"controllers": len(controllers), "uncorrected": 0, "corrected": 0}
    for name in controllers:
        _controller(asked, sheet, tree.below(name), name)
    expected = asked.past.highest("controllers", len(controllers) or None)
    if not controllers and expected:
        sheet.unknown("The memory controllers are not watched any more.")
    if not controllers:
        return sheet.outcome("Nothing to look at: this machine does not count memory errors.")
    return sheet.outcome(f"{sheet.measured['corrected']} corrected errors so far, none uncorrected in the last day.")


def _controller(asked: Asked, sheet: Sheet, tree: Tree, name: str) -> None:
    total = _Module(name, name.upper(), "", tree.number("ue_count"), tree.number("ce_count"))
    if total.uncorrected is None and total.corrected is None:
        sheet.unknown(f"The counters of memory controller {name.upper()} cannot be read.")
        return
    rises = {each.key: _rises(asked, each) for each in (total, *_modules(tree, name))}
    of_total = rises.pop(name)
    of_modules = [sum(values) for values in zip(*rises.values(), strict=True)] or [0, 0]
    rest = (max(of_total[0] - of_modules[0], 0), max(of_total[1] - of_modules[1], 0))
    sheet.measured["uncorrected"] += total.uncorrected or 0
    sheet.measured["corrected"] += total.corrected or 0
    for module in _modules(tree, name):
        _judge(asked, sheet, module, *rises[module.key])
    _judge(asked, sheet, total, *rest)


def _modules(tree: Tree, controller: str) -> list[_Module]:
    folders = [name for name in tree.names() if name.startswith(("dimm", "rank")) and name[4:].isdecimal()]
    return [
        _Module(
            key=f"{controller}/{name}",
            controller=controller.upper(),
            named=tree.text(name, "dimm_label") or name,
            uncorrected=tree.number(name, "dimm_ue_count"),
            corrected=tree.number(name, "dimm_ce_count"),
        )
        for name in folders
    ]


def _rises(asked: Asked, module: _Module) -> tuple[int, int]:
    uncorrected = asked.past.rise(f"{module.key} ue", module.uncorrected, from_zero=True)
    return uncorrected, asked.past.rise(f"{module.key} ce", module.corrected, from_zero=True)


def _judge(asked: Asked, sheet: Sheet, module: _Module, uncorrected: int, corrected: int) -> None:
    where = f"memory controller {module.controller}" + (f", module {module.named}" if module.named else "")
    fields = {"controller": module.controller, **({"module": module.named} if module.named else {})}
    place = module.key
    if uncorrected:
        text = f"EDAC counted {uncorrected} uncorrected memory errors at {where}."
        sheet.happened(Trouble(code="memory-uncorrected", place=place, evidence=text, count=uncorrected, fields=fields))
    today = asked.past.within(f"{place} ue", uncorrected, DAY_S)
    if today:
        text = f"{today} uncorrected memory errors in a day at {where}."
        sheet.stands(Trouble(code="memory-uncorrected", place=place, evidence=text, silent=True, fields=fields))
    many = asked.past.within(f"{place} ce", corrected, DAY_S)
    if many >= asked.limit("corrected_per_day"):
        text = f"{many} corrected memory errors in a day at {where}."
        sheet.stands(Trouble(code="memory-corrected", place=place, evidence=text, ends=False, fields=fields))
