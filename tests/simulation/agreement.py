"""When do a formula and a simulation agree? Within four standard errors; seeds are fixed, so a pass stays a pass."""

import math
from collections.abc import Sequence

SIGMAS = 4.0


def deviation(found: float, se: float, expected: float, expected_se: float = 0.0) -> float:
    """Return by how many standard errors two values differ; equal values differ by none."""
    difference, error = found - expected, math.hypot(se, expected_se)
    return 0.0 if abs(difference) <= 1e-12 else difference / error if error else math.inf


def assert_agree(found: float, se: float, expected: float, expected_se: float = 0.0) -> None:
    sigmas = deviation(found, se, expected, expected_se)
    assert abs(sigmas) <= SIGMAS, f"{found:.6f} ({se:.1e}) is {sigmas:.1f} standard errors from {expected:.6f}"


def assert_chance(deviations: Sequence[float]) -> None:
    """Many deviations together are standard normal: no common bias, no standard error that is too large or small."""
    count = len(deviations)
    mean = sum(deviations) / count
    rms = math.sqrt(sum(value * value for value in deviations) / count)
    assert abs(mean) <= SIGMAS / math.sqrt(count), f"the mean of {count} deviations is {mean:.2f}"
    assert abs(rms - 1) <= SIGMAS / math.sqrt(2 * count), f"the root mean square of {count} deviations is {rms:.2f}"
