"""Other authors' formulas and published runs, reproduced."""

import math
from typing import Any

import pytest
from hypothesis import given

from reliability.domain.planner import Inputs, exact
from reliability.domain.planner.published import (
    TABLES,
    QueuedJob,
    Table,
    bloom,
    byterobust,
    daly_2006,
    ettr_with_queue,
    ettr_with_queue_exact,
    llama3,
    meta,
    meta_ettr,
    meta_optimum,
    meta_period,
    opt175b,
    periods,
    saxena_period,
    table,
)
from reliability.errors import InvalidInput
from tests.domain.planner.cases import wide
from tests.domain.planner.models import MODELS, near, within

DAY_S = 86_400.0
ETTR = {case["name"]: case for case in MODELS["expected_ettr"]}
QUEUES = {case["name"]: case for case in MODELS["queues"]}
RUNS: dict[str, Any] = MODELS["runs"]


def faults(case: dict[str, Any]) -> float:
    return float(case["nodes"] * case["faults_per_node_day"] / DAY_S)


def figure(shown: Table, name: str, column: str = "computed") -> Any:
    """Return one cell by the start of its row's name."""
    rows = [row for row in shown.rows if str(row[0]).startswith(name)]
    assert rows, name
    return rows[0][shown.columns.index(column)]


@pytest.mark.parametrize("case", ETTR.values(), ids=ETTR)
def test_the_expected_ettr_and_the_exact_one_agree(case: dict[str, Any]) -> None:
    rate = faults(case)
    times = (case["restart_s"], case["work_s"], case["write_s"])
    assert meta_ettr(rate, *times) == near(case["ettr"])
    inputs = Inputs(save_stall_s=case["write_s"], mtbf_s=1 / rate, recovery_s=case["restart_s"], target=0.9)
    ours = exact.ettr_at(inputs, case["work_s"] + case["write_s"])
    assert ours == near(case["exact"])
    assert ours == within(case["simulated"])
    if case["published"] is not None:
        assert meta_ettr(rate, *times) == pytest.approx(case["published"], abs=0.045)


def test_the_optimum_of_the_expected_ettr_agrees_and_is_one() -> None:
    case = ETTR["12,000 GPUs, short writes"]
    rate, restart_s, write_s = faults(case), case["restart_s"], case["write_s"]
    work_s = meta_optimum(rate, restart_s, write_s)
    assert work_s == near(case["own_optimum_s"])
    assert meta_period(rate, write_s) == near(case["work_s"])
    best = meta_ettr(rate, restart_s, work_s or 0.0, write_s)
    assert all(meta_ettr(rate, restart_s, times * (work_s or 0.0), write_s) < best for times in (0.9, 0.99, 1.01, 1.1))


def test_an_optimum_that_is_not_there_is_none() -> None:
    assert meta_optimum(0.0, 300.0, 10.0) is None
    assert meta_optimum(1 / 300, 300.0, 10.0) is None
    assert meta_period(0.0, 10.0) is None
    assert meta_optimum(1e-4, 300.0, 0.0) == 0.0
    assert meta_ettr(1e-4, 300.0, 0.0, 0.0) == near(0.97)
    assert meta_ettr(1e-4, 300.0, 0.0, 10.0) == 0.0


@pytest.mark.parametrize("case", QUEUES.values(), ids=QUEUES)
def test_a_job_that_queues_agrees_with_the_case(case: dict[str, Any]) -> None:
    job = QueuedJob(faults_per_s=faults(case), **case["job"])
    assert ettr_with_queue(job) == near(case["first_order"])
    assert ettr_with_queue_exact(job) == near(case["exact"])
    simulated = case["simulated"]
    assert ettr_with_queue(job) == pytest.approx(simulated, rel=0.05)
    assert ettr_with_queue_exact(job) == pytest.approx(simulated, abs=0.002)


@given(wide(drains=False))
def test_a_long_job_that_queues_is_the_exact_model_with_the_queue_as_downtime(inputs: Inputs) -> None:
    work_s = inputs.mtbf_s or 1.0
    job = QueuedJob(
        productive_s=work_s * 1e9,
        faults_per_s=inputs.faults_per_s,
        restart_s=inputs.recovery_s,
        work_s=work_s,
        write_s=inputs.save_stall_s,
        queue_s=inputs.downtime_s,
    )
    expected = exact.ettr_at(inputs, work_s + inputs.save_stall_s)
    assert ettr_with_queue_exact(job) == pytest.approx(expected, rel=1e-6, abs=1e-12)


def test_a_job_without_faults_only_queues_and_starts_once() -> None:
    job = QueuedJob(productive_s=900, faults_per_s=0.0, restart_s=20, work_s=90, write_s=5, queue_s=30)
    assert ettr_with_queue_exact(job) == near(900 / 1000)
    assert ettr_with_queue(job) == near(900 / 1000)


def test_a_job_that_never_gets_on_has_a_rate_of_zero() -> None:
    job = QueuedJob(productive_s=900, faults_per_s=1.0, restart_s=1e5, work_s=90)
    assert ettr_with_queue(job) == ettr_with_queue_exact(job) == 0.0


def test_the_period_of_highest_availability_depends_on_recovery_and_loses_little() -> None:
    theirs_s = saxena_period(300.0, 10_800.0, 900.0)
    assert theirs_s == pytest.approx(2966.5, abs=0.5)
    inputs = Inputs(save_stall_s=300, mtbf_s=10_800, recovery_s=900, target=0.5)
    best = exact.plan(inputs)
    assert best.period_s == pytest.approx(2650, abs=0.5)
    assert best.ettr_max - exact.ettr_at(inputs, theirs_s) == pytest.approx(0.0013, abs=5e-5)


