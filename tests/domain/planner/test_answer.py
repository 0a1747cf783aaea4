"""The answer says what to do, what that gives and what it would take otherwise, in numbers that JSON can hold."""

import json
import math
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reliability.domain.planner import exact
from reliability.domain.planner.answer import Answer, Request, answer, as_json
from reliability.domain.planner.reading import read
from reliability.errors import InvalidInput
from tests.domain.planner.cases import or_nothing, sizes

MODEL_KEYS = {"model", "period_s", "work_s", "ettr_max", "feasible", "interval_s", "shares", "limits"}
OTHER_KEYS = {
    "first_order", "inputs", "recommended_s", "recommended_ettr", "steps", "present", "spares", "credible", "levers",
    "gains", "comparisons", "lost_per_day_s", "reachable", "why_no_steps", "laws", "tiers",
}  # fmt: skip
HOUR_S = 3600.0
KNOWN = json.loads(Path(__file__).with_name("plans.json").read_text())


def request(**changes: Any) -> Request:
    return Request(**({"save_stall_s": 30.0, "mtbf_s": 36_000.0, "recovery_s": 600.0, "target": 0.93} | changes))


def found(**changes: Any) -> Answer:
    return answer(request(**changes))


def numbers(tree: Any) -> list[float]:
    """Return every number in a JSON tree, and fail on anything that JSON has no form for."""
    if isinstance(tree, dict):
        return [number for item in tree.values() for number in numbers(item)]
    if isinstance(tree, list):
        return [number for item in tree for number in numbers(item)]
    if tree is None or isinstance(tree, bool | str):
        return []
    assert isinstance(tree, int | float), tree
    return [tree]


def test_the_answer_has_one_json_form() -> None:
    tree = as_json(found(step_s=14.2, nodes=64), sources={"target": {"kind": "entered", "told": "entered"}})
    assert set(tree) == MODEL_KEYS | OTHER_KEYS
    assert set(tree["first_order"]) == MODEL_KEYS | {"steps"}
    assert set(tree["shares"]) == {"useful", "saving", "rollback", "recovery", "downtime"}
    assert set(tree["limits"]) == {"save_stall_s", "recovery_s", "mtbf_s"}
    assert {field.name for field in fields(Request)} | {"effective", "sources"} == set(tree["inputs"])
    assert tree["inputs"]["sources"]["target"]["told"] == "entered"
    assert json.loads(json.dumps(tree, allow_nan=False)) == tree


def test_the_recommended_period_is_the_best_one() -> None:
    told = found()
    assert told.recommended_s == told.exact.period_s == pytest.approx(1479.76225836)
    assert told.recommended_ettr == pytest.approx(0.943865903935)


def test_without_faults_the_shortest_period_that_keeps_the_target_is_recommended() -> None:
    told = found(mtbf_s=None, target=0.99)
    assert told.recommended_s == pytest.approx(3000)
    assert told.recommended_ettr == pytest.approx(0.99)
    assert told.shares.saving == pytest.approx(0.01)
    tree = as_json(told)
    assert (tree["period_s"], tree["interval_s"]) == (None, [pytest.approx(3000), None])
    assert tree["comparisons"] == []


def test_nothing_is_recommended_where_neither_an_optimum_nor_the_target_exists() -> None:
    told = found(mtbf_s=None, target=0.99, cluster_availability=0.9)
    assert told.recommended_s is None
    assert told.recommended_ettr == pytest.approx(0.9)


def test_lost_time_is_told_per_day_and_adds_up() -> None:
    told = found(downtime_s=120.0, cluster_availability=0.98)
    lost = as_json(told)["lost_per_day_s"]
    assert set(lost) == {"saving", "rollback", "recovery", "downtime"}
    assert sum(lost.values()) == pytest.approx(86_400 * (1 - told.recommended_ettr))


def test_the_present_period_is_held_against_the_recommended_one() -> None:
    now = found(period_s=4 * HOUR_S).present
    assert now is not None
    assert now.ettr == pytest.approx(exact.ettr_at(request().inputs, 4 * HOUR_S))
    assert now.ettr + now.ettr_gain == pytest.approx(found().recommended_ettr)
    assert not now.keeps_target
    assert found(period_s=1200.0).present.keeps_target  # type: ignore[union-attr]


