"""Was a decision right, by what happened next? Stated rules over facts that are read later; no clock, no database.

A decision against a node (failover, or a hold of the node) is right when the node is bad again, and wrong when it is
found good while the fault shows elsewhere, or while it trains on unharmed. A restart in place is right when training
gets past the fault afterwards, and wrong when the same fault is back before that, or when only a failover helped, or
when training went on without it. Where no rule speaks, a person decides.
"""

from collections.abc import Callable
from dataclasses import dataclass

from reliability.domain.faults import Action
from reliability.domain.modes import Mode
from reliability.domain.precision import Verdict

WINDOW_S = 7 * 86_400.0
"""So long after a decision what happens may still speak for or against it."""
ECHO_S = 600.0
"""What is found so soon after a decision may be the same event; it proves nothing."""
UNHARMED_S = 86_400.0
"""A node that was only observed and trains on for so long was not broken."""
AWAY_S = 600.0
"""A node that was given up for lost and is not heard for so long was lost."""
PASSES = 3
"""So many checks must a node have passed, with none failed, to count as good."""


@dataclass(frozen=True, kw_only=True)
class Decided:
    """A decision: its action, how it was taken, whether it was about a job, and whether it was carried out.

    `at` is in seconds, as all instants here.
    """

    code: str
    action: Action
    mode: Mode
    at: float
    of_job: bool = True
    carried_out: bool = False


@dataclass(frozen=True, kw_only=True)
class Aftermath:
    """What is known later. Sentences are empty, and instants None, while it did not happen.

    failed_check, hardware_again, set_aside, same_elsewhere: what speaks of the node. passed_checks: how many it passed
    since, 0 once it failed one. away_s: how long it has not been heard since. proven_at: when a complete snapshot lay
    beyond the step of the fault, in the attempt that the recovery began. went_on_at, unharmed_s: the same without any
    recovery, and how long the node has trained on. same_again(_at), moved(_at): what came of the new attempt.
    """

    failed_check: str = ""
    hardware_again: str = ""
    set_aside: str = ""
    passed_checks: int = 0
    same_elsewhere: str = ""
    away_s: float = 0.0
    recovered_by_itself: bool = False
    unharmed_s: float = 0.0
    proven_at: float | None = None
    went_on_at: float | None = None
    same_again: str = ""
    same_again_at: float | None = None
    moved: str = ""
    moved_at: float | None = None


@dataclass(frozen=True, kw_only=True)
class Told:
    """A verdict, the rule that came to it, and the sentence that people read."""

    verdict: Verdict
    rule: str
    reason: str


Speaks = Callable[[Decided, Aftermath], str]
"""Returns the sentence when the rule speaks, '' when it does not."""


def _back_by_itself(decided: Decided, after: Aftermath) -> str:
    return (
        "The node was heard again and training went on: nothing had to be moved." if after.recovered_by_itself else ""
    )


def _away(decided: Decided, after: Aftermath) -> str:
    lost = decided.code == "node-lost" and after.away_s >= AWAY_S
    return f"Nothing was heard of the node for {after.away_s / 60:.0f} minutes after it." if lost else ""


def _failed_check(decided: Decided, after: Aftermath) -> str:
    return f"The node failed a check later: {after.failed_check}." if after.failed_check else ""


def _hardware_again(decided: Decided, after: Aftermath) -> str:
    return f"The node had a hardware fault again: {after.hardware_again}." if after.hardware_again else ""


def _set_aside(decided: Decided, after: Aftermath) -> str:
    return f"The hardware was taken out of use: {after.set_aside}." if after.set_aside else ""


def _jobs_fault(decided: Decided, after: Aftermath) -> str:
    if not after.same_elsewhere or after.passed_checks < PASSES:
        return ""
    return (
        f"The node passed {after.passed_checks} checks and failed none, and the same fault came back on the node that "
        f"took its place ({after.same_elsewhere}): it is the job's."
    )


def _unharmed(decided: Decided, after: Aftermath) -> str:
    if decided.carried_out or after.unharmed_s < UNHARMED_S:
        return ""
    return f"Nothing was done, and the node trained on for {after.unharmed_s / 3600:.0f} hours without another fault."


def _before_proof(at: float | None, after: Aftermath) -> bool:
    return at is not None and (after.proven_at is None or at < after.proven_at)


def _had_to_move(decided: Decided, after: Aftermath) -> str:
    moved = after.moved and _before_proof(after.moved_at, after)
    return f"Starting again in place did not help, a failover was needed: {after.moved}." if moved else ""


def _same_again(decided: Decided, after: Aftermath) -> str:
    back = after.same_again and _before_proof(after.same_again_at, after)
    return f"The same fault was back before training got past it: {after.same_again}." if back else ""


def _proven(decided: Decided, after: Aftermath) -> str:
    proven = decided.carried_out and after.proven_at is not None
    return "Training got past the fault: a complete snapshot lies beyond its step." if proven else ""


def _went_on(decided: Decided, after: Aftermath) -> str:
    went_on = not decided.carried_out and after.went_on_at is not None
    return (
        "Training went on in the same attempt without it: a complete snapshot lies beyond the step." if went_on else ""
    )


OF_A_NODE: tuple[tuple[str, Verdict, Speaks], ...] = (
    ("back-by-itself", Verdict.WRONG, _back_by_itself),
    ("stayed-away", Verdict.RIGHT, _away),
    ("failed-check", Verdict.RIGHT, _failed_check),
    ("hardware-again", Verdict.RIGHT, _hardware_again),
    ("set-aside", Verdict.RIGHT, _set_aside),
    ("fault-of-the-job", Verdict.WRONG, _jobs_fault),
    ("unharmed", Verdict.WRONG, _unharmed),
)
"""Rules for a decision against a node; the first that speaks decides."""
OF_A_RESTART: tuple[tuple[str, Verdict, Speaks], ...] = (
    ("had-to-move", Verdict.WRONG, _had_to_move),
    ("same-again", Verdict.WRONG, _same_again),
    ("proven-progress", Verdict.RIGHT, _proven),
    ("went-on-without", Verdict.WRONG, _went_on),
)
"""Rules for a restart in place; the first that speaks decides."""


def judged(decided: Decided, after: Aftermath) -> Told | None:
    """Return the verdict that what happened next gives a decision, None while it gives none."""
    if decided.action is Action.HOLD and decided.of_job:
        return None  # that a job waits for a person is neither right nor wrong by what it does afterwards
    rules = OF_A_RESTART if decided.action is Action.RESTART_IN_PLACE else OF_A_NODE
    for name, verdict, speaks in rules:
        reason = speaks(decided, after)
        if reason:
            return Told(verdict=verdict, rule=name, reason=reason)
    return None
