"""What Stepkeeper itself finds: nodes, containers, checks, snapshots. No line of a log stands for these codes.

The rows are in `reliability/domain/fault_codes.csv`, one code a line. `weight` is a word of `Weight`, empty for plain.
"""

import csv
from collections.abc import Iterator
from importlib.resources import files

from reliability.domain.faults.families.rows import family, row
from reliability.domain.faults.words import Action, FaultClass, FaultCode, Origin, Severity, Weight


def _rows() -> Iterator[FaultCode]:
    text = files("reliability.domain").joinpath("fault_codes.csv").read_text(encoding="utf-8")
    for line in csv.DictReader(text.splitlines()):
        yield row(
            line["code"],
            FaultClass(line["class"]),
            Action(line["action"]),
            Severity(line["severity"]),
            line["meaning"],
            line["advice"],
            weight=Weight(line["weight"] or "plain"),
        )


ROWS = family("stepkeeper", Origin.TOOL, *_rows())
