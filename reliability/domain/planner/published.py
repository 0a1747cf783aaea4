"""What did published training runs report, and does this planner agree with them?

One table per source: published figures stand in a column of their own beside what this package computes from the
published inputs, in the units of the source. The formulas of other authors are in `rules` and offered here too.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from reliability.domain.planner import exact, first_order
from reliability.domain.planner.inputs import Inputs
from reliability.domain.planner.levels import mean_rollback
from reliability.domain.planner.rules import (
    QueuedJob,
    daly_2006,
    ettr_with_queue,
    ettr_with_queue_exact,
    meta_ettr,
    meta_optimum,
    meta_period,
    saxena_period,
)
from reliability.domain.planner.spares import binomial_standbys, standbys_for
from reliability.domain.planner.values import DAY_S, WEEK_S
from reliability.errors import InvalidInput

__all__ = [
    "TABLES",
    "QueuedJob",
    "Table",
    "bloom",
    "byterobust",
    "daly_2006",
    "ettr_with_queue",
    "ettr_with_queue_exact",
    "llama3",
    "meta",
    "meta_ettr",
    "meta_optimum",
    "meta_period",
    "opt175b",
    "periods",
    "saxena_period",
    "table",
]

_MIN_S, _HOUR_S = 60.0, 3600.0

Cell = str | int | float | None
_COLUMNS = ("figure", "unit", "published", "computed")

_LLAMA3_CAUSES = (
    ("faulty GPU", 148, 30.1),
    ("GPU memory (HBM3)", 72, 17.2),
    ("software", 54, 12.9),
    ("network switch or cable", 35, 8.4),
    ("host maintenance", 32, 7.6),
    ("GPU SRAM", 19, 4.5),
    ("GPU system processor", 17, 4.1),
    ("network card", 7, 1.7),
    ("NCCL watchdog timeout", 7, 1.7),
    ("silent data corruption", 6, 1.4),
    ("GPU thermal interface or sensor", 6, 1.4),
    ("SSD", 3, 0.7),
    ("power supply", 3, 0.7),
    ("server chassis", 2, 0.5),
    ("IO expansion board", 2, 0.5),
    ("dependency", 2, 0.5),
    ("CPU", 2, 0.5),
    ("system memory", 2, 0.5),
)


@dataclass(frozen=True, slots=True)
class Table:
    """Published figures beside computed ones: plain values, rows as long as columns, None where there is no figure."""

    title: str
    source: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    notes: tuple[str, ...] = ()


def llama3() -> Table:
    """Return the interruptions of the Llama 3 405B run by cause, its rate, and what the target of 0.90 leaves.

    54 days, 16,384 GPUs in 2048 nodes, 419 unexpected and 47 planned interruptions; a restart of 10 min is assumed
    for the limits of the stall.
    """
    days, nodes, planned, target = 54, 2048, 47, 0.90
    unexpected = sum(count for _, count, _ in _LLAMA3_CAUSES)
    lost_min = (1 - target) * days * DAY_S / _MIN_S
    mtbf_s = days * DAY_S / unexpected
    job = Inputs(save_stall_s=60.0, mtbf_s=mtbf_s, recovery_s=10 * _MIN_S, target=target)
    causes = tuple((name, count, "%", printed, 100 * count / unexpected) for name, count, printed in _LLAMA3_CAUSES)
    figures: tuple[tuple[Cell, ...], ...] = (
        ("all unexpected interruptions", unexpected, "count", 419, unexpected),
        ("planned interruptions", planned, "count", 47, None),
        ("mean time between unexpected interruptions", None, "h", None, mtbf_s / _HOUR_S),
        ("rate per 1000 node-days", None, "count", None, 1000 * unexpected / (nodes * days)),
        ("budget per unexpected interruption at 0.90", None, "min", None, lost_min / unexpected),
        ("budget per interruption with the planned ones", None, "min", None, lost_min / (unexpected + planned)),
        ("longest save stall for 0.90, recovery 10 min", None, "s", None, exact.plan(job).limits.save_stall_s),
        ("the same by first order", None, "s", None, first_order.plan(job).limits.save_stall_s),
    )
    return Table(
        title="Llama 3 405B: 54 days on 16,384 GPUs",
        source='Grattafiori et al. 2024, "The Llama 3 Herd of Models", table 5',
        columns=("figure", "count", "unit", "published", "computed"),
        rows=causes + figures,
        notes=(
            "The causes add to 419. The printed share of faulty GPUs does not follow from its count; trust the count.",
            "The budget is all that one interruption may cost, its part of the saves included.",
        ),
    )


def bloom() -> Table:
    """Return what saving every 3 hours cost BLOOM: 48 nodes, 4 spares, 1 to 2 GPU faults a week."""
    period_s, stall_s, standbys = 3 * _HOUR_S, 40.0, 4
    rows: list[tuple[Cell, ...]] = [
        ("nodes", "count", 48, None),
        ("standbys", "count", standbys, None),
        ("period of saves", "h", 3.0, None),
        ("work lost per fault: half a period", "h", 1.5, mean_rollback(period_s, 0.0) / _HOUR_S),
    ]
    for per_week in (1, 2):
        mtbf_s = WEEK_S / per_week
        job = Inputs(save_stall_s=stall_s, mtbf_s=mtbf_s, recovery_s=0.0, target=0.9)
        best = exact.plan(job)
        told = f"at {per_week} GPU fault{'s' * (per_week - 1)} a week"
        rows += [
            (f"mean time between faults {told}", "h", None, mtbf_s / _HOUR_S),
            (f"rate with saves every 3 h {told}", "share", None, exact.ettr_at(job, period_s)),
            (f"best period {told}", "h", None, None if best.period_s is None else best.period_s / _HOUR_S),
            (f"rate with the best period {told}", "share", None, best.ettr_max),
            (
                f"longest repair with a standby for 99 of 100 faults {told}",
                "days",
                None,
                _covered_days(mtbf_s, standbys),
            ),
        ]
    return Table(
        title="BLOOM 176B: saves every 3 hours on 48 nodes",
        source='BigScience 2022, "The Technology Behind BLOOM Training"',
        columns=_COLUMNS,
        rows=tuple(rows),
        notes=(
            "A save stalls for 40 s (Bekman, Machine Learning Engineering Open Book).",
            "Rates are what saves and rollback leave; the published stops of 5 to 10 hours come on top.",
        ),
    )


def _covered_days(mtbf_s: float, standbys: int, missed: float = 0.01) -> float:
    """Return the longest mean repair, in days, with which so many standbys are missed by that share of faults."""
    low, high = 0.0, 1000.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if standbys_for(middle, missed) <= standbys else (low, middle)
    return low * mtbf_s / DAY_S


def byterobust() -> Table:
    """Return ByteRobust's warm standbys (99th percentile of machines down at once) and its budget per incident."""
    published = {128: 2, 256: 2, 512: 3, 1024: 4}
    fitting = [
        p / 1e5
        for p in range(80, 160)
        if all(binomial_standbys(machines, p / 1e5) == count for machines, count in published.items())
    ]
    days, incidents, kept = 90, 175, 0.97
    mtbf_s = days * DAY_S / incidents
    rows: list[tuple[Cell, ...]] = [
        (f"standbys for {machines} machines", "count", count, binomial_standbys(machines, 0.0012))
        for machines, count in published.items()
    ]
    rows += [
        ("least share of machines down that gives all four", "share", None, fitting[0]),
        ("largest share that does", "share", None, fitting[-1]),
        ("mean time between incidents, dense job", "h", None, mtbf_s / _HOUR_S),
        ("budget per incident at 0.97, dense job", "min", None, (1 - kept) * mtbf_s / _MIN_S),
    ]
    for name, stall_s in (("Megatron", 12.98), ("memory", 0.18), ("ByteRobust", 0.02)):
        best = exact.plan(Inputs(save_stall_s=stall_s, mtbf_s=mtbf_s, recovery_s=0.0, target=0.9))
        rows.append((f"blocking time of a save, {name}", "s", stall_s, None))
        rows.append((f"best rate with that stall, {name}", "share", None, best.ettr_max))
    return Table(
        title="ByteRobust: standbys and incidents on 9600 GPUs",
        source='Wan et al. 2025, "Robust LLM Training Infrastructure at ByteDance"',
        columns=_COLUMNS,
        rows=tuple(rows),
        notes=(
            "Computed standbys: each machine is down with probability 0.0012 on its own. Faults of a switch take 32 "
            "machines at once and are outside this law.",
            "Three months are taken as 90 days; best rates are what saves and rollback leave.",
        ),
    )


