"""How often does a failure find no standby, and how long is the job then short of nodes?

Two settings: a gang job that stops while it is short, so that nothing fails meanwhile, and a fleet of many jobs that
keeps running and failing. Repairs take any law's time.
"""

import math
import time
from dataclasses import dataclass

import numpy as np

from reliability.simulation.laws import Flags, Floats, Law, Whole
from reliability.simulation.limits import MOST_FAILURES, Effort, positive, refuse, whole

MOST_STANDBYS = 2000
MOST_LOAD = 5000.0
SETTLING = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Standbys:
    """`count` standbys, what the repair of a lost node takes, and the share of failures that lose a node."""

    count: int
    repair: Law
    node_share: float = 1.0

    def __post_init__(self) -> None:
        whole("standbys", self.count, low=0, high=MOST_STANDBYS)
        positive("repair_s", self.repair.mean_s)
        if not 0 <= self.node_share <= 1:
            raise refuse("node_share", "must be a share from 0 to 1")

    def load(self, mean_s: float) -> float:
        """Return how many nodes would be in repair on average if a failure came every `mean_s`; raises InvalidInput."""
        load = self.node_share * self.repair.mean_s / mean_s
        if load > MOST_LOAD:
            raise refuse("repair_s", f"keeps {load:.3g} nodes in repair; at most {MOST_LOAD:g} can be simulated")
        return load


@dataclass(frozen=True, slots=True, kw_only=True)
class StandbyCheck:
    """Shares with their standard errors.

    `short_each_s`: the seconds short of nodes for each failure without a standby; a gang job waits so long on average.
    """

    p_no_standby: float
    p_no_standby_se: float
    share_short: float
    share_short_se: float
    short_each_s: float
    failures: int
    seed: int
    seconds: float


class Pool:
    """The standbys of each replica: which nodes are in repair, and when each comes back."""

    def __init__(self, standbys: Standbys, swap_s: float, replicas: int, chance: np.random.Generator) -> None:
        self._standbys, self._swap_s, self._chance = standbys, swap_s, chance
        self._back = np.full((standbys.count + 1, replicas), -math.inf)
        self._each = np.arange(replicas)
        self.short: Flags = np.zeros(replicas, dtype=bool)

    def after(self, stopped_at: Floats, failed: Flags) -> Floats:
        """Lose a node where the job failed; return the swap's time, or the wait when no standby is left."""
        in_repair = self._back > stopped_at
        lost = failed & (self._chance.random(len(stopped_at)) < self._standbys.node_share)
        self.short = lost & (in_repair.sum(axis=0) >= self._standbys.count)
        free = np.argmin(in_repair, axis=0)
        repaired_at = stopped_at + self._standbys.repair.draw(self._chance, len(stopped_at))
        self._back[free, self._each] = np.where(lost, repaired_at, self._back[free, self._each])
        wait = self._back.min(axis=0) - stopped_at
        return np.where(self.short, wait, self._swap_s)

    def settling(self, mean_s: float) -> int:
        """Return the failures of a replica after which a pool that began full is in its steady state."""
        busy = min(self._standbys.load(mean_s), self._standbys.count + 1.0)
        return math.ceil(SETTLING * busy / max(self._standbys.node_share, 1e-3)) + SETTLING

    def begin_again(self, now: Floats) -> None:
        """Call this instant 0: the nodes in repair stay there."""
        self._back -= now


