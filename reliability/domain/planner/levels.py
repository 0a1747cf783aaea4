"""How often should each level be saved to, when every kind of fault needs a copy of its own level?

Levels are ordered from the cheapest (memory of the host) to the safest (storage). A fault of class l destroys all
copies below level l, so it goes back to the last copy of level l or above. Times are seconds, periods are counted from
start to start of two saves of a level.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, product

from reliability.domain.planner.inputs import LEAST_MTBF_S, MOST_S, check
from reliability.errors import InvalidInput

_MOST_LEVELS = 6
_MOST_SEGMENTS = 100_000
_WHOLE = 1e-9
"""How far above a whole number a ratio may lie, by rounding, and still be that number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Level:
    """One level and the class of faults that needs it.

    stall_s: what saving to it stalls training on top of the levels below (from full costs: its own less that of the
    level below). mtbf_s: mean time between the faults of its class, None for none. recovery_s: restore from it.
    drain_s: from the end of the stall until the copy is safe. Raises InvalidInput for what cannot be.
    """

    stall_s: float
    mtbf_s: float | None
    recovery_s: float = 0.0
    drain_s: float = 0.0

    def __post_init__(self) -> None:
        for field in ("stall_s", "recovery_s", "drain_s"):
            check(field, getattr(self, field), 0.0, MOST_S, "Give seconds, 0 or more.")
        if self.mtbf_s is not None:
            check("mtbf_s", self.mtbf_s, LEAST_MTBF_S, MOST_S, "Give seconds above 0, or nothing for no faults.")

    @property
    def faults_per_s(self) -> float:
        """Faults of this class per second."""
        return 0.0 if self.mtbf_s is None else 1.0 / self.mtbf_s


@dataclass(frozen=True, slots=True)
class LevelPlan:
    """The levels to keep, and how often to save to each.

    levels: the kept ones, each with the faults of the dropped ones below it. dropped: indices of the others.
    periods_s: best periods, not yet whole multiples. multiples: each kept level is saved at every so many saves of the
    one below it. ettr: first-order effective training rate at periods_s, and with drains that a lower fault aborts.
    overhead: the part of the loss that the periods decide, saves plus half periods. whole_periods_s: the periods to
    use, with the lowest one chosen anew for the multiples, and whole_ettr their first-order rate.
    """

    levels: tuple[Level, ...]
    dropped: tuple[int, ...]
    periods_s: tuple[float, ...]
    multiples: tuple[int, ...]
    overhead: float
    ettr: float
    ettr_with_aborted_drains: float
    whole_periods_s: tuple[float, ...]
    whole_ettr: float


def first_order(levels: Sequence[Level], downtime_s: float = 0.0) -> LevelPlan:
    """Return the best of all choices of levels that keep the one which the worst faults need.

    Each level alone: period = max( sqrt(2 stall / faults), drain ); where a lower level would be saved less often than
    a higher one the two share one period. Faults of a dropped level fall to the next one kept. The best choice is the
    one with the highest first-order rate (see ettr_at), which never loses against keeping all.
    Raises InvalidInput for no levels, more than 6, no faults at all, or a level that costs neither stall nor drain.
    Source: Benoit et al. 2017, "Towards Optimal Multi-Level Checkpointing"; Di et al. 2014.
    """
    _check_plannable(levels)
    needed = max(index for index, level in enumerate(levels) if level.faults_per_s > 0)
    best: tuple[float, tuple[int, ...]] | None = None
    for size in range(1, len(levels) + 1):
        for kept in combinations(range(len(levels)), size):
            chosen = merged(levels, kept)
            if kept[-1] < needed or any(level.mtbf_s is None for level in chosen):
                continue
            rate = ettr_at(chosen, nested_periods(chosen), downtime_s)
            if best is None or rate > best[0]:
                best = rate, kept
    assert best is not None
    return _plan(levels, best[1], downtime_s)


def _plan(levels: Sequence[Level], kept: tuple[int, ...], downtime_s: float) -> LevelPlan:
    chosen = merged(levels, kept)
    periods = nested_periods(chosen)
    multiples = whole_multiples(chosen, periods)
    whole = whole_periods(chosen, multiples)
    return LevelPlan(
        levels=chosen,
        dropped=tuple(index for index in range(len(levels)) if index not in kept),
        periods_s=periods,
        multiples=multiples,
        overhead=overhead_at(chosen, periods),
        ettr=ettr_at(chosen, periods, downtime_s),
        ettr_with_aborted_drains=ettr_with_aborted_drains(chosen, periods, downtime_s),
        whole_periods_s=whole,
        whole_ettr=ettr_at(chosen, whole, downtime_s),
    )