def meta() -> Table:
    """Return Meta's projected times to failure and expected ETTR, with the exact rate beside their formula."""
    published_h = {1024: 7.9, 16_384: 1.8, 131_072: 0.23}
    rows: list[tuple[Cell, ...]] = [
        (f"mean time to failure of {gpus} GPUs", "h", hours, DAY_S / (gpus / 8 * 6.5e-3) / _HOUR_S, None)
        for gpus, hours in published_h.items()
    ]
    for name, nodes, per_node_day, restart_min, work_min, write_s, told in (
        ("16,384 GPUs, 60 min between writes", 2048, 6.5e-3, 5, 60, 0.0, None),
        ("16,384 GPUs, 5 min between writes", 2048, 6.5e-3, 5, 5, 0.0, 0.93),
        ("12,000 GPUs, writes of 10 s", 1500, 6.5e-3, 5, None, 10.0, 0.9),
        ("12,000 GPUs, writes of 5 min, 1 fault in 1000 node-days", 1500, 1e-3, 5, None, 300.0, 0.9),
        ("100,000 GPUs, restart and work of 2 min", 12_500, 2.34e-3, 2, 2, 0.0, 0.9),
    ):
        faults = nodes * per_node_day / DAY_S
        work_s = (meta_period(faults, write_s) or 0.0) if work_min is None else work_min * _MIN_S
        restart_s = restart_min * _MIN_S
        job = Inputs(save_stall_s=write_s, mtbf_s=1 / faults, recovery_s=restart_s, target=0.9)
        theirs = meta_ettr(faults, restart_s, work_s, write_s)
        rows.append((f"ETTR, {name}", "share", told, theirs, exact.ettr_at(job, work_s + write_s)))
    return Table(
        title="Meta's research clusters: projected times to failure and expected ETTR",
        source='Kokolis et al. 2025, "Revisiting Reliability in Large-Scale Machine Learning Research Clusters"',
        columns=(*_COLUMNS, "exact"),
        rows=tuple(rows),
        notes=(
            "Computed from 6.5 faults in 1000 node-days of 8 GPUs (RSC-1), 2.34 for 100,000 GPUs (RSC-2).",
            "The 7.9 h of 1024 GPUs were measured; they do not follow from the rate of nodes: jobs have more faults.",
        ),
    )


