"""Does a plan hold in a simulation, or on recorded failures? Only what asks for this needs NumPy."""

from itertools import pairwise
from pathlib import Path
from typing import Any

from reliability import simulation
from reliability.domain.planner import durations
from reliability.domain.planner.answer import Answer
from reliability.domain.planner.durations import shown, spoken
from reliability.errors import InvalidInput

MOST_BYTES = 64 * 2**20
SEARCHED = 30.0
"""The best fixed period in hindsight is looked for between a thirtieth and thirty times the plan's."""


def simulated(found: Answer, *, failures: int, seed: int) -> dict[str, Any]:
    """Simulate the plan; return both rates, their difference and its standard error. Raises InvalidInput."""
    request, period_s = found.request, _period_s(found)
    inputs: Any = found.inputs
    standbys = None
    if request.standbys is not None and request.repair_s is not None and inputs.mtbf_s is not None:
        repair = simulation.Exponential(request.repair_s)
        standbys = simulation.Standbys(count=request.standbys, repair=repair, node_share=request.node_share)
        inputs = _Swaps(found)
    check = simulation.check(inputs, period_s, failures=failures, seed=seed, standbys=standbys)
    planned = _rate_at(found)
    return {
        "ettr": check.ettr,
        "se": check.se,
        "planned_ettr": planned,
        "difference": check.ettr - planned,
        "standard_errors": abs(check.ettr - planned) / check.se if check.se > 0 else None,
        "period_s": check.period_s,
        "failures": check.failures,
        "simulated_s": check.simulated_s,
        "seed": check.seed,
        "seconds": check.seconds,
    }


class _Swaps:
    """The inputs with the downtime of a swap alone: the simulation lets lost nodes wait for a repair by itself."""

    def __init__(self, found: Answer) -> None:
        inputs = found.inputs
        self.save_stall_s, self.mtbf_s, self.recovery_s = inputs.save_stall_s, inputs.mtbf_s, inputs.recovery_s
        self.downtime_s, self.drain_s = found.request.downtime_s, inputs.drain_s
        self.cluster_availability = inputs.cluster_availability
        self.planned_stops_per_s = found.request.planned_stops_per_s


def told_simulation(figures: dict[str, Any]) -> str:
    """Return a simulation in two lines."""
    ettr, planned, se = 100 * figures["ettr"], 100 * figures["planned_ettr"], 100 * figures["se"]
    apart = "" if figures["standard_errors"] is None else f", {figures['standard_errors']:.1f} standard errors"
    return (
        f"Simulated: {ettr:.3f} % +- {se:.3f} ({figures['failures']:,} faults in {spoken(figures['simulated_s'])} of "
        f"job time, {figures['seconds']:.1f} s, seed {figures['seed']}).\n"
        f"The plan says {planned:.3f} %: the difference is {ettr - planned:+.3f} points{apart}."
    )


def _period_s(found: Answer) -> float:
    if found.steps is not None:
        return found.steps.period_s
    if found.recommended_s:
        return found.recommended_s
    hint = "Give --step-time: saving after every step is then a period."
    raise InvalidInput("simulate", "there is no period to try", hint=hint)


def _rate_at(found: Answer) -> float:
    return found.recommended_ettr if found.steps is None else found.steps.ettr


def recorded(path: Path) -> tuple[list[float], bool]:
    """Return the gaps between recorded failures in seconds, and whether the file held instants. Raises InvalidInput.

    One number or duration a line, empty lines and what follows a # left out. Numbers that never fall are instants, all
    others gaps; a first line `# gaps` or `# times` says which it is.
    """
    try:
        if path.stat().st_size > MOST_BYTES:
            raise InvalidInput("replay", f"{path} is larger than 64 MB", hint="Give one number a line.")
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError) as error:
        told = getattr(error, "strerror", None) or "not a text file"
        raise InvalidInput("replay", f"{path}: {told}", hint="Give a file with one failure a line.") from error
    values = [_line(path, number, line) for number, line in enumerate(lines, start=1) if line.split("#")[0].strip()]
    if len(values) < 2:
        raise InvalidInput("replay", f"{path} holds {len(values)} failures", hint="Give two or more, one a line.")
    said = lines[0].lower() if lines[0].startswith("#") else ""
    rising = all(first <= second for first, second in pairwise(values))
    if "times" in said or (rising and "gaps" not in said):
        return [float(gap) for gap in simulation.gaps_between(values)], True
    return values, False


def _line(path: Path, number: int, line: str) -> float:
    text = line.split("#")[0].strip()
    try:
        return durations.seconds(text, "replay")
    except InvalidInput as error:
        hint = "Each line holds a time in seconds, or such as 7.9h: instants from any beginning, or gaps."
        raise InvalidInput("replay", f"{path}, line {number}: {shown(text)} is not a time", hint=hint) from error


def replayed(found: Answer, path: Path) -> dict[str, Any]:
    """Run the plan over recorded failures; return its rate and that of the best fixed period. Raises InvalidInput."""
    gaps, instants = recorded(path)
    inputs, period_s = found.inputs, _period_s(found)
    job = simulation.Job(
        period_s=period_s,
        save_stall_s=inputs.save_stall_s,
        recovery_s=inputs.recovery_s,
        downtime_s=inputs.downtime_s,
        drain_s=inputs.drain_s,
    )
    plan = simulation.replay(gaps, job)
    best = simulation.best_period(gaps, job, low_s=period_s / SEARCHED, high_s=period_s * SEARCHED)
    return {
        "file": str(path),
        "read_as": "instants" if instants else "gaps",
        "failures": plan.failures,
        "elapsed_s": plan.elapsed_s,
        "mtbf_s": plan.elapsed_s / plan.failures,
        "period_s": plan.period_s,
        "ettr": plan.ettr,
        "planned_ettr": _rate_at(found),
        "best_period_s": best.period_s,
        "best_ettr": best.ettr,
    }


def told_replay(figures: dict[str, Any]) -> str:
    """Return a replay in two lines."""
    return (
        f"Replayed over {figures['failures']:,} recorded failures ({figures['read_as']}, "
        f"{spoken(figures['elapsed_s'])}, one in {spoken(figures['mtbf_s'])}): {100 * figures['ettr']:.2f} %; "
        f"the plan says {100 * figures['planned_ettr']:.2f} %.\n"
        f"The best fixed period in hindsight, {spoken(figures['best_period_s'])}, gives "
        f"{100 * figures['best_ettr']:.2f} %."
    )
