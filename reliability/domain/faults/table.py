"""Which fault codes are known? All families as one table, checked when it is made, with an admin's changes on top."""

from collections.abc import Iterable, Iterator, Mapping

from reliability.domain.faults.families import (
    accelerators,
    checks,
    collectives,
    exits,
    gloo,
    gpu,
    kernel,
    network,
    ours,
    programs,
    progress,
    storage,
    sxid,
    xid,
)
from reliability.domain.faults.words import Action, FaultClass, FaultCode, Origin, Severity, Weight

PLACES = ("unit", "device", "node")
_SOURCES = {"xid-": "nvidia-xid", "sxid-": "nvidia-sxid", "exit-": "exit-code"}
_FAMILIES = (
    xid,
    sxid,
    gpu,
    accelerators,
    kernel,
    network,
    collectives,
    gloo,
    programs,
    storage,
    exits,
    ours,
    checks,
    progress,
)


def _checked(row: FaultCode) -> FaultCode:
    """Return the row; raise ValueError where it contradicts itself."""
    wrong = ""
    if not row.meaning.endswith(".") or not row.advice.endswith("."):
        wrong = "meaning and advice are whole sentences"
    elif row.weight in (Weight.FOLLOW_UP, Weight.UNEXPLAINED) and row.action is not Action.OBSERVE:
        wrong = f"a code that never decides alone ({row.weight}) asks for no action by itself"
    elif row.debounce_s < 0 or (row.repeat is not None and row.repeat.times < 2):
        wrong = "debounce_s is at least 0 and a repeat at least twice"
    elif row.repeat is not None and row.repeat.place not in PLACES:
        wrong = f"a repeat is counted by one of {PLACES}"
    elif any(not literal for line in row.lines for literal in (*line.literals, *(() if line.literals else ("",)))):
        wrong = "each line names text that it always has"
    if wrong:
        raise ValueError(f"fault code {row.code}: {wrong}")
    return row


class Table(Mapping[str, FaultCode]):
    """Fault codes by name. Raises ValueError for a code that is there twice or a row that contradicts itself."""

    def __init__(self, rows: Iterable[FaultCode]) -> None:
        self._rows: dict[str, FaultCode] = {}
        for row in rows:
            if row.code in self._rows:
                raise ValueError(f"fault code {row.code} has two rows")
            self._rows[row.code] = _checked(row)
        for row in self._rows.values():
            if row.clears and row.clears not in self._rows:
                raise ValueError(f"fault code {row.code} clears {row.clears!r}, which is no code")
        self.in_order = frozenset(code for row in self._rows.values() if row.clears for code in (row.code, row.clears))
        """Codes that end a condition, or are ended: what such findings mean depends on which came first."""

    def __getitem__(self, code: str) -> FaultCode:
        return self._rows[code]

    def __iter__(self) -> Iterator[str]:
        return iter(self._rows)

    def __len__(self) -> int:
        return len(self._rows)

    def lookup(self, code: str) -> FaultCode:
        """Return the row of a code. A code the table does not know is harmless: class unknown, only observed."""
        known = self._rows.get(code)
        if known is not None:
            return known
        return FaultCode(
            code=code,
            source=next((source for prefix, source in _SOURCES.items() if code.startswith(prefix)), ""),
            meaning="A code the fault table does not know.",
            fault_class=FaultClass.UNKNOWN,
            action=Action.OBSERVE,
            severity=Severity.WARNING,
            advice="Nothing is done because of it; look it up and tell us.",
            origin=Origin.TOOL,
        )

    def changed(self, rows: Iterable[FaultCode]) -> "Table":
        """Return the table with these rows in place of those of the same code, and new ones behind the others."""
        merged = {**self._rows}
        for row in rows:
            merged[row.code] = row
        return Table(merged.values())


TABLE = Table(row for each in _FAMILIES for row in each.ROWS)
"""Every known fault code, as shipped."""


def lookup(code: str) -> FaultCode:
    """Return the row of a code of the table as shipped; one it does not know is harmless."""
    return TABLE.lookup(code)
