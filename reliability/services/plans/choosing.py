"""After how many steps is a job to save, and may that be ordered: the computed number, or the one a person chose?"""

import math

from reliability.domain.planner import exact
from reliability.domain.planner.answer import Answer
from reliability.domain.planner.durations import spoken
from reliability.domain.planner.steps import MOST_STEPS
from reliability.errors import DomainError, InvalidInput, StaleProposal

SAME_PERIOD = 0.25
"""The loss is flat around the best period: a quarter more or less costs a few per cent of what saving costs."""
ROUNDING = 1e-9


def computed(found: Answer, *, shown: int | None, accept_missed: bool) -> int:
    """Return the number of steps that the answer gives, or the one that was shown while it still is about that.

    Raises DomainError when no number of steps keeps the target and that was not accepted; InvalidInput naming
    `every_steps` when what was shown is no number of steps; StaleProposal when it is another number by now.
    """
    if shown is not None:
        _check("every_steps", shown, missing="The number of steps that was shown did not come along.")
    now = _best(found, accept_missed=accept_missed)
    if now > MOST_STEPS:
        raise DomainError(
            f"Every {now:,} steps is more than the {MOST_STEPS:,} that a job can be ordered.",
            hint="Nothing was applied. Choose a number of steps yourself; the loss there is next to nothing.",
        )
    if shown is None or abs(shown - now) <= max(1, SAME_PERIOD * now):
        return now if shown is None else shown
    raise StaleProposal(
        f"The speed of the job has changed, or what was measured of it: every {now} steps it would be now, "
        f"not {shown} as shown.",
        hint="Nothing was applied; look at the new number and apply it.",
    )


def _best(found: Answer, *, accept_missed: bool) -> int:
    steps, target = found.steps, f"The target of {found.inputs.target:.4g} cannot be kept"
    if steps is not None and (steps.interval is not None or (accept_missed and steps.ettr > 0.0)):
        return steps.every_steps
    if not found.exact.feasible:
        best = f"at best {found.exact.ettr_max:.4g} of the time goes into training that counts"
        raise DomainError(f"{target}: {best}.", hint=_other_way(accept_missed))
    step = spoken(found.request.step_s or 0.0)
    raise DomainError(f"{target} with a whole number of steps of {step}.", hint=_other_way(accept_missed))


def _other_way(accept_missed: bool) -> str:
    if accept_missed:
        return "Nothing was applied: no period is the best one. Choose a number of steps yourself."
    return "Nothing was applied. The planner says what it would take."


def chosen(found: Answer, every_steps: int, *, accept_missed: bool) -> int:
    """Return the number of steps that a person chose.

    Raises InvalidInput naming `period` when a job cannot save so often or so seldom; DomainError when it misses the
    target and that was not accepted.
    """
    _check("period", every_steps, missing="0 steps are no period.")
    inputs, step_s = found.inputs, found.request.step_s
    assert step_s is not None
    least = math.ceil((inputs.drain_s - inputs.save_stall_s) / step_s - ROUNDING)
    if every_steps < least:
        raise InvalidInput(
            "period",
            f"every {every_steps} steps is before the last copy is durable, which takes {spoken(inputs.drain_s)}",
            hint=f"Give {least:,} steps or more.",
        )
    rate = exact.ettr_at(inputs, every_steps * step_s + inputs.save_stall_s)
    if rate < inputs.target - ROUNDING and not accept_missed:
        raise DomainError(
            f"Saving every {every_steps} steps misses the target of {inputs.target:.4g}: {rate:.4g} is to be expected.",
            hint="Nothing was applied. Accept that it is missed, or choose another period.",
        )
    return every_steps


def _check(field: str, steps: int, *, missing: str) -> None:
    """Raise InvalidInput unless it is a number of steps that a job can be ordered."""
    hint = f"Give a whole number of steps from 1 to {MOST_STEPS:,}."
    if isinstance(steps, bool) or not isinstance(steps, int):
        raise InvalidInput(field, f"{steps!r} is not a whole number", hint=hint)
    if steps < 1:
        raise InvalidInput(field, missing if steps == 0 else "is below 1 step", hint=hint)
    if steps > MOST_STEPS:
        raise InvalidInput(field, f"is more than {MOST_STEPS:,} steps", hint=hint)


def reason(found: Answer, every_steps: int, planned_ettr: float, *, by_choice: bool, by: str) -> str:
    """Return what is to be known of a plan beside its numbers: that a person chose it, that it misses the target."""
    told = [f"Every {every_steps} steps, chosen by {by}."] if by_choice else []
    if planned_ettr < found.inputs.target - ROUNDING:
        told.append(f"It misses the target of {found.inputs.target:.4g}, which {by} accepted.")
    return " ".join(told)
