"""Faults: which code does a line or an end stand for, and what do findings come to (M9)?

Read first: `words` (classes, actions, a row of the table), `families/` (the table itself), `lines` (from a line to a
code), `judging` (from findings to one judgement).
"""

from reliability.domain.faults.exits import code_for_exit
from reliability.domain.faults.findings import Attempt, Context, Finding, Judgement, Maintenance
from reliability.domain.faults.judging import judge
from reliability.domain.faults.lines import MATCHER, Matcher, match_line
from reliability.domain.faults.radius import RadiusRule, Reach, Sighting
from reliability.domain.faults.table import TABLE, Table, lookup
from reliability.domain.faults.weighing import awaited
from reliability.domain.faults.words import (
    STRENGTH,
    Action,
    FaultClass,
    FaultCode,
    Origin,
    Severity,
    Told,
    Weight,
)

__all__ = [
    "MATCHER",
    "STRENGTH",
    "TABLE",
    "Action",
    "Attempt",
    "Context",
    "FaultClass",
    "FaultCode",
    "Finding",
    "Judgement",
    "Maintenance",
    "Matcher",
    "Origin",
    "RadiusRule",
    "Reach",
    "Severity",
    "Sighting",
    "Table",
    "Told",
    "Weight",
    "awaited",
    "code_for_exit",
    "judge",
    "lookup",
    "match_line",
]
