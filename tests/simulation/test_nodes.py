"""Do many nodes, each with a memory of its own, fail like one source without memory?"""

import numpy as np
import pytest

from reliability.domain.planner import exact, renewal
from reliability.errors import InvalidInput
from reliability.simulation import Exponential, Job, Weibull, many_nodes
from reliability.simulation.nodes import superposed
from tests.simulation.agreement import assert_agree
from tests.simulation.known import DAY_S, job

NODE_S = 300 * DAY_S
SHAPE = Job(period_s=1981.85212822, save_stall_s=30, recovery_s=300, downtime_s=120)


@pytest.mark.slow
def test_four_hundred_weibull_nodes_act_like_one_exponential_source() -> None:
    found = many_nodes(SHAPE, Weibull(0.7, NODE_S), 400, burn_in_s=900 * DAY_S, failures=600_000, seed=2)
    assert_agree(found.ettr, found.se, 0.962905262897, 1.83425e-04)
    assert found.ettr == pytest.approx(exact.ettr_at(job(30, NODE_S / 400, 300, 120), SHAPE.period_s), abs=0.002)


def test_exponential_nodes_are_an_exponential_job() -> None:
    found = many_nodes(SHAPE, Exponential(NODE_S), 40, failures=200_000)
    assert_agree(found.ettr, found.se, exact.ettr_at(job(30, NODE_S / 40, 300, 120), SHAPE.period_s))


def test_one_node_is_a_job_that_is_renewed() -> None:
    law = Weibull(0.7, 10800)
    found = many_nodes(SHAPE, law, 1, failures=200_000)
    expected = renewal.ettr(renewal.Weibull(shape=0.7, mean_s=10800), SHAPE.work_s, job(30, 10800, 300, 120))
    assert_agree(found.ettr, found.se, expected)


def test_the_gaps_of_many_nodes_have_the_mean_of_one_over_their_number() -> None:
    gaps = superposed(Weibull(0.7, 1e6), 100, 20_000, 5e6, np.random.default_rng(1))
    assert len(gaps) == 20_000
    assert gaps.mean() == pytest.approx(1e4, rel=0.03)


def test_a_young_fleet_of_nodes_fails_more_often() -> None:
    young, old = (
        many_nodes(SHAPE, Weibull(0.7, NODE_S), 200, burn_in_s=burn_in, failures=20_000)
        for burn_in in (0, 1000 * DAY_S)
    )
    assert young.ettr < old.ettr - 4 * old.se


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"nodes": 0}, "nodes"),
        ({"nodes": 10**6}, "nodes"),
        ({"nodes": 100_000, "burn_in_s": 1e12}, "nodes"),
        ({"burn_in_s": -1}, "burn_in_s"),
        ({"failures": 1}, "failures"),
    ],
)
def test_impossible_fleets_are_refused_by_name(change: dict[str, object], field: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        many_nodes(**{"job": SHAPE, "node": Exponential(NODE_S), "nodes": 10, **change})  # type: ignore[arg-type]
    assert refused.value.field == field