def test_steps_are_told_when_the_time_of_a_step_is_known() -> None:
    steps = found(step_s=14.2).steps
    assert steps is not None
    assert (steps.every_steps, steps.interval) == (102, (45, 233))


def test_counted_faults_give_a_credible_interval_and_the_chance_of_the_target() -> None:
    week = found(mtbf_s=None, faults=3, exposure_s=168 * HOUR_S, target=0.98)
    credible = week.credible
    assert credible is not None
    assert week.inputs.mtbf_s == pytest.approx(48 * HOUR_S)
    assert credible.mtbf_s == (pytest.approx(HOUR_S / 0.0418664894326), pytest.approx(HOUR_S / 0.00645044615863))
    # by first order 2271 to 5787 s; the exact period is longer by a third of the stall
    assert credible.period_s == (pytest.approx(2281, abs=1), pytest.approx(5797, abs=1))
    assert credible.ettr_max == (pytest.approx(0.967045254644), pytest.approx(0.988603831398))
    assert credible.p_target == pytest.approx(0.45574724682, rel=1e-6)


def test_no_fault_yet_is_not_no_fault_ever() -> None:
    month = found(mtbf_s=None, faults=0, exposure_s=30 * 24 * HOUR_S)
    assert month.inputs.mtbf_s == pytest.approx(60 * 24 * HOUR_S)
    fleet = found(mtbf_s=None, faults=0, exposure_s=0.0, prior="fleet", nodes=100)
    assert fleet.inputs.mtbf_s == pytest.approx(86_400 / 0.4)


def test_standbys_that_are_missing_cost_the_wait_for_a_repair() -> None:
    # 1024 nodes, 6.5 faults in 1000 node-days, a day of repair
    rate = 1024 * 6.5e-3 / 86_400
    common = {"save_stall_s": 20.0, "mtbf_s": 1 / rate, "downtime_s": 120.0, "nodes": 1024, "repair_s": 86_400.0}
    told = found(**common, standbys=12)
    assert told.spares is not None
    assert told.spares.load == pytest.approx(6.656)
    assert told.spares.p_no_standby == pytest.approx(0.0206961652059)
    assert told.spares.share_short == pytest.approx(0.0104853294568, rel=1e-2)
    assert told.spares.for_one_percent == 14
    assert told.inputs.downtime_s == pytest.approx(0.9793038 * 120 + 0.0206961652059 * 86_400 / 13, rel=1e-6)
    assert found(**common, standbys=30).recommended_ettr > told.recommended_ettr


def test_only_lost_nodes_need_a_standby() -> None:
    half = found(standbys=0, repair_s=86_400.0, node_share=0.5, downtime_s=60.0)
    load = 0.5 * 86_400 / 36_000
    assert half.spares is not None
    assert half.spares.p_no_standby == pytest.approx(1.0)
    assert half.spares.load == pytest.approx(load)
    assert half.inputs.downtime_s == pytest.approx(0.5 * 60 + 0.5 * 86_400)


def test_planned_stops_never_wait_for_a_repair() -> None:
    stops = {"planned_stops_per_s": 1 / 86_400, "downtime_s": 60.0}
    waiting = found(**stops, standbys=0, repair_s=7200.0)
    assert waiting.inputs.available == pytest.approx(found(**stops).inputs.available)


def test_the_levers_reach_the_target_each_alone() -> None:
    inputs = {"target": 0.95, "nodes": 100, "repair_s": 4 * HOUR_S, "standbys": 0, "downtime_s": 60.0}
    told = found(**inputs)
    assert not told.exact.feasible
    assert told.levers.mtbf_s is not None
    assert told.levers.nodes is not None
    assert answer(request(**inputs | {"mtbf_s": told.levers.mtbf_s * 1.0001})).exact.feasible
    assert not answer(request(**inputs | {"mtbf_s": told.levers.mtbf_s * 0.999})).exact.feasible
    most = told.levers.nodes
    assert answer(request(**inputs | {"mtbf_s": 36_000.0 * 100 / most})).exact.feasible
    assert not answer(request(**inputs | {"mtbf_s": 36_000.0 * 100 / (most + 1)})).exact.feasible


