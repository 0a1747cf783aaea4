"""The whole answer of the planner: how often to save, what that gives, and what to improve first.

Pure: a request goes in, an answer comes out, the same for page, command and REST. `as_json` is its one JSON form.
"""

import math
from dataclasses import replace

from reliability.domain.planner import comparisons, exact, first_order, levers, spares
from reliability.domain.planner.answer_json import as_json
from reliability.domain.planner.answered import Answer, Credible, Levers, Present, Standbys
from reliability.domain.planner.comparisons import Comparison
from reliability.domain.planner.inputs import Inputs
from reliability.domain.planner.levers import Gain, Pair
from reliability.domain.planner.request import Request
from reliability.domain.planner.results import ModelPlan
from reliability.domain.planner.steps import step_plan
from reliability.errors import InvalidInput

__all__ = [
    "Answer",
    "Comparison",
    "Credible",
    "Gain",
    "Levers",
    "Pair",
    "Present",
    "Request",
    "Standbys",
    "answer",
    "as_json",
]

LEVEL = 0.9
RARE = 0.01
MOST_STANDBYS = 10_000


def answer(request: Request) -> Answer:
    """Return the answer. Raises InvalidInput where the values cannot be planned with."""
    inputs = request.inputs
    plan = exact.plan(inputs, inputs_at=request.inputs_at if request.waits else None)
    low_s = plan.interval_s[0] if plan.interval_s else None
    recommended_s = low_s if plan.period_s is None else plan.period_s
    estimate = first_order.plan(inputs)
    steps = None if request.step_s is None else step_plan(inputs, plan, request.step_s)
    used_s = recommended_s if steps is None else steps.period_s
    return Answer(
        request=request,
        inputs=inputs,
        exact=plan,
        first_order=estimate,
        recommended_s=recommended_s,
        recommended_ettr=plan.ettr_max if recommended_s is None else exact.ettr_at(inputs, recommended_s),
        shares=plan.shares if used_s is None else exact.shares_at(inputs, used_s),
        steps=steps,
        first_order_steps=None if request.step_s is None else step_plan(inputs, estimate, request.step_s),
        present=_present(request, inputs, plan, recommended_s),
        spares=_spares(request, inputs),
        credible=_credible(request, plan),
        levers=_levers(request, inputs, plan),
        gains=_gains(request, inputs),
        comparisons=comparisons.rows(inputs),
    )


def _present(request: Request, inputs: Inputs, plan: ModelPlan, recommended_s: float | None) -> Present | None:
    if request.period_s is None:
        return None
    ettr = exact.ettr_at(inputs, request.period_s)
    best = plan.ettr_max if recommended_s is None else exact.ettr_at(inputs, recommended_s)
    low_s, high_s = plan.interval_s or (math.inf, None)
    within = low_s * (1 - 1e-12) <= request.period_s <= (math.inf if high_s is None else high_s) * (1 + 1e-12)
    return Present(period_s=request.period_s, ettr=ettr, ettr_gain=best - ettr, keeps_target=within)


def _spares(request: Request, inputs: Inputs) -> Standbys | None:
    found = request.spares_at(inputs.faults_per_s)
    if found is None:
        return None
    enough = spares.standbys_for(found.load, RARE) if found.load < MOST_STANDBYS else None
    return Standbys(
        standbys=found.standbys,
        load=found.load,
        p_no_standby=found.p_no_standby,
        share_short=found.share_short,
        mean_wait_s=spares.wait_s(request.downtime_s, request.repair_s or 0.0, found.standbys),
        mean_downtime_s=inputs.downtime_s,
        for_one_percent=enough,
    )


