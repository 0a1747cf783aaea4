"""Does a plan hold in a simulation, or on recorded failures? Only what asks for this needs NumPy."""

from itertools import pairwise
from pathlib import Path
from typing import Any

from reliability import simulation
from reliability.domain.planner import durations, exact
from reliability.domain.planner.answer import Answer
from reliability.domain.planner.durations import shown, spoken
from reliability.domain.planner.inputs import Inputs
from reliability.domain.planner.request import Request
from reliability.errors import InvalidInput
from reliability.selectors import plan_trial
from reliability.simulation.limits import LEAST_FAILURES, MOST_FAILURES, MOST_SEED

MOST_BYTES = 16 * 2**20
MOST_RECORDED = 200_000
SEARCHED = 30.0
"""The best fixed period in hindsight is looked for between a thirtieth and thirty times the plan's."""
LIMIT_S = 20.0
BOUNDS = {"simulate": (LEAST_FAILURES, MOST_FAILURES, "faults"), "seed": (0, MOST_SEED, "")}


def whole(name: str, text: str) -> int:
    """Return the whole number that --simulate or --seed was given. Raises InvalidInput."""
    low, high, noun = BOUNDS[name]
    if text.isascii() and text.isdecimal() and len(text) <= 19 and low <= int(text) <= high:
        return int(text)
    can = f"{low} to {high} {noun} can be simulated" if noun else f"A seed is a whole number from {low} to {high}"
    raise InvalidInput(name, f"{shown(text)} is not possible", hint=f"{can}.")


def simulated(found: Answer, *, failures: int, seed: int) -> dict[str, Any]:
    """Simulate the plan; return both rates, their difference and its standard error. Raises InvalidInput."""
    trial = plan_trial.trial(found, _period_s(found), failures=failures, seed=seed, limit_s=LIMIT_S, waits=True)
    check, planned = trial.check, trial.planned_ettr
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
        "tiers": trial.tiers,
        "good_to": trial.good_to,
        "left_out": list(trial.left_out),
    }


def told_simulation(figures: dict[str, Any]) -> str:
    """Return a simulation in two lines, and a third for what it was of."""
    ettr, planned, se = 100 * figures["ettr"], 100 * figures["planned_ettr"], 100 * figures["se"]
    apart = "" if figures["standard_errors"] is None else f", {figures['standard_errors']:.1f} standard errors"
    lines = [
        f"Simulated: {ettr:.3f} % +- {se:.3f} ({figures['failures']:,} faults in {spoken(figures['simulated_s'])} of "
        f"job time, {figures['seconds']:.1f} s, seed {figures['seed']}).",
        f"The plan says {planned:.3f} %: the difference is {ettr - planned:+.3f} points{apart}.",
    ]
    if figures["tiers"]:
        lines.append(
            "Copies in memory, on SSD and on storage were simulated, each with the faults that need it; drains go on "
            f"through the others. For tiers the formula is good to {100 * figures['good_to']:.1f} points."
        )
    return "\n".join([*lines, *_told_left_out(figures)])


def _told_left_out(figures: dict[str, Any]) -> list[str]:
    return [f"Left out of both: {', '.join(figures['left_out'])}."] if figures["left_out"] else []


def _period_s(found: Answer) -> float:
    if found.steps is not None:
        return found.steps.period_s
    if found.recommended_s:
        return found.recommended_s
    hint = "Give --step-time: saving after every step is then a period."
    raise InvalidInput("simulate", "there is no period to try", hint=hint)


def recorded(path: Path) -> tuple[list[float], bool]:
    """Return the gaps between recorded failures in seconds, and whether the file held instants. Raises InvalidInput.

    One number or duration a line, empty lines and what follows a # left out. A first line `# gaps` or `# times` says
    which it is; without one, numbers that fall somewhere, or that are all equal, are gaps.
    """
    lines = _lines(path)
    values = [_line(path, number, line) for number, line in enumerate(lines, start=1) if line.split("#")[0].strip()]
    if len(values) < 2:
        raise InvalidInput("replay", f"{path} holds {len(values)} failures", hint="Give two or more, one a line.")
    said = lines[0].lower() if lines[0].startswith("#") else ""
    if "times" in said:
        return [float(gap) for gap in simulation.gaps_between(values)], True
    rising = values[0] < values[-1] and all(first <= second for first, second in pairwise(values))
    if rising and "gaps" not in said:
        hint = "Say which in a first line: # times for instants, # gaps for the time from each failure to the next."
        raise InvalidInput("replay", f"{path}: the numbers only rise, so they may be instants or gaps", hint=hint)
    return values, False