def test_the_least_number_of_standbys_that_reaches_the_target_is_told() -> None:
    inputs = {"repair_s": 4 * HOUR_S, "standbys": 0, "downtime_s": 30.0}
    least = found(**inputs).levers.standbys
    assert least is not None
    assert least > 0
    assert found(**inputs | {"standbys": least}).exact.feasible
    assert not found(**inputs | {"standbys": least - 1}).exact.feasible


def test_the_cheapest_pair_reaches_the_target_just() -> None:
    told = found(target=0.97)
    pair = told.levers.cheapest
    assert pair is not None
    assert pair.save_stall_s < 30
    assert pair.recovery_s < 600
    both = found(target=0.97, save_stall_s=pair.save_stall_s, recovery_s=pair.recovery_s)
    assert both.recommended_ettr == pytest.approx(0.97, abs=1e-9)


def test_what_to_improve_first_comes_first() -> None:
    gains = found(downtime_s=60.0, drain_s=30.0).gains
    assert [gain.ettr_gain for gain in gains[:-1]] == sorted((gain.ettr_gain for gain in gains[:-1]), reverse=True)
    assert gains[-1].name == "fault_rate", "halving it gains the most and is no work that somebody can do"
    assert gains[-1].ettr_gain >= gains[0].ettr_gain
    assert {gain.name for gain in gains} == {"save_stall", "recovery", "downtime", "drain", "fault_rate"}


def test_a_gain_is_that_of_halving_what_was_told_not_what_follows_from_it() -> None:
    short = {"standbys": 2, "repair_s": 48 * HOUR_S, "nodes": 256, "mtbf_s": 3 * HOUR_S, "target": 0.5}
    told = found(downtime_s=300.0, **short)
    gains = {gain.name: gain.ettr_gain for gain in told.gains}
    now = told.exact.ettr_max
    assert gains["downtime"] == pytest.approx(found(downtime_s=150.0, **short).exact.ettr_max - now, rel=1e-9)
    for name, better in (("repair", {"repair_s": 86_400.0}), ("standbys", {"standbys": 3})):
        assert gains[name] == pytest.approx(found(downtime_s=300.0, **short | better).exact.ettr_max - now)
    assert gains["repair"] > 10 * gains["downtime"]
    assert {gain.name: gain.ettr_gain for gain in found(downtime_s=0.0, **short).gains}["downtime"] == 0


def test_without_faults_and_planned_stops_nothing_is_worth_halving() -> None:
    assert all(gain.ettr_gain == 0 for gain in found(mtbf_s=None).gains)


def test_other_rules_are_named_and_never_better_than_the_exact_optimum() -> None:
    told = found()
    assert [row.name.split(",")[0].split(" ")[0] for row in told.comparisons] == ["Young", "Daly", "Saxena", "Meta's"]
    assert all(row.ettr <= told.recommended_ettr + 1e-12 for row in told.comparisons)
    assert found(mtbf_s=900.0, save_stall_s=300.0).comparisons[0].their_ettr is None  # below 0 by first order


@pytest.mark.parametrize("known", KNOWN["drains"], ids=lambda known: known["name"])
def test_a_drain_that_every_fault_needs_is_the_drain_of_the_model(known: dict[str, Any]) -> None:
    values = {name: known["inputs"][name] for name in ("drain_s", "mtbf_s", "recovery_s", "downtime_s")}
    told = answer(Request(save_stall_s=known["inputs"]["save_stall_s"], target=0.5, **values))
    assert told.inputs.drain_s == values["drain_s"]


def test_a_drain_costs_only_the_faults_that_need_its_tier() -> None:
    memory = found(drain_s=300.0, drain_ssd_s=30.0, node_share=0.0, memory_share=0.0)
    some = found(drain_s=300.0, drain_ssd_s=30.0, node_share=0.2, memory_share=0.3)
    every = found(drain_s=300.0, drain_ssd_s=30.0)
    assert memory.inputs.mean_drain_s == 0.0
    assert some.inputs.tiers == ((0.2, 300.0), (0.3, 30.0))
    assert as_json(some)["inputs"]["effective"]["drain_s"] == some.inputs.mean_drain_s == pytest.approx(69.0)
    assert memory.recommended_ettr > some.recommended_ettr > every.recommended_ettr