def merged(levels: Sequence[Level], kept: Sequence[int]) -> tuple[Level, ...]:
    """Return the kept levels (ascending indices), each with the fault rate of the dropped ones below it added."""
    chosen, start = [], 0
    for index in kept:
        faults = math.fsum(level.faults_per_s for level in levels[start : index + 1])
        chosen.append(replace(levels[index], mtbf_s=1.0 / faults if faults > 0 else None))
        start = index + 1
    return tuple(chosen)


def nested_periods(levels: Sequence[Level]) -> tuple[float, ...]:
    """Return the periods with the least overhead that do not fall from one level to the next, nor below its drain.

    Neighbours that break the order are pooled: max( sqrt(2 sum of stalls / sum of faults), longest drain ). Every
    level needs faults of its own. Source: pool adjacent violators, Ayer et al. 1955, on stall / x + faults x / 2.
    """
    blocks: list[tuple[float, float, float, int]] = []
    for level in levels:
        stall, faults, drain, count = level.stall_s, level.faults_per_s, level.drain_s, 1
        while blocks and _best_period(*blocks[-1][:3]) >= _best_period(stall, faults, drain):
            before = blocks.pop()
            stall, faults, count = stall + before[0], faults + before[1], count + before[3]
            drain = max(drain, before[2])
        blocks.append((stall, faults, drain, count))
    return tuple(_best_period(*block[:3]) for block in blocks for _ in range(block[3]))


def _best_period(stall_s: float, faults_per_s: float, drain_s: float) -> float:
    if faults_per_s == 0:
        raise InvalidInput("mtbf_s", "no fault needs this level", hint="Leave the level out.")
    return max(math.sqrt(2 * stall_s / faults_per_s), drain_s)


def whole_multiples(levels: Sequence[Level], periods_s: Sequence[float]) -> tuple[int, ...]:
    """Return the best of rounding each ratio of neighbouring periods down or up, the lowest period chosen anew.

    Never so far down that a drain takes longer than the period it belongs to.
    """
    best: tuple[float, tuple[int, ...]] | None = None
    for rounded in product((math.floor, math.ceil), repeat=len(levels) - 1):
        actual, multiples = [periods_s[0]], []
        for whole, level, period_s in zip(rounded, levels[1:], periods_s[1:], strict=True):
            drained = math.ceil(level.drain_s / actual[-1] - _WHOLE)
            multiples.append(max(1, drained, whole(period_s / actual[-1])))
            actual.append(actual[-1] * multiples[-1])
        overhead = overhead_at(levels, whole_periods(levels, multiples))
        if best is None or overhead < best[0]:
            best = overhead, tuple(multiples)
    assert best is not None
    return best[1]


def whole_periods(levels: Sequence[Level], multiples: Sequence[int]) -> tuple[float, ...]:
    """Return the best periods in seconds that are these multiples of each other, none below its drain.

    With k_l saves of the lowest level to one of level l its period is sqrt( 2 sum of stall / k over sum of faults k ).
    Raises InvalidInput where no level has faults.
    """
    every = [math.prod(multiples[:index]) for index in range(len(levels))]
    stall_s = math.fsum(level.stall_s / count for level, count in zip(levels, every, strict=True))
    faults_per_s = math.fsum(level.faults_per_s * count for level, count in zip(levels, every, strict=True))
    drain_s = max(level.drain_s / count for level, count in zip(levels, every, strict=True))
    lowest_s = _best_period(stall_s, faults_per_s, drain_s)
    return tuple(lowest_s * count for count in every)


def overhead_at(levels: Sequence[Level], periods_s: Sequence[float]) -> float:
    """Return what the periods decide of the loss: the sum over levels of stall / period + faults period / 2."""
    return math.fsum(
        level.stall_s / period_s + level.faults_per_s * period_s / 2
        for level, period_s in zip(levels, periods_s, strict=True)
    )


