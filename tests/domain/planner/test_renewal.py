"""Lives that are not exponential: cases, simulations, and the exponential model as the special case."""

import math
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reliability.domain.planner import Inputs, exact
from reliability.domain.planner.renewal import HyperExponential, Weibull, ettr, optimum
from reliability.errors import InvalidInput
from tests.domain.planner.cases import sizes, wide
from tests.domain.planner.models import MODELS, near, within

CASES = {case["name"]: case for case in MODELS["weibull"]}
every_case = pytest.mark.parametrize("case", CASES.values(), ids=CASES)
THREE_HOURS = Inputs(save_stall_s=30, mtbf_s=10_800, recovery_s=300, downtime_s=120, target=0.9)
MIXED = HyperExponential(((0.3, 2000.0), (0.7, 14_571.42857142857)))

laws = st.one_of(
    st.builds(Weibull, st.floats(0.3, 4), sizes(2, 7)),
    st.builds(
        lambda share, first, second: HyperExponential(((share, first), (1 - share, second))),
        st.floats(0, 1),
        sizes(2, 7),
        sizes(2, 7),
    ),
)


def costs(case: dict[str, Any]) -> Inputs:
    return Inputs(mtbf_s=case.get("mean_s", case.get("mtbf_s")), target=0.9, **case["costs"])


@every_case
def test_weibull_lives_agree_with_the_case(case: dict[str, Any]) -> None:
    law = Weibull(case["shape"], case["mean_s"])
    assert ettr(law, case["exponential_work_s"], costs(case)) == near(case["ettr"])
    best = optimum(law, costs(case))
    assert best.ettr == near(case["best_ettr"])
    assert best.work_s == near(case["best_work_s"], 1e-5)
    assert best.period_s == best.work_s + case["costs"]["save_stall_s"]
    exponential = exact.plan(costs(case))
    assert exponential.work_s == near(case["exponential_work_s"])
    assert exponential.ettr_max == near(case["ettr_if_exponential"])


@every_case
def test_weibull_lives_agree_with_their_simulation(case: dict[str, Any]) -> None:
    law = Weibull(case["shape"], case["mean_s"])
    assert ettr(law, case["exponential_work_s"], costs(case)) == within(case["simulated"])
    assert optimum(law, costs(case)).ettr == within(case["simulated_best"])


def test_half_a_shape_gives_a_known_rate_at_the_exponential_best() -> None:
    work_s = exact.plan(THREE_HOURS).work_s
    assert ettr(Weibull(0.5, 10_800.0), work_s or 0.0, THREE_HOURS) == pytest.approx(0.9030, abs=5e-5)


def test_many_nodes_of_their_own_lives_act_like_one_exponential_source() -> None:
    case = MODELS["many_nodes"]
    assert case["node_mean_s"] / case["nodes"] == near(case["mtbf_s"])
    plan = exact.plan(costs(case))
    assert plan.work_s == near(case["best_work_s"])
    assert plan.ettr_max == near(case["ettr"])
    assert plan.ettr_max == pytest.approx(case["simulated"], abs=0.002)


@given(wide(), st.floats(-3, 2))
def test_a_weibull_shape_of_one_is_the_exact_exponential(inputs: Inputs, power: float) -> None:
    assert inputs.mtbf_s is not None
    work_s = inputs.mtbf_s * 10.0**power
    expected = exact.ettr_at(inputs, work_s + inputs.save_stall_s)
    assert ettr(Weibull(1.0, inputs.mtbf_s), work_s, inputs) == pytest.approx(expected, rel=1e-9, abs=1e-250)


@given(wide(), st.floats(-3, 2), st.floats(0, 1))
def test_a_mix_of_equal_rates_is_the_exact_exponential(inputs: Inputs, power: float, share: float) -> None:
    assert inputs.mtbf_s is not None
    work_s = inputs.mtbf_s * 10.0**power
    law = HyperExponential(((share, inputs.mtbf_s), (1 - share, inputs.mtbf_s)))
    expected = exact.ettr_at(inputs, work_s + inputs.save_stall_s)
    assert ettr(law, work_s, inputs) == pytest.approx(expected, rel=1e-9, abs=1e-250)


@given(wide(drains=False))
def test_the_best_work_of_either_law_is_the_exact_one_where_they_are_exponential(inputs: Inputs) -> None:
    assert inputs.mtbf_s is not None
    plan = exact.plan(inputs)
    for law in (Weibull(1.0, inputs.mtbf_s), HyperExponential(((1.0, inputs.mtbf_s),))):
        best = optimum(law, inputs)
        assert best.ettr == pytest.approx(plan.ettr_max, rel=1e-8, abs=1e-250)


def summed_plainly(law: Weibull, start_s: float, step_s: float) -> float:
    terms, k = [], 1
    while (term := law.survival(start_s + k * step_s)) > 1e-17:
        terms.append(term)
        k += 1
    return math.fsum(terms)


@pytest.mark.parametrize("shape", [0.6, 0.9, 1.0, 1.7, 5.0, 20.0])
@pytest.mark.parametrize("step_s", [0.002, 0.02, 0.3, 4.0])
@pytest.mark.parametrize("start_s", [0.0, 0.05, 1.5])
def test_the_sum_of_the_survival_is_that_of_all_its_terms(shape: float, step_s: float, start_s: float) -> None:
    law = Weibull(shape, 1.0)
    assert law.summed(start_s, step_s) == pytest.approx(summed_plainly(law, start_s, step_s), rel=3e-12, abs=1e-14)