def gang_job(
    failures_per_s: float, standbys: Standbys, failures: int = 100_000, seed: int = 1, limit_s: float = 30.0
) -> StandbyCheck:
    """Simulate a job that stops while it is short of nodes; swaps take no time. Raises InvalidInput."""
    began, effort = time.monotonic(), Effort(failures, seed, limit_s)
    mean_s, late = 1 / positive("failures_per_s", failures_per_s), effort.clock()
    chance, replicas = np.random.default_rng(seed), effort.replicas(each=500, most=400)
    pool, now, all_fail = Pool(standbys, 0.0, replicas, chance), np.zeros(replicas), np.ones(replicas, dtype=bool)

    def strike() -> tuple[Floats, Floats]:
        nonlocal now
        ran = chance.standard_exponential(replicas) * mean_s
        wait = pool.after(now + ran, all_fail)
        now = now + ran + wait
        return ran, wait

    for _ in range(pool.settling(mean_s)):
        strike()
        if late():
            raise effort.too_short()
    ran, waited, missed, rounds = np.zeros(replicas), np.zeros(replicas), np.zeros(replicas), 0
    while rounds * replicas < failures and not (rounds and late()):
        training, wait = strike()
        ran, waited, missed, rounds = ran + training, waited + wait, missed + pool.short, rounds + 1
    return _found(missed, waited, ran + waited, rounds, seed, began)


def fleet(
    failures_per_s: float, standbys: Standbys, failures: int = 100_000, seed: int = 1, limit_s: float = 30.0
) -> StandbyCheck:
    """Simulate many jobs that never stop failing while nodes are missing. Raises InvalidInput."""
    began, effort = time.monotonic(), Effort(failures, seed, limit_s)
    mean_s, late = 1 / positive("failures_per_s", failures_per_s), effort.clock()
    chance, rounds = np.random.default_rng(seed), max(2, math.ceil(failures / 100))
    settling = math.ceil(SETTLING * (standbys.load(mean_s) / max(standbys.node_share, 1e-3) + 1))
    if settling > MOST_FAILURES:
        raise refuse("repair_s", "takes too long to reach a steady state")
    seen: list[tuple[float, float, float]] = []
    while len(seen) < 100 and not (len(seen) > 1 and late()):
        seen.append(_fleet_once(chance, standbys, mean_s, settling, rounds))
    missed, short_s, elapsed = (np.array(column) for column in zip(*seen, strict=True))
    return _found(missed, short_s, elapsed, rounds, seed, began)


def _fleet_once(
    chance: np.random.Generator, standbys: Standbys, mean_s: float, settling: int, rounds: int
) -> tuple[float, float, float]:
    """Return the failures without a standby, the seconds short of nodes and all seconds of one history."""
    count = settling + rounds
    lost = chance.random(count) < standbys.node_share
    at = np.cumsum(chance.standard_exponential(count) * mean_s)
    back = np.sort((at + standbys.repair.draw(chance, count))[lost])
    lost_before: Whole = np.cumsum(lost) - lost
    in_repair = lost_before - np.searchsorted(back, at, side="right")
    missed = (lost & (in_repair >= standbys.count))[settling:]
    moments = np.concatenate([at[lost], back])
    order = np.argsort(moments, kind="stable")
    change = np.concatenate([np.ones(len(back)), -np.ones(len(back))])[order]
    edges = np.clip(moments[order], at[settling], at[-1])
    short = np.cumsum(change)[:-1] > standbys.count
    return float(missed.sum()), float((np.diff(edges) * short).sum()), float(at[-1] - at[settling])


def _found(missed: Floats, waited: Floats, elapsed: Floats, rounds: int, seed: int, began: float) -> StandbyCheck:
    p, p_se = ratio(missed, np.full(len(missed), float(rounds)))
    short, short_se = ratio(waited, elapsed)
    return StandbyCheck(
        p_no_standby=p,
        p_no_standby_se=p_se,
        share_short=short,
        share_short_se=short_se,
        short_each_s=float(waited.sum()) / max(float(missed.sum()), 1.0),
        failures=rounds * len(missed),
        seed=seed,
        seconds=time.monotonic() - began,
    )


def ratio(above: Floats, below: Floats) -> tuple[float, float]:
    """Return the ratio of two sums over independent replicas, and its standard error."""
    total, replicas = float(below.sum()), len(below)
    share = float(above.sum()) / total
    spread = float(np.square((above - share * below) / total).sum())
    return share, math.sqrt(spread * replicas / (replicas - 1))
