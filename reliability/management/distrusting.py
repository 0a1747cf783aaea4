"""manage.py snapshots distrust: a person says that a step must never be restored."""

from typing import Any

from reliability.errors import InvalidInput
from reliability.management.console import caller, job_named
from reliability.models import Job, Snapshot
from reliability.services import snapshots

_MOST = 2**62
_MOST_NAMED = 10


def add_to(actions: Any) -> None:
    """Declare the action among those of the command."""
    action = actions.add_parser(
        "distrust", help="never restore a step again; it stays as evidence as long as the rules would have kept it"
    )
    action.add_argument("job", help="name of the job")
    action.add_argument("--step", type=int, required=True, help="the step")
    action.add_argument("--epoch", type=int, help="of this attempt, where several saved that step")
    action.add_argument("--reason", required=True, help="why, in one line")


def distrust(options: dict[str, Any]) -> str:
    """Distrust the step; return the sentence that says so. Raises InvalidInput, CommandError."""
    job = job_named(options["job"])
    found = _named(job, options["step"], options["epoch"])
    snapshots.distrust_by_hand(found, reason=options["reason"], by=caller())
    return f"Step {found.step} of attempt {found.epoch} is never restored again."


def _named(job: Job, step: int, epoch: int | None) -> Snapshot:
    rows = Snapshot.objects.filter(job=job).select_related("job").order_by("-step", "-epoch")
    narrowed = rows.filter(step=step) if 0 <= step < _MOST else rows.none()
    if epoch is not None:
        narrowed = narrowed.filter(epoch=epoch) if 0 <= epoch < 2**31 else rows.none()
    found = list(narrowed[:2])
    if not found:
        there = ", ".join(f"{each.step} (attempt {each.epoch})" for each in rows[:_MOST_NAMED])
        raise InvalidInput("--step", f"no step {step} is known", hint=f"The newest are: {there}." if there else "")
    if len(found) > 1:
        raise InvalidInput("--epoch", f"several attempts saved step {step}", hint="Say which one.")
    return found[0]
