"""Which laws may a duration follow: times between faults, queues, repairs.

Each law draws `size` durations in seconds from a seeded generator and knows its own mean. Nothing here is shared with
the planner's formulas, which are what these draws are held against.
"""

import math
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from reliability.simulation.limits import positive, refuse

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]
Whole = NDArray[np.int64]


class Law(Protocol):
    """A law of durations."""

    @property
    def mean_s(self) -> float:
        """Return the mean in seconds."""

    def draw(self, chance: np.random.Generator, size: int) -> Floats:
        """Return `size` independent durations in seconds."""


@dataclass(frozen=True, slots=True)
class Constant:
    """Always the same duration, which may be 0."""

    mean_s: float

    def draw(self, chance: np.random.Generator, size: int) -> Floats:
        """Return `size` durations; no chance in it."""
        return np.full(size, self.mean_s)


@dataclass(frozen=True, slots=True)
class Exponential:
    """A duration without memory."""

    mean_s: float

    def __post_init__(self) -> None:
        positive("mean_s", self.mean_s)

    def draw(self, chance: np.random.Generator, size: int) -> Floats:
        """Return `size` durations."""
        return chance.standard_exponential(size) * self.mean_s


@dataclass(frozen=True, slots=True)
class Weibull:
    """Faults that come early (shape below 1) or with age (above 1)."""

    shape: float
    mean_s: float

    def __post_init__(self) -> None:
        positive("mean_s", self.mean_s)
        if not 0.05 <= self.shape <= 100:
            raise refuse("shape", "must be from 0.05 to 100", "Real logs have 0.65 to 0.89; 1 is exponential.")

    def draw(self, chance: np.random.Generator, size: int) -> Floats:
        """Return `size` durations."""
        return chance.weibull(self.shape, size) * (self.mean_s / math.gamma(1 + 1 / self.shape))


@dataclass(frozen=True, slots=True)
class HyperExponential:
    """A mixture: with probability `parts[i][0]` an exponential duration of mean `parts[i][1]` seconds."""

    parts: tuple[tuple[float, float], ...]

    def __post_init__(self) -> None:
        for probability, mean_s in self.parts:
            positive("parts", probability)
            positive("parts", mean_s)
        if not math.isclose(sum(probability for probability, _ in self.parts), 1, rel_tol=1e-9):
            raise refuse("parts", "the probabilities must add up to 1")

    @property
    def mean_s(self) -> float:
        """Return the mean in seconds."""
        return sum(probability * mean_s for probability, mean_s in self.parts)

    def draw(self, chance: np.random.Generator, size: int) -> Floats:
        """Return `size` durations."""
        bounds = np.cumsum([probability for probability, _ in self.parts])[:-1]
        means = np.array([mean_s for _, mean_s in self.parts])
        chosen: Floats = means[np.searchsorted(bounds, chance.random(size), side="right")]
        return chance.standard_exponential(size) * chosen


@dataclass(frozen=True, slots=True)
class LogNormal:
    """Repairs: most are short, some take very long. `sigma` is the standard deviation of the logarithm."""

    mean_s: float
    sigma: float = 1.0

    def __post_init__(self) -> None:
        positive("mean_s", self.mean_s)
        positive("sigma", self.sigma, most=5.0)

    def draw(self, chance: np.random.Generator, size: int) -> Floats:
        """Return `size` durations."""
        return chance.lognormal(-(self.sigma**2) / 2, self.sigma, size) * self.mean_s