def opt175b() -> Table:
    """Return the rate of faults and the waste of OPT-175B: 992 GPUs, about 61 days, 35 manual and 70 other restarts."""
    gpus, days, manual, automatic, wasted_h = 992, 61, 35, 70, 178_000
    hours = days * 24
    return Table(
        title="OPT-175B: two months on 992 GPUs",
        source='Zhang et al. 2022, "OPT: Open Pre-trained Transformer Language Models"; Wang et al. 2023, "GEMINI"',
        columns=_COLUMNS,
        rows=(
            ("manual restarts", "count", manual, None),
            ("automatic restarts", "count", automatic, None),
            ("mean time between restarts", "h", None, hours / (manual + automatic)),
            ("wasted GPU-hours", "h", wasted_h, None),
            ("wasted share", "share", None, wasted_h / (gpus * hours)),
            ("rate at most", "share", None, 1 - wasted_h / (gpus * hours)),
        ),
        notes=("At least 35 manual and about 70 automatic restarts, about two months: figures to two digits.",),
    )


def periods() -> Table:
    """Return published best periods beside the exact one: Daly's three examples and the rule of Saxena et al."""
    rows: list[tuple[Cell, ...]] = []
    for hours, published_min in ((24.0, 117.0), (6.0, 57.0), (0.25, 9.1)):
        work_s = exact.plan(Inputs(save_stall_s=300.0, mtbf_s=hours * _HOUR_S, recovery_s=600.0, target=0.5)).work_s
        rule_min = daly_2006(300.0, hours * _HOUR_S) / _MIN_S
        told = f"Daly 2006, work between saves, a fault in {hours:g} h"
        rows.append((told, "min", published_min, rule_min, None if work_s is None else work_s / _MIN_S))
    best = exact.plan(job := Inputs(save_stall_s=300.0, mtbf_s=3 * _HOUR_S, recovery_s=900.0, target=0.5))
    theirs_s = saxena_period(300.0, 3 * _HOUR_S, 900.0)
    rows.append(("Saxena et al. 2024, period, a fault in 3 h", "s", None, theirs_s, best.period_s))
    rows.append(("rate at those periods", "share", None, exact.ettr_at(job, theirs_s), best.ettr_max))
    return Table(
        title="Best periods by other rules, and the exact ones",
        source="Daly 2006; Saxena et al. 2024 (see rules.py)",
        columns=(*_COLUMNS, "exact"),
        rows=tuple(rows),
        notes=("All with a stall of 5 min; recovery 10 min (Daly) and 15 min (Saxena), which moves only the latter.",),
    )


TABLES: Mapping[str, Callable[[], Table]] = {
    "bloom": bloom,
    "byterobust": byterobust,
    "llama3": llama3,
    "meta": meta,
    "opt175b": opt175b,
    "periods": periods,
}


def table(name: str) -> Table:
    """Return the table of that name. Raises InvalidInput, with the names that exist, for any other."""
    if name not in TABLES:
        raise InvalidInput("published", f"{name!r} is not known", hint=f"Use one of {', '.join(sorted(TABLES))}.")
    return TABLES[name]()