def mean_rollback(period_s: float, drain_s: float, aborting_per_s: float = 0.0) -> float:
    """Return the mean work in seconds that a fault undoes: drain + period (2 - p) / (2 p), p = e^(-aborting drain).

    aborting_per_s: faults of lower classes, which end a drain that is under way; then the copy before it counts. With
    none it is period / 2 + drain. Infinite where no drain ever gets through. Source: own; the age of the last safe
    copy is uniform over one period, and the number of copies lost in a row is geometric.
    """
    success = math.exp(-aborting_per_s * drain_s)
    return drain_s + period_s * (2 - success) / (2 * success) if success > 0 else math.inf


def ettr_at(levels: Sequence[Level], periods_s: Sequence[float], downtime_s: float = 0.0) -> float:
    """Return the first-order effective training rate, which may be below 0 where first order no longer holds.

    1 - sum of [ stall / period + faults (period / 2 + drain + recovery + downtime) ] over the levels; no unit.
    Source: Benoit et al. 2017 for the sum, with the drain as the age of the last safe copy.
    """
    return _first_order_rate(levels, periods_s, downtime_s, [0.0] * len(levels))


def ettr_with_aborted_drains(levels: Sequence[Level], periods_s: Sequence[float], downtime_s: float = 0.0) -> float:
    """Return ettr_at with the mean rollback of drains that faults of lower classes abort; -inf where none succeeds."""
    lower = [math.fsum(below.faults_per_s for below in levels[:index]) for index in range(len(levels))]
    return _first_order_rate(levels, periods_s, downtime_s, lower)


def _first_order_rate(
    levels: Sequence[Level], periods_s: Sequence[float], downtime_s: float, aborting: Sequence[float]
) -> float:
    lost = [
        level.stall_s / period_s
        + level.faults_per_s * (mean_rollback(period_s, level.drain_s, killing) + level.recovery_s + downtime_s)
        for level, period_s, killing in zip(levels, periods_s, aborting, strict=True)
    ]
    return 1.0 - math.fsum(lost)


def _check_plannable(levels: Sequence[Level]) -> None:
    if not 1 <= len(levels) <= _MOST_LEVELS:
        raise InvalidInput("levels", f"{len(levels)} levels", hint=f"Give 1 to {_MOST_LEVELS} levels.")
    if not any(level.faults_per_s for level in levels):
        raise InvalidInput("levels", "no level has faults", hint="Without faults there is nothing to save for.")
    if any(level.stall_s == 0 and level.drain_s == 0 for level in levels):
        raise InvalidInput("stall_s", "a save that takes no time has no best period", hint="Give its stall or drain.")


def drain_over_classes(mtbf_s: float | None, drains: Iterable[tuple[float, float]]) -> float:
    """Return the one drain in seconds that costs as much as several, given as (share of faults, drain in seconds).

    -ln( sum of share e^(-faults drain) ) / faults, and the mean drain without faults: in the exact model a drain
    multiplies the rate by e^(-faults drain), and each class of faults waits for the copy it needs. The shares add to 1.
    Raises InvalidInput for shares that do not, or negative values. Source: own, from the exact exponential model.
    """
    used = [(share, drain_s) for share, drain_s in drains if share != 0]
    for share, drain_s in used:
        check("share", share, 0.0, 1.0, "Give a share between 0 and 1.")
        check("drain_s", drain_s, 0.0, MOST_S, "Give seconds, 0 or more.")
    total = math.fsum(share for share, _ in used)
    if abs(total - 1.0) > 1e-9:
        raise InvalidInput("share", f"the shares add to {total:g}", hint="Give shares of all faults: they add to 1.")
    if mtbf_s is None:
        return math.fsum(share * drain_s for share, drain_s in used)
    check("mtbf_s", mtbf_s, LEAST_MTBF_S, MOST_S, "Give seconds above 0, or nothing for no faults.")
    least = min(drain_s for _, drain_s in used)
    missing = math.fsum(share * math.expm1(-(drain_s - least) / mtbf_s) for share, drain_s in used)
    return least - mtbf_s * math.log1p(missing / total)


def effective_stall(stall_s: float, drain_s: float, slowdown: float) -> float:
    """Return the stall in seconds that also pays for the slow-down of training while the copy is written.

    stall + slowdown * drain, slowdown the measured share of speed lost during a drain (0 to 1).
    """
    check("slowdown", slowdown, 0.0, 1.0, "Give a share between 0 and 1.")
    return stall_s + slowdown * drain_s