def _credible(request: Request, plan: ModelPlan) -> Credible | None:
    """Map the ends of the rate's interval, of the planned job, to periods and rates: both fall with it."""
    known = request.posterior
    if known is None:
        return None
    low, high = known.interval(LEVEL)
    low, high = max(low * request.growth, 1e-99), high * request.growth
    seldom, often = _best_at(request, low), _best_at(request, high)
    if plan.limits.mtbf_s is not None:
        p_target = known.probability_below(1.0 / (plan.limits.mtbf_s * request.growth))
    else:
        p_target = 1.0 if levers.reachable(request.inputs_at(0.0)) else 0.0
    return Credible(
        level=LEVEL,
        mtbf_s=(1.0 / high, 1.0 / low),
        period_s=(often[0], seldom[0]),
        ettr_max=(often[1], seldom[1]),
        p_target=p_target,
    )


def _best_at(request: Request, faults_per_s: float) -> tuple[float, float]:
    """Return the best period and what it gives; nothing where planned stops and their recoveries take all time."""
    try:
        period_s, ettr = exact.best(request.inputs_at(faults_per_s))
    except InvalidInput:
        period_s, ettr = exact.best(replace(request, planned_stops_per_s=0.0).inputs_at(faults_per_s))[0], 0.0
    return period_s or 0.0, ettr


def _levers(request: Request, inputs: Inputs, plan: ModelPlan) -> Levers:
    nodes = None if request.nodes is None else _nodes(request, request.nodes, inputs, plan)
    return Levers(
        save_stall_s=plan.limits.save_stall_s,
        recovery_s=plan.limits.recovery_s,
        mtbf_s=plan.limits.mtbf_s,
        nodes=nodes,
        standbys=None if request.repair_s is None else _standbys(request, inputs.faults_per_s),
        cheapest=levers.cheapest_pair(inputs),
    )


def _nodes(request: Request, nodes: int, inputs: Inputs, plan: ModelPlan) -> int | None:
    """Return the largest job that reaches the target; the search starts where the limit of the rate puts it."""
    limit_s, share = plan.limits.mtbf_s, request.shares[0]
    if inputs.mtbf_s is None or limit_s is None or share == 0:
        return None
    guess = nodes * (1.0 + (inputs.mtbf_s / limit_s - 1.0) / share)

    def inputs_with(count: int) -> Inputs:
        return request.on(count).inputs

    return levers.most_nodes(inputs_with, math.floor(min(max(guess, 1.0), 1e9) * (1 + 1e-9)))


def _gains(request: Request, inputs: Inputs) -> tuple[Gain, ...]:
    """Return what to improve first: what halving each thing alone adds, or one standby more; the number of faults last.

    Halving the faults nearly always gains the most and is the one that nobody can simply build. What is halved is what
    was told, so the downtime without the wait for a repair, which has a name of its own.
    """
    better = {
        "save_stall": replace(request, save_stall_s=request.save_stall_s / 2),
        "recovery": replace(request, recovery_s=request.recovery_s / 2),
        "downtime": replace(request, downtime_s=request.downtime_s / 2),
        "drain": replace(request, drain_s=request.drain_s / 2, drain_ssd_s=request.drain_ssd_s / 2),
    }
    if request.standbys is not None and request.repair_s is not None:
        better["repair"] = replace(request, repair_s=request.repair_s / 2)
        better["standbys"] = replace(request, standbys=request.standbys + 1)
    now, faults_per_s = exact.best(inputs)[1], inputs.faults_per_s
    gains = {name: exact.best(changed.inputs_at(faults_per_s))[1] - now for name, changed in better.items()}
    ranked = sorted((Gain(name, max(0.0, gain)) for name, gain in gains.items()), key=lambda gain: -gain.ettr_gain)
    calmer = exact.best(request.inputs_at(faults_per_s / 2))[1] - now
    return (*ranked, Gain("fault_rate", max(0.0, calmer)))


def _standbys(request: Request, faults_per_s: float) -> int | None:
    """Return the least number of standbys with which the target is reachable."""
    return levers.least_standbys(lambda standbys: request.inputs_at(faults_per_s, standbys=standbys))
