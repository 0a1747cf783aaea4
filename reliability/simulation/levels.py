"""How does a job live that saves on several levels, each for its own class of failures?

A failure of class c needs a copy on level c or above. A position is the number of segments kept since some top copy;
each level remembers the newest position that it holds. A failure in a recovery is met by the worse of the two
classes. A failure ends every drain to a level of its class or below, and those above it too unless they survive it.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from reliability.simulation.laws import Flags, Floats, Whole
from reliability.simulation.ledger import Check, Ledger
from reliability.simulation.limits import Effort, number, positive, refuse, whole

MOST_SEGMENTS = 100_000
MOST_LEVELS = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class Level:
    """One level: what it adds to the stall, when its copy is durable, and the failures that need it.

    `every`: each how many segments a save reaches this level. `drain_survives`: a running drain to this level goes on
    through failures of the classes below it.
    """

    extra_stall_s: float
    mtbf_s: float
    recovery_s: float
    every: int = 1
    drain_s: float = 0.0
    drain_survives: bool = False


class _Plan:
    """The segments of one top period, and what each level asks for, as arrays."""

    def __init__(self, levels: Sequence[Level], work_s: float, downtime_s: float) -> None:
        if not 1 <= len(levels) <= MOST_LEVELS:
            raise refuse("levels", f"must be 1 to {MOST_LEVELS}")
        self.work_s, self.downtime_s = positive("work_s", work_s), number("downtime_s", downtime_s)
        before = 1
        whole("every", levels[0].every, low=1, high=1)
        for level in levels:
            number("extra_stall_s", level.extra_stall_s)
            whole("every", level.every, low=before, high=MOST_SEGMENTS)
            if level.every % before:
                raise refuse("every", "must be a multiple of that of the level below")
            before = level.every
        self.every = [level.every for level in levels]
        self.drains = [number("drain_s", level.drain_s) for level in levels]
        self.survives = [level.drain_survives for level in levels]
        self.recovery = np.array([number("recovery_s", level.recovery_s) for level in levels])
        self.rates = np.array([1 / positive("mtbf_s", level.mtbf_s) for level in levels])
        self.mean_s = float(1 / self.rates.sum())
        self.bounds = np.cumsum(self.rates * self.mean_s)[:-1]
        number_of = np.arange(1, before + 1)
        stalls = sum(level.extra_stall_s * (number_of % level.every == 0) for level in levels)
        self.ends = np.concatenate([[0.0], np.cumsum(work_s + stalls)])
        for level in levels:
            if level.drain_s > self.ends[level.every]:
                raise refuse("drain_s", "is longer than the time between saves to its level: drains may not overlap")

    @property
    def top(self) -> int:
        """Return the number of the highest level, from 0."""
        return len(self.every) - 1

    def instant(self, segment: Whole) -> Floats:
        """Return when a segment ends, on the clock of a run without failures."""
        laps, rest = np.divmod(segment, self.every[-1])
        return np.asarray(laps * self.ends[-1] + self.ends[rest])

    def segments(self, instant: Floats) -> Whole:
        """Return how many segments have ended at an instant of that clock; 0 before its beginning."""
        laps = np.floor(np.maximum(instant, 0.0) / self.ends[-1])
        rest = np.searchsorted(self.ends, np.maximum(instant, 0.0) - laps * self.ends[-1], side="right") - 1
        return np.asarray(laps.astype(np.int64) * self.every[-1] + np.maximum(rest, 0))


class _Replicas:
    """The state of the replicas: positions, pending recoveries, copies and running drains."""

    def __init__(self, plan: _Plan, replicas: int) -> None:
        levels = len(plan.every)
        self.position = np.zeros(replicas, dtype=np.int64)
        self.recovering = np.full(replicas, plan.top)
        self.held = np.zeros((levels, replicas), dtype=np.int64)
        self.draining = np.zeros((levels, replicas), dtype=np.int64)
        self.drained_in = np.full((levels, replicas), np.inf)

    def leg(self, plan: _Plan, ledger: Ledger, where: Whole, chance: np.random.Generator) -> Flags:
        """Bring these replicas to their next failure; return which of them lost all but the top copies."""
        up = chance.standard_exponential(len(where)) * plan.mean_s
        struck = np.searchsorted(plan.bounds, chance.random(len(where)), side="right")
        position, recovering = self.position[where], self.recovering[where]
        recovery = plan.recovery[recovering]
        running = np.maximum(up - recovery, 0.0)
        in_recovery = up < recovery
        first = position - position % plan.every[-1]
        now = plan.instant(position - first) + running
        reached = first + np.where(in_recovery, position - first, np.maximum(plan.segments(now), position - first))
        need = np.where(in_recovery, np.maximum(struck, recovering), struck)
        held = self._held(plan, where, position, reached, now, plan.downtime_s + up)
        back = np.where(np.arange(len(held))[:, None] >= need, held, -1).max(axis=0)
        self._book(plan, ledger, where, up, recovery, position, back)
        self.held[:, where] = np.where(np.arange(len(held))[:, None] < need, back, held)
        self._keep_drains(plan, where, need)
        self.position[where], self.recovering[where] = back, need
        return np.asarray(need == plan.top)

    def _held(self, plan: _Plan, where: Whole, position: Whole, reached: Whole, now: Floats, leg_s: Floats) -> Whole:
        """Return the newest position that each level holds at the end of a leg, and note the drains under way."""
        held = self.held[:, where]
        first = position - position % plan.every[-1]
        for level, every in enumerate(plan.every):
            ended = self.drained_in[level, where] <= leg_s
            held[level] = np.where(ended, np.maximum(held[level], self.draining[level, where]), held[level])
            begun = reached - reached % every
            durable = first + plan.segments(now - plan.drains[level])
            durable = np.minimum(durable - durable % every, begun)
            held[level] = np.where(durable > position, np.maximum(held[level], durable), held[level])
            under_way = (begun > position) & (begun > held[level])
            left = plan.instant(begun - first) + plan.drains[level] - now
            still = np.where(ended, np.inf, self.drained_in[level, where] - leg_s)
            self.draining[level, where] = np.where(under_way, begun, self.draining[level, where])
            self.drained_in[level, where] = np.where(under_way, left, still)
        return held

    def _keep_drains(self, plan: _Plan, where: Whole, need: Whole) -> None:
        for level, survives in enumerate(plan.survives):
            ends = (need >= level) | (not survives)
            self.drained_in[level, where] = np.where(ends, np.inf, self.drained_in[level, where])

    def _book(
        self, plan: _Plan, ledger: Ledger, where: Whole, up: Floats, recovery: Floats, position: Whole, back: Whole
    ) -> None:
        first = np.minimum(position, back)
        first = first - first % plan.every[-1]
        kept_s = plan.instant(back - first) - plan.instant(position - first)
        useful = (back - position) * plan.work_s
        restoring = np.minimum(up, recovery)
        ledger.downtime[where] += plan.downtime_s
        ledger.recovery[where] += restoring
        ledger.useful[where] += useful
        ledger.saving[where] += kept_s - useful
        ledger.rollback[where] += up - restoring - kept_s
        ledger.failures += len(where)


def check_levels(
    levels: Sequence[Level],
    work_s: float,
    downtime_s: float = 0.0,
    failures: int = 100_000,
    seed: int = 1,
    limit_s: float = 30.0,
) -> Check:
    """Simulate a job that saves on nested levels after every `work_s` of training; levels from the quickest up.

    A replica is renewed by each failure of the top class; all run the same number of such cycles. When the time limit
    comes first, the cycles that all have finished are the answer. Raises InvalidInput, also when the failures are too
    few, or the time is too short, to see the top class often enough.
    """
    began, effort = time.monotonic(), Effort(failures, seed, limit_s)
    plan, chance, late = _Plan(levels, work_s, downtime_s), np.random.default_rng(seed), effort.clock()
    cycles = int(failures * plan.rates[-1] * plan.mean_s)
    if cycles < 40:
        least = int(40 / (plan.rates[-1] * plan.mean_s)) + 1
        raise refuse("failures", f"must be at least {least}: failures of the top level are rare")
    replicas = max(20, min(1000, cycles // 2))
    ledger = _rounds(plan, replicas, max(1, cycles // replicas), chance, late)
    if not ledger.failures:
        raise effort.too_short()
    return ledger.close(
        grain_s=plan.work_s * plan.every[-1], period_s=float(plan.ends[1]), seed=seed, seconds=time.monotonic() - began
    )


def _rounds(plan: _Plan, replicas: int, rounds: int, chance: np.random.Generator, late: Callable[[], bool]) -> Ledger:
    state, ledger = _Replicas(plan, replicas), Ledger(replicas)
    for _ in range(rounds):
        before = ledger.copy()
        active = np.arange(replicas)
        while len(active):
            if late():
                return before
            active = active[~state.leg(plan, ledger, active, chance)]
    return ledger
