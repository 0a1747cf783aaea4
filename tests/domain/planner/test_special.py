"""The tails of the gamma distribution: known values, identities, and quantiles that lead back."""

import json
import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reliability.domain.planner.special import gamma_p, gamma_q, gamma_quantile, log_poisson
from reliability.errors import InvalidInput
from tests.domain.planner.models import near

TABLE: list[list[float]] = json.loads(Path(__file__).with_name("gamma.json").read_text())["rows"]
CHI_SQUARE = [
    (1, 0.95, 3.841458820694124),
    (1, 0.05, 0.003932140000019522),
    (2, 0.5, 1.3862943611198906),
    (10, 0.025, 3.2469727802368413),
    (10, 0.999, 29.58829844507442),
    (100, 0.05, 77.92946516501726),
]

shapes = st.floats(-2, 6).map(lambda power: 10.0**power)
tails = st.floats(-12, math.log10(0.5)).map(lambda power: 10.0**power)


@pytest.mark.parametrize(("shape", "x", "p", "q"), TABLE)
def test_both_tails_agree_with_the_table(shape: float, x: float, p: float, q: float) -> None:
    assert gamma_p(shape, x) == near(p, 1e-10)
    assert gamma_q(shape, x) == near(q, 1e-10)


@pytest.mark.parametrize(("shape", "x", "p", "q"), [row for row in TABLE if row[0] >= 0.5])
def test_the_quantile_leads_back_to_x(shape: float, x: float, p: float, q: float) -> None:
    if q > 1e-9:  # nearer to 1 a float no longer tells p precisely
        assert gamma_quantile(shape, p) == near(x, max(1e-10, 1e-15 / q))


@pytest.mark.parametrize(("degrees", "p", "value"), CHI_SQUARE)
def test_the_chi_square_table_is_reproduced(degrees: int, p: float, value: float) -> None:
    assert 2 * gamma_quantile(degrees / 2, p) == near(value, 1e-10)


@pytest.mark.parametrize("x", [1e-12, 0.3, 1.0, 2.5, 40.0, 700.0])
def test_shapes_with_a_closed_form_agree_with_it(x: float) -> None:
    assert gamma_p(1.0, x) == near(-math.expm1(-x), 1e-13)
    assert gamma_q(1.0, x) == near(math.exp(-x), 1e-12)
    assert gamma_p(0.5, x) == near(math.erf(math.sqrt(x)), 1e-13)
    assert gamma_q(0.5, x) == near(math.erfc(math.sqrt(x)), 1e-12)


@given(shapes, tails, st.booleans())
def test_a_quantile_has_the_probability_asked_for(shape: float, tail: float, upper: bool) -> None:
    x = gamma_quantile(shape, 1 - tail if upper else tail)
    if x > 1e-290:
        slope = math.exp(log_poisson(shape, x)) * shape
        off = gamma_q(shape, x) - (1 - (1 - tail)) if upper else gamma_p(shape, x) - tail
        assert abs(off / slope) <= 1e-10


@given(shapes, st.floats(0, 10), st.floats(0, 1))
def test_the_lower_tail_grows_with_x_and_falls_with_the_shape(shape: float, times: float, more: float) -> None:
    x = shape * times
    here = gamma_p(shape, x)
    assert 0 <= here <= 1
    assert here <= gamma_p(shape, x * (1 + more)) + 1e-11
    assert here >= gamma_p(shape * (1 + more), x) - 1e-11
    assert here + gamma_q(shape, x) == near(1.0, 1e-12)


@given(st.floats(0.05, 1e5), st.floats(0.5, 2))
def test_one_more_in_the_shape_takes_one_poisson_term_away(shape: float, times: float) -> None:
    x = shape * times
    assert gamma_p(shape, x) - math.exp(log_poisson(shape, x)) == pytest.approx(gamma_p(shape + 1, x), abs=1e-10)


def test_the_two_ways_of_computing_meet_where_one_takes_over() -> None:
    below, above = math.nextafter(1e4, 0), 1e4
    for x in (9300.0, 9900.0, 10_000.0, 10_200.0, 10_700.0):
        assert gamma_p(below, x) == near(gamma_p(above, x), 1e-10)
        assert gamma_q(below, x) == near(gamma_q(above, x), 1e-10)


def test_nothing_is_below_zero_and_all_is_below_infinity() -> None:
    for shape in (0.5, 30.0, 1e6):
        assert gamma_p(shape, 0.0) == 0.0
        assert gamma_p(shape, math.inf) == 1.0
        assert gamma_q(shape, 1e300) == 0.0
        assert gamma_q(shape, 1e-300) in (1.0, near(1.0, 1e-12))
    assert log_poisson(3, 0.0) == log_poisson(30, 0.0) == -math.inf
    assert log_poisson(0, 0.0) == 0.0


def test_a_quantile_too_small_for_a_float_is_zero() -> None:
    assert gamma_quantile(0.01, 1e-12) == 0.0
    assert gamma_quantile(0.5, 1e-12) == near(math.pi / 4 * 1e-24, 1e-10)


@pytest.mark.parametrize(("shape", "p"), [(0.0, 0.5), (-1.0, 0.5), (math.inf, 0.5), (math.nan, 0.5), (1, 0), (1, 1)])
def test_what_has_no_quantile_is_refused(shape: float, p: float) -> None:
    with pytest.raises(InvalidInput):
        gamma_quantile(shape, p)


@pytest.mark.parametrize("x", [-1.0, math.nan])
def test_an_x_below_zero_is_refused(x: float) -> None:
    with pytest.raises(InvalidInput):
        gamma_p(1.0, x)


def test_shapes_of_many_millions_are_quick_and_nearly_normal() -> None:
    shape = 1e12
    assert gamma_quantile(shape, 0.975) == near(shape + 1.959963984540054 * math.sqrt(shape), 1e-11)