def exact_nested(levels: Sequence[Level], downtime_s: float, work_s: float, multiples: Sequence[int] = ()) -> float:
    """Return the exact effective training rate of saves that block, for exponential faults; no unit.

    work_s: work between two saves of the lowest level. multiples: a save of level l + 1 follows every multiples[l]
    saves of level l. Faults strike work, stalls and recoveries; drains are not part of it. With V_j the mean time from
    j segments after a save of the top level to the next one, rate = N work / V_0 (see _time_to_top). Linear in N.
    Raises InvalidInput for multiples that do not fit or more than 100,000 segments.
    Source: own derivation on the idea of Moody et al. 2010, "Design, Modeling, and Evaluation of a Scalable
    Multi-level Checkpointing System".
    """
    check("work_s", work_s, 0.0, MOST_S, "Give seconds of work, 0 or more.")
    check("downtime_s", downtime_s, 0.0, MOST_S, "Give seconds, 0 or more.")
    if not levels or len(multiples) != len(levels) - 1 or any(count < 1 for count in multiples):
        raise InvalidInput(
            "multiples", f"{tuple(multiples)} for {len(levels)} levels", hint="Give one less, each 1 or more."
        )
    every = [math.prod(multiples[:index]) for index in range(len(levels))]
    segments = every[-1]
    if segments > _MOST_SEGMENTS:
        raise InvalidInput("multiples", f"{segments} segments", hint=f"Give {_MOST_SEGMENTS} or fewer in all.")
    lengths = [work_s + math.fsum(level.stall_s for level in levels[: top + 1]) for top in range(len(levels))]
    if not any(level.faults_per_s for level in levels):
        saved = math.fsum(level.stall_s * (segments // count) for level, count in zip(levels, every, strict=True))
        return segments * work_s / (segments * work_s + saved) if work_s else 0.0
    time_s = _time_to_top(levels, downtime_s, lengths, every)
    return segments * work_s / time_s if time_s > 0 else 0.0


def _after_fault(levels: Sequence[Level], downtime_s: float) -> list[float]:
    """Return [constant, weight of V at the last copy of level 0, 1, ...] of the mean time that follows a fault.

    Rec_c, the recovery from a copy of level c: D + time under way, then V there, or another fault of class c', after
    which the worse of c and c' counts. Solved from the top down; only sums of positive terms.
    """
    total = math.fsum(level.faults_per_s for level in levels)
    share = [level.faults_per_s / total for level in levels]
    count = len(levels)
    recoveries: list[list[float]] = [[] for _ in levels]
    for c in range(count - 1, -1, -1):
        through, hit = math.exp(-total * levels[c].recovery_s), -math.expm1(-total * levels[c].recovery_s)
        row = [0.0] * (count + 1)
        row[0] = downtime_s + hit / total
        row[1 + c] = through
        for worse in range(c + 1, count):
            row = [own + hit * share[worse] * other for own, other in zip(row, recoveries[worse], strict=True)]
        leaving = through + hit * math.fsum(share[c + 1 :])
        recoveries[c] = [value / leaving if leaving > 0 else math.inf for value in row]
    return [math.fsum(share[c] * recoveries[c][k] for c in range(count)) for k in range(count + 1)]


def _time_to_top(levels: Sequence[Level], downtime_s: float, lengths: Sequence[float], every: Sequence[int]) -> float:
    """Return V_0: V_j = (1-p)/L + p V_(j+1) + (1-p) (mean time after a fault), p = e^(-L segment), V_N = 0.

    Walks from the last segment to the first and keeps V_j as a constant plus weights of the V to which faults return.
    Weights stay positive and add to 1 with that of the end, so that nothing cancels. inf where it never gets there.
    """
    total = math.fsum(level.faults_per_s for level in levels)
    after = _after_fault(levels, downtime_s)
    through = [(math.exp(-total * length), -math.expm1(-total * length)) for length in lengths]
    constant, end, weights = 0.0, 1.0, [0.0] * len(levels)
    for j in range(every[-1] - 1, -1, -1):
        top = max(index for index, count in enumerate(every) if (j + 1) % count == 0)
        p, hit = through[top]
        constant = hit * (1.0 / total + after[0]) + p * constant
        end *= p
        weights = [hit * fall + p * weight for fall, weight in zip(after[1:], weights, strict=True)]
        weights = [0.0 if j % count == 0 else weight for count, weight in zip(every, weights, strict=True)]
        leaving = end + math.fsum(weights)
        if not 0 < leaving < math.inf:
            return math.inf
        constant, end, weights = constant / leaving, end / leaving, [weight / leaving for weight in weights]
    return constant