@pytest.mark.parametrize(("mtbf_s", "minutes", "off"), [(86_400.0, 117, 0.5), (21_600.0, 57, 0.5), (900.0, 9.1, 0.06)])
def test_the_higher_order_estimate_gives_its_published_examples(mtbf_s: float, minutes: float, off: float) -> None:
    assert daly_2006(300.0, mtbf_s) / 60 == pytest.approx(minutes, abs=off)


def test_the_higher_order_estimate_to_all_digits_and_beyond_its_range() -> None:
    assert daly_2006(300.0, 86_400.0) == near(7001.38888889)
    assert daly_2006(300.0, 900.0) == near(548.455199184)
    assert daly_2006(300.0, 150.0) == 150.0
    assert daly_2006(0.0, 3600.0) == 0.0


@pytest.mark.parametrize("name", TABLES)
def test_each_table_is_whole_and_has_a_source(name: str) -> None:
    shown = table(name)
    assert shown.title
    assert shown.source
    assert {"published", "computed"} <= set(shown.columns)
    assert all(len(row) == len(shown.columns) for row in shown.rows)
    numbers = [cell for row in shown.rows for cell in row if isinstance(cell, int | float)]
    assert all(math.isfinite(number) for number in numbers)
    assert len({row[0] for row in shown.rows}) == len(shown.rows)


def test_an_unknown_table_is_refused_with_the_names_there_are() -> None:
    with pytest.raises(InvalidInput) as refused:
        table("llama4")
    assert "llama3" in refused.value.hint


def test_the_causes_of_llama3_add_up_and_all_shares_but_one_are_as_printed() -> None:
    shown, expected = llama3(), RUNS["llama3"]
    causes = shown.rows[:18]
    assert sum(int(row[1] or 0) for row in causes) == expected["sum"]
    assert figure(shown, "faulty GPU") == near(expected["faulty_gpu_percent"])
    assert figure(shown, "faulty GPU", "published") == 30.1
    for row in causes[1:]:
        assert row[4] == pytest.approx(row[3], abs=0.05)


def test_the_rate_and_the_budgets_of_llama3_agree() -> None:
    shown, expected = llama3(), RUNS["llama3"]
    assert figure(shown, "mean time between") == near(expected["mtbf_h"])
    assert figure(shown, "rate per 1000 node-days") == near(expected["per_1000_node_days"])
    assert figure(shown, "budget per unexpected") == near(expected["budget_min"])
    assert figure(shown, "budget per interruption with") == near(expected["budget_with_planned_min"])
    assert figure(shown, "longest save stall") == pytest.approx(14.5, abs=0.05)
    assert figure(shown, "the same by first order") == pytest.approx(11.8, abs=0.05)


def test_bloom_lost_half_a_period_per_fault() -> None:
    shown = bloom()
    assert figure(shown, "work lost per fault") == figure(shown, "work lost per fault", "published") == 1.5
    assert figure(shown, "mean time between faults at 1 GPU fault a week") == 168.0
    assert figure(shown, "best period at 2 GPU faults") < figure(shown, "best period at 1 GPU fault") < 3.0


def test_one_share_gives_all_published_standbys_of_byterobust() -> None:
    shown = byterobust()
    for row in shown.rows[:4]:
        assert row[2] == row[3]
    assert figure(shown, "least share") == near(0.00117)
    assert figure(shown, "largest share") == near(0.00125)
    assert figure(shown, "budget per incident") == pytest.approx(22, abs=0.5)


def test_the_projected_times_to_failure_and_rates_of_meta_are_reproduced() -> None:
    shown, expected = meta(), RUNS["times_to_failure_h"]
    for gpus, computed, told in zip(expected["gpus"], expected["computed"], expected["published"], strict=True):
        assert figure(shown, f"mean time to failure of {gpus}") == near(computed)
        assert computed == near(told, 0.03)
    for row in shown.rows:
        if str(row[0]).startswith("ETTR") and row[2] is not None:
            assert row[3] == pytest.approx(row[2], abs=0.045)
    assert figure(shown, "ETTR, 16,384 GPUs, 5 min") == pytest.approx(0.931, abs=5e-4)
    assert figure(shown, "ETTR, 12,000 GPUs, writes of 5 min") == pytest.approx(0.898, abs=5e-4)


def test_the_restarts_and_the_waste_of_opt_agree() -> None:
    shown, expected = opt175b(), RUNS["opt175b"]
    assert figure(shown, "mean time between restarts") == near(expected["mtbf_h"])
    assert figure(shown, "wasted share") == near(expected["wasted_share"])
    assert figure(shown, "rate at most") == near(1 - expected["wasted_share"])


def test_published_periods_stand_beside_the_exact_ones() -> None:
    shown = periods()
    for row in shown.rows[:3]:
        assert row[3] == pytest.approx(row[2], abs=0.5)
        assert row[4] == pytest.approx(row[2], abs=0.5)


@pytest.mark.parametrize(
    ("field", "call"),
    [
        ("faults_per_s", lambda: meta_ettr(-1.0, 0.0, 1.0, 0.0)),
        ("work_s", lambda: meta_ettr(1.0, 0.0, math.nan, 0.0)),
        ("write_s", lambda: meta_optimum(1.0, 0.0, -1.0)),
        ("mtbf_s", lambda: daly_2006(1.0, 0.0)),
        ("recovery_s", lambda: saxena_period(1.0, 1.0, -1.0)),
        ("productive_s", lambda: QueuedJob(productive_s=0.0, faults_per_s=0.0, restart_s=0.0, work_s=1.0)),
    ],
)
def test_what_cannot_be_is_refused_by_name(field: str, call: Any) -> None:
    with pytest.raises(InvalidInput) as refused:
        call()
    assert refused.value.field == field