@given(laws, sizes(0, 5))
def test_the_sum_times_its_step_tends_to_the_integral(law: Weibull | HyperExponential, start_s: float) -> None:
    whole = law.beyond(start_s)
    step_s = law.mean_s * 1e-6
    assert law.summed(start_s, step_s) * step_s == pytest.approx(whole, rel=1e-2, abs=2 * step_s)
    assert law.beyond(0.0) == near(law.mean_s)


@given(laws, sizes(-1, 3), sizes(0, 3), st.floats(-2, 2))
def test_no_work_is_better_than_the_best(
    law: Weibull | HyperExponential, save_stall_s: float, recovery_s: float, power: float
) -> None:
    inputs = Inputs(save_stall_s=save_stall_s, mtbf_s=law.mean_s, recovery_s=recovery_s, target=0.9)
    best = optimum(law, inputs)
    assert 0.0 <= best.ettr <= 1.0
    assert ettr(law, best.work_s * 10.0**power, inputs) <= best.ettr * (1 + 1e-9)


def test_a_mix_of_short_and_long_lives_is_kinder_than_one_of_the_same_mean() -> None:
    assert MIXED.mean_s == near(10_800.0)
    assert optimum(MIXED, THREE_HOURS).ettr > exact.plan(THREE_HOURS).ettr_max


def test_a_drain_sets_the_least_work_and_is_paid_at_each_fault() -> None:
    drained = Inputs(save_stall_s=30, mtbf_s=10_800, recovery_s=300, downtime_s=120, drain_s=1500, target=0.8)
    best = optimum(Weibull(0.7, 10_800.0), drained)
    assert (best.work_s, best.period_s) == (1470.0, 1500.0)
    assert best.ettr < optimum(Weibull(0.7, 10_800.0), THREE_HOURS).ettr


def test_a_save_that_takes_no_time_is_made_all_the_time() -> None:
    free = Inputs(save_stall_s=0, mtbf_s=10_800, recovery_s=300, downtime_s=120, target=0.9)
    best = optimum(Weibull(1.0, 10_800.0), free)
    assert (best.work_s, best.period_s) == (0.0, 0.0)
    assert best.ettr == near(exact.plan(free).ettr_max)
    assert ettr(MIXED, 0.0, free) == near(ettr(MIXED, 1e-3, free), 1e-6)
    assert ettr(MIXED, 0.0, THREE_HOURS) == 0.0


def test_lives_shorter_than_any_recovery_keep_nothing() -> None:
    inputs = Inputs(save_stall_s=1, mtbf_s=1.0, recovery_s=1e9, target=0.9)
    for law in (Weibull(3.0, 1e-50), HyperExponential(((1.0, 1e-3),))):
        assert ettr(law, 10.0, inputs) == 0.0
        assert optimum(law, inputs).ettr == 0.0


@pytest.mark.parametrize("shape", [0.3, 0.7, 1.5])
def test_an_optimum_takes_a_few_milliseconds(shape: float) -> None:
    def once() -> float:
        began = time.perf_counter()
        optimum(Weibull(shape, 86_400.0), THREE_HOURS)
        return time.perf_counter() - began

    assert min(once() for _ in range(5)) < 0.02


@pytest.mark.parametrize(
    ("field", "call"),
    [
        ("shape", lambda: Weibull(0.01, 1.0)),
        ("shape", lambda: Weibull(math.nan, 1.0)),
        ("mean_s", lambda: Weibull(1.0, 0.0)),
        ("mean_s", lambda: HyperExponential(((1.0, -1.0),))),
        ("share", lambda: HyperExponential(((0.5, 1.0),))),
        ("share", lambda: HyperExponential(())),
        ("work_s", lambda: ettr(Weibull(1.0, 1.0), -1.0, THREE_HOURS)),
    ],
)
def test_what_cannot_be_is_refused_by_name(field: str, call: Any) -> None:
    with pytest.raises(InvalidInput) as refused:
        call()
    assert refused.value.field == field


def test_a_stall_that_is_all_but_nothing_has_a_best_work() -> None:
    tiny = Inputs(save_stall_s=5e-324, mtbf_s=0.25, recovery_s=0.0, target=0.5)
    best = optimum(Weibull(1.5, 0.25), tiny)
    assert 0 < best.work_s < 0.25
    assert best.ettr == pytest.approx(1.0)


def test_tiers_that_lag_behind_count_under_every_law() -> None:
    slow = Inputs(save_stall_s=1, mtbf_s=21600, recovery_s=60, target=0.9, tiers=((0.2, 3600.0),))
    for period_s in (100.0, 230.0, 3000.0, 8000.0):
        exponential = ettr(Weibull(1.0, 21600.0), period_s - 1, slow)
        assert exponential == pytest.approx(exact.ettr_at(slow, period_s), rel=1e-9)
    assert optimum(Weibull(1.0, 21600.0), slow).period_s == pytest.approx(exact.plan(slow).period_s, rel=1e-3)
