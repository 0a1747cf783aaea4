"""Does a platform of many nodes, each renewed on its own when it fails, fail like one source without memory?"""

import time

import numpy as np

from reliability.simulation.job import Always, Job, run
from reliability.simulation.laws import Floats, Law
from reliability.simulation.ledger import Check
from reliability.simulation.limits import Effort, number, refuse, whole

MOST_DRAWS = 50_000_000


def superposed(law: Law, nodes: int, count: int, burn_in_s: float, chance: np.random.Generator) -> Floats:
    """Return the first `count` gaps between the failures of any of the nodes, after `burn_in_s` of running.

    Every node fails, is replaced by a new one and fails again, on its own clock of running time. The first gap is the
    one that follows the first failure after the burn-in.
    """
    step = int((burn_in_s + (count + 10) * law.mean_s / nodes) / law.mean_s) + 8
    ages = np.zeros((nodes, 1))
    while True:
        more = np.cumsum(law.draw(chance, nodes * step).reshape(nodes, step), axis=1)
        ages = np.hstack([ages, ages[:, -1:] + more])
        known_until = float(ages[:, -1].min())
        failed_at = np.sort(ages[(ages >= burn_in_s) & (ages > 0) & (ages <= known_until)])
        if len(failed_at) > count:
            return np.diff(failed_at[: count + 1])


def many_nodes(
    job: Job,
    node: Law,
    nodes: int,
    *,
    burn_in_s: float = 0.0,
    failures: int = 100_000,
    seed: int = 1,
    limit_s: float = 60.0,
) -> Check:
    """Simulate a job on `nodes` nodes that each follow the law `node`. Raises InvalidInput."""
    began, effort, chance = time.monotonic(), Effort(failures, seed, limit_s), np.random.default_rng(seed)
    whole("nodes", nodes, low=1, high=200_000)
    number("burn_in_s", burn_in_s)
    replicas = effort.replicas(each=1000, most=400)
    count = -(-failures // replicas)
    if replicas * (count + nodes * (burn_in_s / node.mean_s + 8)) > MOST_DRAWS:
        raise refuse("nodes", "take more lifetimes than can be simulated: fewer nodes, failures or less burn-in")
    late, histories = effort.clock(), list[Floats]()
    while len(histories) < replicas and not (len(histories) > 1 and late()):
        histories.append(superposed(node, nodes, count, burn_in_s, chance))
    legs = iter(np.array(histories).T)
    ledger = run(
        job,
        lambda: next(legs, None),
        Always(job.downtime_s),
        replicas=len(histories),
        failures=failures,
        late=lambda: False,
    )
    return ledger.close(grain_s=job.work_s, period_s=job.cycle_s, seed=seed, seconds=time.monotonic() - began)
