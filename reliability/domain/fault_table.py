"""Which fault codes are known? Reads the rows of fault_codes.csv, one kind of fault a row.

`codes` lists the codes that share a row, separated by spaces; `xid-39..41` stands for three of them. Class says where
the cause lies, action says what helps, and they differ on purpose: a contained GPU memory error is hardware and yet
only the program needs a restart; a hung system processor of the GPU is software and yet only another node helps.
`weight` is `follow_up` (a consequence of something else), `unexplained` (an end without a known cause) or empty.
"""

import csv
import re
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.resources import files

_RANGE = re.compile(r"(.*?)(\d+)\.\.(\d+)")


@dataclass(frozen=True, kw_only=True)
class Row:
    """One code as it is written in the file; `faults` checks the words."""

    code: str
    fault_class: str
    action: str
    severity: str
    weight: str
    meaning: str
    advice: str


def spread(codes: str) -> list[str]:
    """Return the single codes of a list such as 'xid-8 xid-39..41'."""
    single: list[str] = []
    for code in codes.split():
        ranged = _RANGE.fullmatch(code)
        if ranged is None:
            single.append(code)
        else:
            prefix, first, last = ranged.groups()
            single += [f"{prefix}{number}" for number in range(int(first), int(last) + 1)]
    return single


def rows() -> Iterator[Row]:
    """Yield one row for each code of the file."""
    text = files("reliability.domain").joinpath("fault_codes.csv").read_text(encoding="utf-8")
    for line in csv.DictReader(text.splitlines()):
        for code in spread(line["codes"]):
            yield Row(
                code=code,
                fault_class=line["class"],
                action=line["action"],
                severity=line["severity"],
                weight=line["weight"],
                meaning=line["meaning"],
                advice=line["advice"],
            )
