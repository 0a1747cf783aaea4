"""Is there memory left, and does the machine wait for memory or disks instead of computing?

Read: meminfo, pressure/{memory,io,cpu} and loadavg below /proc. The load says nothing by itself (it counts who waits
for disks too): it is shown per core and never judged.
"""

import os
import re

from reliability.agent.collectors.checking import Option, Outcome
from reliability.agent.collectors.checks.asked import Asked
from reliability.agent.collectors.checks.sheet import Sheet, Trouble
from reliability.agent.collectors.checks.tree import Tree, ratio

OPTIONS: dict[str, Option] = {
    "root": "/proc",
    "low_share": 0.03,
    "memory_full_share": 0.2,
    "io_full_share": 0.9,
    "held_s": 60.0,
    "io_held_s": 300.0,
}
_AMOUNT = re.compile(r"(\w+(?:\(\w+\))?):\s+([0-9]{1,15}) kB")
_PRESSURE = re.compile(r"(some|full) avg10=\S+ avg60=([0-9]{1,3}(?:\.[0-9]{1,4})?) avg300=\S+ total=[0-9]+")


def look(asked: Asked) -> Outcome:
    """Return how it stands with memory and pressure."""
    sheet, tree = Sheet(asked.past), asked.tree()
    _memory(asked, sheet, tree)
    _waiting(asked, sheet, tree)
    loads = (tree.text("loadavg") or "").split()
    load = ratio(loads[0]) if loads else None
    sheet.measured["load_per_core"] = None if load is None else load / (os.cpu_count() or 1)
    return sheet.outcome(f"{_percent(sheet.measured.get('available_share'))} of memory is available.")


def _memory(asked: Asked, sheet: Sheet, tree: Tree) -> None:
    amounts = {name: int(kib) * 1024 for name, kib in _AMOUNT.findall(tree.text("meminfo") or "")}
    total, available = amounts.get("MemTotal", 0), amounts.get("MemAvailable")
    if not total or available is None or available > total:
        sheet.unknown("meminfo cannot be read.")
        return
    share = available / total
    sheet.measured |= {"total_bytes": total, "available_bytes": available, "available_share": share}
    limit = asked.limit("low_share")
    held_s = asked.past.held_s("low", share < limit)
    if share < limit and held_s >= asked.limit("held_s"):
        text = f"Only {_percent(share)} of memory is available, below {_percent(limit)} for {held_s:.0f} s."
        sheet.stands(Trouble(code="memory-low", place="memory", evidence=text))
    _retired(asked, sheet, amounts.get("HardwareCorrupted"))


def _retired(asked: Asked, sheet: Sheet, bad_bytes: int | None) -> None:
    """Pages that the kernel found damaged and took out of use; the count begins anew with each start of the machine."""
    sheet.measured["damaged_bytes"] = bad_bytes
    risen = asked.past.rise("damaged", bad_bytes, from_zero=True)
    if risen:
        text = f"The kernel took {risen // 1024} KiB of damaged memory out of use, {(bad_bytes or 0) // 1024} in all."
        sheet.happened(Trouble(code="memory-pages-lost", place="memory", evidence=text))


def _waiting(asked: Asked, sheet: Sheet, tree: Tree) -> None:
    for what, code in (("memory", "memory-pressure"), ("io", "io-pressure")):
        share = _full_share(tree, what)
        sheet.measured[f"{what}_full_share"] = share
        limit = asked.limit(f"{what}_full_share")
        least_s = asked.limit("held_s" if what == "memory" else "io_held_s")
        stands = share is not None and share >= limit
        held_s = asked.past.held_s(code, stands)
        if stands and held_s >= least_s:
            waited = "memory" if what == "memory" else "disks"
            text = f"Everything waited for {waited} {_percent(share)} of the time, for {held_s:.0f} s."
            sheet.stands(Trouble(code=code, place=what, evidence=text))


def _full_share(tree: Tree, what: str) -> float | None:
    """Return which share of the last minute all that could run waited, None where the kernel does not tell."""
    for kind, average in _PRESSURE.findall(tree.text("pressure", what) or ""):
        if kind == "full" and float(average) <= 100:
            return float(average) / 100
    return None


def _percent(share: float | None) -> str:
    return "an unknown part" if share is None else f"{100 * share:.1f} %"
