"""Inputs over wide ranges, and the exact model worked out a second time with 50 digits."""

from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal, localcontext

from hypothesis import settings
from hypothesis import strategies as st

from reliability.domain.planner import Inputs
from reliability.domain.planner.exact import best

DIGITS = 50
ROUNDS = 400
FEW = settings(max_examples=20)
"""For tests that run for both models and every input."""


def sizes(least: float, most: float) -> st.SearchStrategy[float]:
    """Draw numbers whose logarithm is even between two powers of ten."""
    return st.floats(least, most).map(lambda power: 10.0**power)


def or_nothing(strategy: st.SearchStrategy[float]) -> st.SearchStrategy[float]:
    return st.one_of(st.just(0.0), strategy)


@st.composite
def wide(draw: st.DrawFn, *, drains: bool = True, stops: bool = False) -> Inputs:
    """Draw inputs: the stall from 1e-9 to 10 times the time between faults, all other times from 0 to beyond it.

    The target is anything, or a little below the best that can be had.
    """
    mtbf_s = draw(sizes(-1, 8))
    planned = draw(or_nothing(sizes(-6, -1))) if stops else 0.0
    downtime_s = mtbf_s * draw(or_nothing(sizes(-6, 0.5)))
    inputs = Inputs(
        save_stall_s=mtbf_s * draw(sizes(-9, 1)),
        mtbf_s=mtbf_s,
        recovery_s=mtbf_s * draw(or_nothing(sizes(-6, 0.5))),
        downtime_s=downtime_s,
        drain_s=mtbf_s * draw(or_nothing(sizes(-6, 0.5))) if drains else 0.0,
        target=draw(st.one_of(st.floats(0.001, 0.9999), sizes(-6, -0.01).map(lambda loss: 1 - loss))),
        cluster_availability=draw(st.one_of(st.just(1.0), st.floats(0.05, 1.0))) if stops else 1.0,
        planned_stops_per_s=planned / (30 * mtbf_s + 30 * downtime_s),
    )
    reached = draw(st.one_of(st.none(), st.floats(0.8, 0.9999)))
    highest = best(inputs)[1]
    return replace(inputs, target=highest * reached) if reached and highest > 1e-6 else inputs


def exact(value: float) -> Decimal:
    """Return the very value of a float."""
    return Decimal(value)


class Reference:
    """The exact model without planned stops and without a drain that binds, in plain bisection with 50 digits."""

    def __init__(self, inputs: Inputs) -> None:
        if inputs.mtbf_s is None:
            raise ValueError("the reference is for jobs with faults")
        self.mtbf, self.stall = exact(inputs.mtbf_s), exact(inputs.save_stall_s)
        self.exposed = exact(inputs.recovery_s) + exact(inputs.drain_s)
        self.drain, self.downtime = exact(inputs.drain_s), exact(inputs.downtime_s)
        self.target = exact(inputs.target) / exact(inputs.cluster_availability)

    def rate(self, period: Decimal, mtbf: Decimal | None = None) -> Decimal:
        with localcontext(prec=DIGITS):
            mtbf = mtbf or self.mtbf
            grown = (period / mtbf).exp() - 1
            kept = (-self.exposed / mtbf).exp() / (1 + self.downtime / mtbf)
            return (period - self.stall) / mtbf / grown * kept

    def period(self, mtbf: Decimal | None = None, within: str = "1e-20") -> Decimal:
        """1 - (x - o) - e^-x is 0 at x = lambda tau, o = lambda O: the derivative of the rate in the period."""
        with localcontext(prec=DIGITS):
            mtbf = mtbf or self.mtbf
            stall = self.stall / mtbf

            def falls(x: Decimal) -> Decimal:
                return 1 - (x - stall) - (-x).exp()

            return mtbf * bisected(falls, stall, stall + 1, within)

    def ends(self) -> tuple[Decimal, Decimal]:
        with localcontext(prec=DIGITS):
            best, highest = self.period(), self.period() + self.mtbf
            while self.rate(highest) >= self.target:
                highest *= 2
            low = bisected(lambda period: self.target - self.rate(period), self.stall, best)
            return low, bisected(lambda period: self.rate(period) - self.target, best, highest)

    def most_stall_and_recovery(self) -> tuple[Decimal, Decimal]:
        """Both closed forms, with g = E* e^(lambda (R + d)) (1 + lambda D)."""
        with localcontext(prec=DIGITS):
            g = self.target * (self.exposed / self.mtbf).exp() * (1 + self.downtime / self.mtbf)
            spare = self.rate(self.period()) / self.target
            return self.mtbf * (g - 1 - g.ln()), self.exposed - self.drain + self.mtbf * spare.ln()

    def least_mtbf(self) -> Decimal:
        with localcontext(prec=DIGITS):

            def falls(mtbf: Decimal) -> Decimal:
                return self.target - self.rate(self.period(mtbf, within="1e-8"), mtbf)

            low = high = self.mtbf
            while falls(high) > 0:
                high *= 4
            while falls(low) < 0:
                low /= 4
            return bisected(falls, low, high, within="1e-12")


def bisected(falls: Callable[[Decimal], Decimal], low: Decimal, high: Decimal, within: str = "1e-20") -> Decimal:
    """Return where a falling function is 0, to a share of the upper bound that is given."""
    for _ in range(ROUNDS):
        middle = (low + high) / 2
        if falls(middle) >= 0:
            low = middle
        else:
            high = middle
        if high - low <= low * Decimal(within):
            break
    return (low + high) / 2
