"""Which metrics of exporters tell of faults, and what is each of them read as?

DCGM's field names are those of its exporter; what is not listed here means nothing and is only counted. The last Xid of
a GPU stays in its metric for ever, so that the same Xid again cannot be seen there: DCGM_EXP_XID_ERRORS_COUNT can.
Times come in the unit that the HELP line names; without one they mean nothing.
"""

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from reliability.domain.faults import TABLE
from reliability.domain.monitors.exposition import Sample
from reliability.domain.monitors.naming import DETECTOR_REASONS, MOST_XID, device_of, slug, xid_number
from reliability.domain.monitors.words import DCGM, NPD, How, Reading, Said

NODE_LABELS = ("Hostname", "hostname", "node", "kubernetes_node", "node_name", "instance")
_UNIT = re.compile(r"\(in (ns|us|ms|s)\)")
_SECONDS = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0}
_NO_VALUE = 2**31 - 17
"""DCGM's blank numbers begin there; counters of errors and codes never get so far."""
_XID_LABELS = ("xid", "err_code")


@dataclass(frozen=True)
class Rule:
    """What a metric is read as; `least` is how much of a rise or share is news."""

    how: How
    code: str
    least: float = 1.0


_LINKS = Rule(How.COUNTER, "dcgm-link-errors", 100)
RULES: Mapping[str, Rule] = {
    "DCGM_FI_DEV_XID_ERRORS": Rule(How.LAST, "xid"),
    "DCGM_EXP_XID_ERRORS_COUNT": Rule(How.WINDOW, "xid"),
    "DCGM_FI_DEV_XID_ERRORS_ACTIVE": Rule(How.WINDOW, "xid"),
    "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL": Rule(How.COUNTER, "dcgm-double-bit"),
    "DCGM_FI_DEV_ECC_DBE_AGG_TOTAL": Rule(How.COUNTER, "dcgm-double-bit"),
    "DCGM_FI_DEV_RETIRED_SBE": Rule(How.COUNTER, "dcgm-page-retired"),
    "DCGM_FI_DEV_RETIRED_DBE": Rule(How.COUNTER, "dcgm-page-retired"),
    "DCGM_FI_DEV_RETIRED_PENDING": Rule(How.FLAG, "gpu-remap-pending"),
    "DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS": Rule(How.COUNTER, "dcgm-row-remapped"),
    "DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS": Rule(How.COUNTER, "dcgm-row-remapped"),
    "DCGM_FI_DEV_ROW_REMAP_FAILURE": Rule(How.FLAG, "gpu-remap-failed"),
    "DCGM_FI_DEV_ROW_REMAP_PENDING": Rule(How.FLAG, "gpu-remap-pending"),
    "DCGM_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL": _LINKS,
    "DCGM_FI_DEV_NVLINK_CRC_DATA_ERROR_COUNT_TOTAL": _LINKS,
    "DCGM_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL": _LINKS,
    "DCGM_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL": Rule(How.COUNTER, "dcgm-link-errors"),
    "DCGM_FI_DEV_THERMAL_VIOLATION": Rule(How.SHARE, "dcgm-hot", 0.05),
    "DCGM_FI_DEV_POWER_VIOLATION": Rule(How.SHARE, "dcgm-power-limited", 0.5),
}
"""Metrics of DCGM's exporter. The code `xid` stands for the Xid that the value or a label names."""
PROBLEMS: Mapping[str, How] = {"problem_counter": How.COUNTER, "problem_gauge": How.FLAG}
"""Metrics of the node problem detector: labels `reason`, and `type` of a condition."""


def read(samples: Iterable[Sample]) -> Said:
    """Return what the samples say. Raises InvalidInput for one that cannot be read."""
    said = Said()
    newest: dict[tuple[str, str, str], Reading] = {}
    for sample in samples:
        reading = _reading(sample)
        if isinstance(reading, str):
            said.ignored[reading] += 1
            continue
        place = (reading.node, reading.source, reading.key)
        known = newest.get(place)  # the same GPU again for each of its instances: the largest of them
        if known is None or reading.value > known.value:
            newest[place] = reading
    said.items.extend(newest.values())
    return said


def _reading(sample: Sample) -> Reading | str:
    """Return a reading, or in one word why the sample means nothing here."""
    if sample.name in PROBLEMS:
        return _problem(sample)
    rule = RULES.get(sample.name)
    if rule is None:
        return "metric not known"
    factor = _seconds(sample.help) if rule.how is How.SHARE else 1.0
    if factor is None:
        return "no unit in HELP"
    if not _is_value(sample.value, rule.how) or not _may_be_told(sample.value, rule):
        return "no value"
    labels = sample.labels
    device = device_of(labels)
    code = _code(rule, sample)
    part = f"|{code}" if rule.how is How.WINDOW else ""
    return Reading(
        where=f"line {sample.line}",
        source=DCGM,
        node=_node(labels),
        uuid=labels.get("UUID") or labels.get("uuid") or "",
        key=f"{sample.name}|{device}{part}"[:200],
        how=rule.how,
        code=code,
        metric=sample.name,
        value=sample.value * factor,
        device=device,
        least=rule.least,
    )


def _is_value(value: float, how: How) -> bool:
    return math.isfinite(value) and value >= 0 and (how is How.SHARE or value < _NO_VALUE) and value < 2**62


def _may_be_told(value: float, rule: Rule) -> bool:
    """Return whether a value of Xids is a number of lines, or, where it names one, the number of one, or 0 for none."""
    return rule.code != "xid" or (value.is_integer() and (rule.how is not How.LAST or value <= MOST_XID))


def _code(rule: Rule, sample: Sample) -> str:
    """Return the code; of a metric that tells the last Xid it is made of the value when that is news."""
    if rule.code != "xid" or rule.how is How.LAST:
        return rule.code
    named = (xid_number(sample.labels.get(name, "")) for name in _XID_LABELS)
    number = next((each for each in named if each is not None), None)
    return "xid-unnamed" if number is None else xid_code(number)


def xid_code(number: int) -> str:
    """Return the fault code of an Xid of which only the number is known."""
    unsaid = f"xid-{number}-unstated"
    return unsaid if unsaid in TABLE else f"xid-{number}"


def _seconds(told: str) -> float | None:
    found = _UNIT.search(told)
    return _SECONDS[found[1]] if found else None


def _node(labels: Mapping[str, str]) -> str:
    return next((labels[name] for name in NODE_LABELS if labels.get(name)), "")[:255]


def _problem(sample: Sample) -> Reading | str:
    reason = sample.labels.get("reason", "")
    if not reason or not _is_value(sample.value, How.COUNTER):
        return "no value"
    return Reading(
        where=f"line {sample.line}",
        source=NPD,
        node=_node(sample.labels),
        key=f"{sample.name}|{sample.labels.get('type', '')}|{reason}"[:200],
        how=PROBLEMS[sample.name],
        code=DETECTOR_REASONS.get(reason) or slug("npd", reason),
        metric=f"{sample.name} of {reason[:80]}",
        value=sample.value,
    )