def test_values_that_contradict_each_other_are_refused_by_name() -> None:
    for changes, field in (
        ({"faults": 3}, "exposure_s"),
        ({"faults": 3, "exposure_s": 10.0}, "mtbf_s"),
        ({"memory_share": 0.1}, "memory_share"),
        ({"memory_share": -0.1}, "memory_share"),
        ({"node_share": 1.1}, "node_share"),
        ({"node_share": math.nan}, "node_share"),
        ({"nodes": 0}, "nodes"),
        ({"observed_nodes": 0}, "observed_nodes"),
        ({"prior": "gut"}, "prior"),
        ({"mtbf_s": None, "faults": 0, "exposure_s": 1.0, "prior": "fleet"}, "nodes"),
    ):
        with pytest.raises(InvalidInput) as refusal:
            request(**changes)
        assert refusal.value.field == field


TIME = or_nothing(sizes(-9, 12))
SHARE = st.floats(0.0, 1.0)
WIDE = st.fixed_dictionaries(
    {"save_stall": TIME, "recovery": or_nothing(sizes(-3, 6)), "target": st.floats(1e-9, 1 - 1e-9)},
    optional={
        "mtbf": sizes(-3, 12) | st.just("none"),
        "failures_per_day": or_nothing(sizes(-6, 7)),
        "per_1000_node_days": or_nothing(sizes(-6, 9)),
        "faults": st.integers(0, 10_000_000),
        "exposure": TIME,
        "prior": st.sampled_from(["jeffreys", "fleet"]),
        "downtime": TIME,
        "drain": TIME,
        "drain_ssd": TIME,
        "node_share": SHARE,
        "memory_share": SHARE,
        "cluster_availability": st.floats(1e-6, 1.0),
        "step_time": sizes(-9, 12),
        "nodes": st.integers(1, 10_000_000),
        "observed_nodes": st.integers(1, 10_000_000),
        "standbys": st.integers(0, 10_000),
        "repair": sizes(-9, 12),
        "planned_stops_per_week": or_nothing(sizes(-6, 6)),
        "period": sizes(-9, 12),
    },
)


@settings(max_examples=600)
@given(values=WIDE)
def test_whatever_is_accepted_gets_an_answer_in_finite_numbers(values: dict[str, Any]) -> None:
    rates = [name for name in ("mtbf", "failures_per_day", "per_1000_node_days", "faults") if name in values]
    for name in rates[1:]:
        values.pop(name)
    if rates[:1] != ["faults"]:
        values.pop("exposure", None)
    asked, errors = read(values)
    assert (asked is None) is bool(errors)
    if asked is None:
        return
    tree = as_json(answer(asked))
    assert all(math.isfinite(number) for number in numbers(tree))
    json.dumps(tree, allow_nan=False)
    assert 0 <= tree["ettr_max"] <= 1
    assert 0 <= tree["recommended_ettr"] <= 1
    assert sum(tree["shares"].values()) == pytest.approx(1, abs=1e-6)
    assert all(-1e-9 <= share <= 1 + 1e-9 for share in tree["shares"].values())
    assert tree["interval_s"] is not None or not tree["feasible"]


def test_with_steps_the_shares_and_what_is_lost_are_those_of_their_period() -> None:
    told = found(step_s=900.0)
    assert told.steps is not None
    assert told.shares == exact.shares_at(told.inputs, told.steps.period_s)
    tree = as_json(told)
    assert sum(tree["lost_per_day_s"].values()) == pytest.approx(86_400 * (1 - told.steps.ettr))
    assert tree["shares"]["useful"] == pytest.approx(told.steps.ettr)


def test_a_target_that_no_whole_number_of_steps_keeps_is_not_reachable() -> None:
    told = found(step_s=900.0, target=0.94386)
    assert told.exact.feasible
    assert not told.reachable
    assert told.why_no_steps is not None
    assert told.why_no_steps.startswith("no number of steps keeps 0.94386: every step takes 15 min")
    assert as_json(told)["reachable"] is False


