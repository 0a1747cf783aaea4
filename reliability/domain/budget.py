"""May a job be started again after an attempt of it ended, when, and when is trying again pointless?

One budget for each job and cause. A cause is the class of the fault and the family of its root code (the `source` of
the code's row), as in `software/exit-code`: 139 and 134 of a program that aborts in turn share a budget, an error of
its own has another. Only proven progress gives a budget back: a complete snapshot newer than any attempt before knew,
or so many steps beyond all that was reached. Time never does.

The same end twice, by the same error after the same last step, is no progress. Close behind the restored snapshot the
snapshot is doubted first, once, where there is an older one; otherwise it is the program or its data, and a person
is asked.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from reliability.domain.faults import FaultClass, FaultCode

AT_START = frozenset({"exit-2", "exit-126", "exit-127"})
"""Ends that say that the program cannot be started at all, where none of its steps was finished."""
_MOST_DOUBLINGS = 40


@dataclass(frozen=True, kw_only=True)
class Allowance:
    """What a job may spend. Seconds and steps.

    restarts: how often for each cause without progress. first_s: the first back-off, doubled with every restart up to
    longest_s. progress_steps: so many new steps prove progress without a snapshot. near_steps: an end so soon after a
    restore may be the snapshot's.
    """

    restarts: int
    first_s: float
    longest_s: float
    progress_steps: int
    near_steps: int


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """An attempt that ended. Steps are numbers of finished steps.

    number: its epoch. told_at: when it ended, for people. start: epoch and step of the snapshot it began from, None
    from nothing. reached: the newest step of any rank. last_step: what the rank that failed told as its own last step;
    None where it finished none, or told none. saved: the newest complete snapshot at its end. counts: False where the
    end was no doing of the program: drills, lost nodes.
    """

    number: int
    told_at: str
    cause: str
    code: str
    signature: str
    node: str = ""
    start: tuple[int, int] | None = None
    reached: int | None = None
    last_step: int | None = None
    saved: int | None = None
    counts: bool = True

    @property
    def start_step(self) -> int:
        """The step it began from; 0 from nothing."""
        return self.start[1] if self.start else 0

    def sentence(self) -> str:
        """Return one line of the list of attempts."""
        reached = self.last_step if self.last_step is not None else self.reached
        to = "before its first step" if reached is None or reached <= self.start_step else f"after step {reached}"
        where = f" on {self.node}" if self.node else ""
        free = "" if self.counts else ", not counted"
        began = f"from step {self.start_step}" if self.start else "from nothing"
        return f"epoch {self.number} {began}: {self.code or self.cause}{where} {to}, {self.told_at}{free}"


class Verdict(StrEnum):
    """What follows an end."""

    GO_ON = "go_on"
    OLDER_SNAPSHOT = "older_snapshot"
    NO_PROGRESS = "no_progress"
    USED_UP = "used_up"


@dataclass(frozen=True, kw_only=True)
class Decision:
    """What follows an end, and why. `spent`: restarts for its cause since progress. `wait_s`: seconds of back-off."""

    verdict: Verdict
    spent: int
    restarts: int
    wait_s: float = 0.0
    reason: str = ""


def cause_of(fault_class: FaultClass | str, row: FaultCode) -> str:
    """Return what shares a budget: the class of the fault and the family of its root code."""
    return f"{FaultClass(fault_class).value}/{row.source or 'other'}"


def progressed(attempt: Attempt, before: Sequence[Attempt], *, progress_steps: int) -> bool:
    """Return whether an attempt proved progress over those before it, or over what it began from as the first."""
    saved = max((each.saved for each in before if each.saved is not None), default=None)
    known = saved if saved is not None else before[0].start_step if before else attempt.start_step
    if attempt.saved is not None and attempt.saved > known:
        return True
    ends = [each.reached for each in before if each.reached is not None]
    beyond = max((attempt.start_step, known, *ends)) + progress_steps
    return attempt.reached is not None and attempt.reached >= beyond


def since_progress(ended: Sequence[Attempt], *, progress_steps: int) -> tuple[list[Attempt], bool]:
    """Return the attempts from the last that proved progress on, and whether the newest itself did.

    `ended`: all attempts of the job since a person started it, oldest first, at least one.
    """
    proved = [progressed(each, ended[:place], progress_steps=progress_steps) for place, each in enumerate(ended)]
    last = max((place for place, so in enumerate(proved) if so), default=0)
    return list(ended[last:]), proved[-1]


def spent(ended: Sequence[Attempt], cause: str) -> int:
    """Return how many of these ended attempts count against the budget of a cause."""
    return sum(each.counts and each.cause == cause for each in ended)


def spent_by_cause(ended: Sequence[Attempt], present: Attempt | None, *, progress_steps: int) -> dict[str, int]:
    """Return cause -> restarts that count against its budget now; `present` is the attempt that runs, if one does."""
    if not ended or (present is not None and progressed(present, ended, progress_steps=progress_steps)):
        return {}
    tail, _ = since_progress(ended, progress_steps=progress_steps)
    restarted = tail if present is not None else tail[:-1]  # nothing was started after the last end
    return {cause: spent(restarted, cause) for cause in dict.fromkeys(each.cause for each in tail if each.counts)}


def same_ends(newest: Attempt, before: Sequence[Attempt]) -> list[Attempt]:
    """Return the earlier attempts that ended as the newest did: by the same error after the same last step."""
    if newest.last_step is None or newest.last_step <= newest.start_step:
        return []
    told = (newest.signature, newest.last_step)
    return [each for each in before if each.counts and (each.signature, each.last_step) == told]


def back_off_s(restarts: int, *, first_s: float, longest_s: float) -> float:
    """Return the back-off after so many restarts without progress: first_s, twice that, and so on. Seconds."""
    return min(longest_s, first_s * 2.0 ** min(restarts, _MOST_DOUBLINGS))


def decide(ended: Sequence[Attempt], allowance: Allowance, *, older: bool) -> Decision:
    """Return what follows the newest end of `ended` (oldest first). `older`: an older snapshot could be restored.

    The first restart after proven progress comes at once.
    """
    newest = ended[-1]
    if not newest.counts:
        return Decision(verdict=Verdict.GO_ON, spent=0, restarts=allowance.restarts)
    tail, fresh = since_progress(ended, progress_steps=allowance.progress_steps)
    before = tail[:-1]
    used, restarts = spent(before, newest.cause), allowance.restarts
    listed = f"Attempts: {'; '.join(each.sentence() for each in tail)}."
    if newest.code in AT_START and newest.last_step is None:
        reason = f"The program cannot be started ({newest.code}): no restart helps. {listed}"
        return Decision(verdict=Verdict.USED_UP, spent=used, restarts=0, reason=reason)
    same = same_ends(newest, before)
    doubtful = bool(same) and _snapshot_in_doubt(newest, same, allowance, older=older)
    if same and not doubtful:
        reason = f"{_no_progress(newest, same)} {listed}"
        return Decision(verdict=Verdict.NO_PROGRESS, spent=used, restarts=restarts, reason=reason)
    if used >= restarts:
        reason = f"The restart budget of {restarts} is used up for {newest.cause} without progress. {listed}"
        return Decision(verdict=Verdict.USED_UP, spent=used, restarts=restarts, reason=reason)
    at_once = fresh and used == 0
    wait_s = 0.0 if at_once else back_off_s(used, first_s=allowance.first_s, longest_s=allowance.longest_s)
    if doubtful:
        reason = f"It ended twice after step {newest.last_step} with {newest.code}, from this snapshot the last time."
        return Decision(verdict=Verdict.OLDER_SNAPSHOT, spent=used, restarts=restarts, wait_s=wait_s, reason=reason)
    return Decision(verdict=Verdict.GO_ON, spent=used, restarts=restarts, wait_s=wait_s)


def _snapshot_in_doubt(newest: Attempt, same: Sequence[Attempt], allowance: Allowance, *, older: bool) -> bool:
    """A second end close behind the restored snapshot may be the snapshot's; a third is not, whatever was restored."""
    soon = newest.start is not None and (newest.last_step or 0) - newest.start_step <= allowance.near_steps
    return older and soon and len(same) == 1


def _no_progress(newest: Attempt, same: Sequence[Attempt]) -> str:
    starts = {each.start for each in (*same, newest)}
    from_several = f" from {len(starts)} different starts" if len(starts) > 1 else ""
    return (
        f"No progress between attempts: it ended {len(same) + 1} times after step {newest.last_step} with "
        f"{newest.code}{from_several}. Trying again leads to the same end: look at the batch of step "
        f"{(newest.last_step or 0) + 1}, or at the program."
    )
