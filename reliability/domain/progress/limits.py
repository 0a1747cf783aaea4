"""After how long without a step does a rank stand still? The largest of a few limits, each of which says why.

A limit comes from the rank's own recent steps: a job with steps of two minutes is not hung after one. What a program
announces (an evaluation, a save) has the limit that the program gave it. All times are seconds.
"""

from dataclasses import dataclass

OWN_PHASES = ("", "training", "starting", "ended")
"""Phases that a node tells by itself; any other was announced by the program and carries its own limit."""
SIGMA_OF_MAD = 1.4826
"""Standard deviations of a normal law in one median absolute deviation (Rousseeuw and Croux 1993)."""


@dataclass(frozen=True, kw_only=True)
class Pace:
    """How long the steps of a rank took lately, without saves and announced phases.

    median_s, mad_s: median and median absolute deviation of the last steps. longest_s: the longest of late,
    some ten thousand steps. timed: how many steps of this attempt were timed at all.
    """

    median_s: float
    mad_s: float
    longest_s: float
    timed: int


@dataclass(frozen=True, kw_only=True)
class Rule:
    """When a rank stands still: for longer than the largest of these.

    floor_s; `steps` times the median step; the median step and `spreads` times its robust spread; `longest` times the
    longest step of late. Until `warm_up_steps` steps were timed also warm_up_s: the first ones compile and fill caches.
    """

    floor_s: float = 30.0
    steps: float = 5.0
    spreads: float = 20.0
    longest: float = 1.5
    warm_up_steps: int = 10
    warm_up_s: float = 120.0
    quiet_s: float = 600.0
    quiet_longest: float = 3.0

    def told(self) -> dict[str, float]:
        """Return what nodes are told of it."""
        return {"floor_s": self.floor_s, "steps": self.steps, "warm_up_s": self.warm_up_s}


@dataclass(frozen=True)
class Limit:
    """A limit in seconds, and where it comes from, in words."""

    seconds: float
    why: str

    def __str__(self) -> str:
        return f"{round(self.seconds, 1):g} s = {self.why}"


def step_limit(pace: Pace | None, rule: Rule) -> Limit:
    """Return how long a rank may go without a step; `pace` is None where none of its steps was timed."""
    limits = [Limit(rule.floor_s, f"the least of {rule.floor_s:g} s")]
    if pace is None or pace.timed < rule.warm_up_steps:
        limits.append(Limit(rule.warm_up_s, f"{rule.warm_up_s:g} s for the first {rule.warm_up_steps} steps"))
    if pace is not None:
        sigma_s = SIGMA_OF_MAD * pace.mad_s
        step = f"the median step of {pace.median_s:.2f} s"
        limits += [
            Limit(rule.steps * pace.median_s, f"{rule.steps:g} times {step}"),
            Limit(
                pace.median_s + rule.spreads * sigma_s, f"{step} + {rule.spreads:g} times its spread {sigma_s:.2f} s"
            ),
            Limit(rule.longest * pace.longest_s, f"{rule.longest:g} times the longest of late, {pace.longest_s:.1f} s"),
        ]
    return max(limits, key=lambda each: each.seconds)


def announced(phase: str) -> bool:
    """Return whether the program announced this phase."""
    return phase not in OWN_PHASES


def limit_of(phase: str, phase_limit_s: float | None, pace: Pace | None, rule: Rule) -> Limit:
    """Return how long a rank may stay where it is: in a phase that was announced with its limit, or in a step."""
    if announced(phase) and phase_limit_s is not None:
        return Limit(phase_limit_s, f"what the program announced for {phase}")
    return step_limit(pace, rule)


def quiet_limit(longest_s: float | None, rule: Rule) -> Limit:
    """Return how long a program that tells of no steps may be without output and snapshots.

    `longest_s` is its longest pause between two outputs so far; None where nothing was told of it.
    """
    limits = [Limit(rule.quiet_s, f"the least of {rule.quiet_s:g} s for a program that tells of no steps")]
    if longest_s is not None:
        why = f"{rule.quiet_longest:g} times its longest pause, {longest_s:.0f} s"
        limits.append(Limit(rule.quiet_longest * longest_s, why))
    return max(limits, key=lambda each: each.seconds)