def test_a_target_is_reachable_when_a_period_keeps_it_and_a_number_of_steps_where_a_step_is_known() -> None:
    assert found().reachable
    assert found(step_s=14.2).reachable
    assert found(step_s=14.2).why_no_steps is None
    assert not found(target=0.99).reachable
    assert not found(target=0.99, step_s=14.2).reachable
    assert found(target=0.99, step_s=14.2).why_no_steps is None
    assert not found(mtbf_s=None, target=0.99, cluster_availability=0.9, step_s=10.0).reachable


def test_only_faults_that_lose_a_node_grow_with_the_number_of_nodes() -> None:
    job = {"node_share": 0.25, "memory_share": 0.5, "observed_nodes": 100}
    same = found(**job, nodes=100)
    assert same.inputs.mtbf_s == found().inputs.mtbf_s
    four_times = request(**job, nodes=400)
    assert four_times.faults_per_s == pytest.approx((0.75 + 0.25 * 4) / 36_000)
    assert four_times.shares == (pytest.approx(1 / 1.75), pytest.approx(0.5 / 1.75))
    all_lose_one = request(observed_nodes=100, nodes=50)
    assert all_lose_one.faults_per_s == pytest.approx(0.5 / 36_000)
    assert all_lose_one.shares == (1.0, 0.0)


def test_counted_faults_are_scaled_to_the_planned_nodes_with_their_interval() -> None:
    counted = {"mtbf_s": None, "faults": 3, "exposure_s": 168 * HOUR_S, "nodes": 30}
    same, grown = found(**counted), found(**counted, observed_nodes=10)
    assert grown.inputs.faults_per_s == pytest.approx(3 * same.inputs.faults_per_s)
    assert same.credible is not None
    assert grown.credible is not None
    assert grown.credible.mtbf_s == tuple(pytest.approx(value / 3) for value in same.credible.mtbf_s)
    assert grown.credible.p_target < same.credible.p_target
    fleet = found(**counted | {"faults": 0, "exposure_s": 0.0}, observed_nodes=10, prior="fleet")
    assert fleet.inputs.mtbf_s == pytest.approx(86_400 / 0.12)


@pytest.mark.parametrize("observed", [None, 50])
@pytest.mark.parametrize("standbys", [None, 1])
@pytest.mark.parametrize("share", [0.1, 0.5, 1.0])
def test_the_largest_job_follows_the_law_of_the_rate(observed: int | None, standbys: int | None, share: float) -> None:
    asked = request(
        nodes=100, observed_nodes=observed, node_share=share, drain_s=900.0, downtime_s=60.0, repair_s=7200.0,
        standbys=standbys, target=0.9,
    )  # fmt: skip
    most = answer(asked).levers.nodes
    assert most is not None
    assert answer(asked.on(most)).exact.feasible
    assert not answer(asked.on(most + 1)).exact.feasible


def test_without_faults_that_lose_a_node_nothing_limits_the_nodes() -> None:
    assert found(nodes=100, node_share=0.0).levers.nodes is None


def test_more_standbys_never_hurt_and_a_wait_is_never_shorter_than_the_swap() -> None:
    common = {"repair_s": 600.0, "downtime_s": 300.0, "mtbf_s": 3600.0, "target": 0.5}
    rates = [found(**common, standbys=standbys).recommended_ettr for standbys in range(12)]
    assert rates == sorted(rates)
    told = found(**common, standbys=11)
    assert told.spares is not None
    assert told.spares.mean_wait_s == told.inputs.downtime_s == 300.0


def test_half_the_faults_also_need_fewer_standbys() -> None:
    told = found(standbys=1, repair_s=8 * HOUR_S, downtime_s=60.0, target=0.8)
    calmer = found(standbys=1, repair_s=8 * HOUR_S, downtime_s=60.0, target=0.8, mtbf_s=72_000.0)
    assert told.gains[-1].name == "fault_rate"
    assert told.gains[-1].ettr_gain == pytest.approx(calmer.exact.ettr_max - told.exact.ettr_max, rel=1e-12)
    alone = exact.best(told.inputs)[1]
    assert told.gains[-1].ettr_gain > exact.best(replace(told.inputs, mtbf_s=72_000.0))[1] - alone


