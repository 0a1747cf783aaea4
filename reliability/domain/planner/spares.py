"""How many standby nodes does a job need, and what does one too few cost?

`load` is the mean number of nodes in repair, nodes * repair / node MTBF, without unit. A gang job stops while it is
short of nodes and nothing fails meanwhile: Erlang's loss formula holds, whatever the law of the repair time. A fleet
that runs on while some nodes are in repair follows Poisson's law, an upper bound of the former.
"""

import math
from dataclasses import dataclass
from typing import Literal

from reliability.domain.planner.inputs import LEAST_MTBF_S, MOST_S, check
from reliability.domain.planner.roots import least_whole
from reliability.domain.planner.special import gamma_p, log_poisson
from reliability.errors import InvalidInput

Law = Literal["erlang_failures", "erlang_time", "poisson_failures", "poisson_time"]
"""Which probability is meant: the share of failures that find no standby, or the share of time short of nodes."""

_MOST = 10**9
_FAR = 300
"""So many places above the load the recursion takes longer than the ratio of Poisson's law."""


@dataclass(frozen=True, slots=True)
class Spares:
    """What so many standbys give.

    p_no_standby: share of a gang job's failures that find none; share_short: share of its time stopped for lack of
    one; mean_wait_s: mean wait of such a failure. fleet_*: the same two for a fleet that runs on.
    """

    load: float
    standbys: int
    p_no_standby: float
    share_short: float
    mean_wait_s: float
    fleet_p_no_standby: float
    fleet_share_short: float


def offered_load(nodes: int, node_mtbf_s: float, repair_s: float) -> float:
    """Return the mean number of nodes in repair if none were ever missing: nodes * repair / node MTBF.

    repair_s is the mean over all ways of repair, from a reboot to an exchange. Raises InvalidInput for values that
    cannot be.
    """
    _whole("nodes", nodes)
    check("node_mtbf_s", node_mtbf_s, LEAST_MTBF_S, MOST_S, "Give seconds above 0.")
    check("repair_s", repair_s, 0.0, MOST_S, "Give seconds, 0 or more.")
    return _checked_load(nodes * repair_s / node_mtbf_s)


def erlang_b(places: int, load: float) -> float:
    """Return B(places, load), the share of arrivals that find all places taken.

    B(0) = 1, B(k) = load B(k-1) / (k + load B(k-1)); up to k = load in the form 1/B(k) = 1 + k/load + k(k-1)/load^2
    + ..., which ends early; far above the load as Poisson's law, P(X = k) / P(X <= k). Takes a time that grows with the
    root of the load. Raises InvalidInput for negative values and loads above 1e9.
    Source: Erlang 1917; insensitivity to the law of repair: Sevastyanov 1957.
    """
    _whole("places", places)
    _checked_load(load)
    if load == 0:
        return 1.0 if places == 0 else 0.0
    if places > load + _FAR:
        return math.exp(log_poisson(places, load)) / (1.0 - gamma_p(places + 1, load))
    done = min(places, int(load))
    inverse = term = 1.0
    for place in range(done, 0, -1):
        term *= place / load
        inverse += term
        if term < inverse * 1e-17:
            break
    blocked = 1.0 / inverse
    for place in range(done + 1, places + 1):
        blocked = load * blocked / (place + load * blocked)
        if blocked == 0:
            break
    return blocked


def poisson_tail(count: int, load: float) -> float:
    """Return P(X >= count) for a Poisson variable of mean load. Raises InvalidInput as erlang_b."""
    _whole("count", count)
    _checked_load(load)
    return gamma_p(count, load) if count else 1.0


def binomial_tail(count: int, machines: int, p: float) -> float:
    """Return P(X >= count), X of `machines` that are down at once, each with probability p on its own.

    For repair of a finite number of nodes p = repair / (repair + node MTBF). Terms are summed away from the count on
    the side that is the smaller. Raises InvalidInput for a p outside 0 to 1. Source of the terms: Loader 2000.
    """
    _whole("count", count)
    _whole("machines", machines)
    check("p", p, 0.0, 1.0, "Give a share between 0 and 1.")
    if count == 0 or count > machines or p in (0.0, 1.0):
        return 1.0 if count == 0 or (p == 1 and count <= machines) else 0.0
    if count > machines * p:
        return _binomial_from(count, machines, p)
    return 1.0 - _binomial_from(machines - count + 1, machines, 1.0 - p)