def _lines(path: Path) -> list[str]:
    try:
        if path.stat().st_size > MOST_BYTES:
            raise InvalidInput("replay", f"{path} is larger than 16 MB", hint="Give one number a line.")
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError) as error:
        told = getattr(error, "strerror", None) or "not a text file"
        raise InvalidInput("replay", f"{path}: {told}", hint="Give a file with one failure a line.") from error
    if len(lines) > MOST_RECORDED:
        hint = f"Give at most {MOST_RECORDED}: a part of the record, or the faults of one job."
        raise InvalidInput("replay", f"{path} has {len(lines)} lines", hint=hint)
    return lines


def _line(path: Path, number: int, line: str) -> float:
    text = line.split("#")[0].strip()
    try:
        return durations.seconds(text, "replay")
    except InvalidInput as error:
        hint = "Each line holds a time in seconds, or such as 7.9h: instants from any beginning, or gaps."
        raise InvalidInput("replay", f"{path}, line {number}: {shown(text)} is not a time", hint=hint) from error


def replayed(found: Answer, path: Path) -> dict[str, Any]:
    """Run the plan over recorded failures; return its rate and that of the best fixed period. Raises InvalidInput.

    A record tells when failures came, and nothing of what else stops a job: the planned rate beside it leaves that out.
    """
    gaps, instants = recorded(path)
    inputs, period_s = _of_faults(found), _period_s(found)
    job = simulation.Job(
        period_s=period_s,
        save_stall_s=inputs.save_stall_s,
        recovery_s=inputs.recovery_s,
        downtime_s=inputs.downtime_s,
        drain_s=inputs.drain_s,
    )
    plan = simulation.replay(gaps, job)
    best = simulation.best_period(gaps, job, low_s=period_s / SEARCHED, high_s=period_s * SEARCHED, limit_s=LIMIT_S)
    return {
        "file": str(path),
        "read_as": "instants" if instants else "gaps",
        "failures": plan.failures,
        "elapsed_s": plan.elapsed_s,
        "mtbf_s": plan.elapsed_s / plan.failures,
        "period_s": plan.period_s,
        "ettr": plan.ettr,
        "planned_ettr": exact.ettr_at(inputs, plan.period_s),
        "best_period_s": best.period_s,
        "best_ettr": best.ettr,
        "left_out": _left_out(found.request, tiers=bool(found.inputs.tiers)),
    }


def _of_faults(found: Answer) -> Inputs:
    """Return the inputs of what a record can show: faults, the swap of a node, and the mean drain of all tiers."""
    request = found.request
    return Inputs(
        save_stall_s=request.save_stall_s,
        mtbf_s=found.inputs.mtbf_s,
        recovery_s=request.recovery_s,
        target=request.target,
        downtime_s=request.downtime_s,
        drain_s=found.inputs.mean_drain_s,
    )


def _left_out(request: Request, *, tiers: bool) -> list[str]:
    found = list(plan_trial.disturbances(request))
    if request.waits:
        found.append("waits for a repair")
    if tiers:
        found.append("which tier a fault needs (all have the mean drain)")
    return found


def told_replay(figures: dict[str, Any]) -> str:
    """Return a replay in two lines, and a third for what it is not about."""
    lines = [
        f"Replayed over {figures['failures']:,} recorded failures ({figures['read_as']}, "
        f"{spoken(figures['elapsed_s'])}, one in {spoken(figures['mtbf_s'])}): {100 * figures['ettr']:.2f} %; "
        f"the plan says {100 * figures['planned_ettr']:.2f} %.",
        f"The best fixed period in hindsight, {spoken(figures['best_period_s'])}, gives "
        f"{100 * figures['best_ettr']:.2f} %.",
    ]
    return "\n".join([*lines, *_told_left_out(figures)])