@pytest.mark.parametrize(("available", "chance"), [(1.0, 1.0), (0.9, 0.0)])
def test_where_no_rate_of_faults_limits_the_target_its_chance_is_all_or_nothing(
    available: float, chance: float
) -> None:
    costless = found(
        mtbf_s=None, faults=3, exposure_s=1e6, save_stall_s=0.0, recovery_s=0.0, cluster_availability=available
    )
    assert costless.exact.limits.mtbf_s is None
    assert costless.credible is not None
    assert costless.credible.p_target == chance


def test_a_present_period_keeps_the_target_from_the_low_end_to_the_high_end() -> None:
    low, high = found().exact.interval_s or (0.0, 0.0)
    assert high is not None
    kept = {at: found(period_s=at).present for at in (low * 0.999, low, high, high * 1.001)}
    assert [present.keeps_target for present in kept.values() if present] == [False, True, True, False]


def test_a_present_period_shorter_than_the_drain_counts_the_copies_that_come_late() -> None:
    drained = found(drain_s=1800.0, period_s=600.0)
    assert drained.recommended_s == 1800.0
    assert drained.present is not None
    assert not drained.present.keeps_target
    assert drained.present.ettr < exact.ettr_at(drained.inputs, 1800.0)
    assert drained.present.ettr == pytest.approx(
        (1 - 30 / 600) / (1 - 30 / 1800) * exact.ettr_at(drained.inputs, 1800.0), rel=1e-12
    )


def test_the_answer_tells_other_laws_and_the_tiers_at_the_used_period() -> None:
    told = found(step_s=100.0, drain_s=600.0, node_share=0.2)
    assert told.used_s == told.steps.period_s  # type: ignore[union-attr]
    tree = as_json(told)
    assert [law["name"].split(" ")[0] for law in tree["laws"]] == ["at", "early", "very", "by", "in"]
    assert tree["laws"][0]["ettr"] == pytest.approx(told.steps.ettr)  # type: ignore[union-attr]
    assert [tier["fault_share"] for tier in tree["tiers"]] == [pytest.approx(0.8), 0.0, 0.2]
    nothing = found(mtbf_s=None, target=0.99, cluster_availability=0.9)
    assert (nothing.used_s, nothing.laws, nothing.tiers) == (None, (), ())


def test_first_order_tells_no_shares_and_no_work_where_it_describes_nothing() -> None:
    tree = as_json(found(mtbf_s=100.0, save_stall_s=300.0, target=0.01))["first_order"]
    assert (tree["work_s"], tree["shares"]) == (None, None)
    assert tree["ettr_max"] < 0
    assert as_json(found())["first_order"]["work_s"] > 0
    assert sum(as_json(found())["first_order"]["shares"].values()) == pytest.approx(1)


@pytest.mark.parametrize(
    ("work_s", "name"),
    [
        (lambda o, m, r: math.sqrt(2 * o * m) - o, "Young"),
        (lambda o, m, r: math.sqrt(2 * o * m) * (1 + math.sqrt(o / 2 / m) / 3 + o / m / 18) - o, "Daly"),
        (lambda o, m, r: math.sqrt(2 * o * (m + r) + o * o), "Saxena"),
        (lambda o, m, r: -o + math.sqrt(o * o + 2 * (1 - r / m) * o * m), "Meta's"),
    ],
)
def test_each_rule_has_its_own_period_with_the_downtime_as_part_of_the_restart(work_s: Any, name: str) -> None:
    rows = found(save_stall_s=200.0, downtime_s=1500.0, mtbf_s=9000.0).comparisons
    row = next(row for row in rows if row.name.startswith(name))
    assert row.period_s == pytest.approx(work_s(200.0, 9000.0, 2100.0) + 200.0, rel=1e-12)
    if name == "Meta's":
        work = row.period_s - 200.0
        assert row.their_ettr == pytest.approx((1 - (2100.0 + work / 2) / 9000.0) / (1 + 200.0 / work), rel=1e-12)