def _binomial_from(count: int, machines: int, p: float) -> float:
    """Sum the terms from count upward, count above or near the mean so that they fall."""
    q = 1.0 - p
    term = math.exp(
        log_poisson(count, machines * p) + log_poisson(machines - count, machines * q) - log_poisson(machines, machines)
    )
    total = term
    for k in range(count, machines):
        term *= (machines - k) * p / ((k + 1) * q)
        total += term
        if term < total * 1e-17:
            break
    return min(1.0, total)


def spares(load: float, standbys: int, repair_s: float) -> Spares:
    """Return what so many standbys give, s = standbys and a = load.

    p_no_standby = B(s, a), share_short = B(s + 1, a), mean wait = repair / (s + 1) (exact for exponential repair);
    for a fleet P(X >= s) and P(X > s), X Poisson of mean a. Raises InvalidInput for negative values.
    """
    check("repair_s", repair_s, 0.0, MOST_S, "Give seconds, 0 or more.")
    return Spares(
        load=load,
        standbys=standbys,
        p_no_standby=erlang_b(standbys, load),
        share_short=erlang_b(standbys + 1, load),
        mean_wait_s=repair_s / (standbys + 1),
        fleet_p_no_standby=poisson_tail(standbys, load),
        fleet_share_short=poisson_tail(standbys + 1, load),
    )


def standbys_for(load: float, probability: float, law: Law = "erlang_failures") -> int:
    """Return the least number of standbys with which the chosen probability is at most `probability`.

    erlang_failures: B(s, a); erlang_time: B(s + 1, a); poisson_failures: P(X >= s); poisson_time: P(X > s).
    The search starts at a + z sqrt(a), where the normal law puts it. Raises InvalidInput for an unknown law or a
    probability outside 0 to 1.
    """
    _checked_load(load)
    if not 0 < probability < 1:
        raise InvalidInput("probability", f"{probability} is not between 0 and 1", hint="Give a share such as 0.01.")
    if law not in ("erlang_failures", "erlang_time", "poisson_failures", "poisson_time"):
        raise InvalidInput("law", f"{law!r} is not known", hint="Use erlang_failures, erlang_time or poisson_...")
    if load == 0:
        return 0
    tail = erlang_b if law.startswith("erlang") else poisson_tail
    places = least_whole(lambda count: tail(count, load) <= probability, round(load + 2.33 * math.sqrt(load)))
    return places - 1 if law.endswith("time") else places


def binomial_standbys(machines: int, p: float, quantile: float = 0.99) -> int:
    """Return the least s with P(X <= s) >= quantile, X of `machines` down at once, each with probability p.

    Raises InvalidInput for shares outside 0 to 1. Source: the sizing of warm standbys in Wan et al. 2025, "Robust LLM
    Training Infrastructure at ByteDance".
    """
    if not 0 < quantile < 1:
        raise InvalidInput("quantile", f"{quantile} is not between 0 and 1", hint="Give a share such as 0.99.")
    start = round(machines * p)
    return least_whole(lambda count: binomial_tail(count + 1, machines, p) <= 1.0 - quantile, start)


def mean_downtime(swap_s: float, spares: Spares, repair_s: float) -> float:
    """Return the mean downtime of a fault that loses a node, in seconds: (1 - p) swap + p max(swap, repair / (s + 1)).

    p = p_no_standby. Only this mean enters the effective training rate. Repairs that end during a swap are left out
    (Erlang's formula counts no time in which nothing fails), so p, the downtime and the loss are on the safe side: the
    rate is too low by about 0.1 points where faults * downtime is 0.01, by 0.8 points where it is 0.055.
    """
    return swap_s + spares.p_no_standby * (wait_s(swap_s, repair_s, spares.standbys) - swap_s)


def wait_s(swap_s: float, repair_s: float, standbys: int) -> float:
    """Return the mean downtime when no standby is left, in seconds: the first of all repairs, or the swap if longer."""
    return max(swap_s, repair_s / (standbys + 1))


def _whole(field: str, value: int) -> None:
    check(field, value, 0, _MOST, "Give a whole number, 0 or more.")


def _checked_load(load: float) -> float:
    check("load", load, 0.0, _MOST, "Give the mean number of nodes in repair, 0 or more.")
    return load
