"""Does a job hang, and which rank do the others wait for?

Ranks of one job need each other for every step, so that all of them stand still when one does. The rule: the job hangs
when each of the ranks that are furthest behind has stood still for longer than its own limit. A rank in a long phase
that it announced excuses all who wait for it, and nobody else has to keep still for a rank that fell behind alone.

What distinguishes the suspect is told in this order: its process is stopped; it is behind; it is in another phase; it
has not come to the collective in which the others wait; it was the last to move.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from reliability.domain.progress.limits import Limit, Pace, Rule, announced, limit_of

STATES = {
    "stopped": "its process is stopped by a signal",
    "frozen": "its process is frozen (cgroup freezer)",
    "uninterruptible": "its process waits in the kernel and cannot be interrupted (a disk, a file server, a driver)",
}
"""States of a process in which it cannot go on by itself, as its node tells them."""
LAST_BY_S = 1.5
"""Who moved last is told apart only when it moved so much later than the others: nodes look twice a second."""
MOST_GROUPS = 40


@dataclass(frozen=True, kw_only=True)
class RankView:
    """What is known of a rank that has not ended.

    still_s: seconds since it finished a step or changed its phase, as far as its node was heard; None when the node is
    not heard, so that nothing is known. step: finished steps, None while it tells of none. waits: in a collective that
    it marked. state: of its process, '' while ordinary.
    """

    rank: int
    node: str
    step: int | None
    still_s: float | None
    phase: str = ""
    phase_limit_s: float | None = None
    pace: Pace | None = None
    waits: bool = False
    state: str = ""


@dataclass(frozen=True, kw_only=True)
class Standing:
    """How long the ranks that are furthest behind have stood still, beside the limit that is reached last."""

    step: int | None
    behind: tuple[RankView, ...]
    decisive: RankView
    still_s: float
    limit: Limit

    @property
    def over(self) -> bool:
        """Whether all of them are over their limits: a hang."""
        return self.still_s >= self.limit.seconds


@dataclass(frozen=True)
class Suspicion:
    """Whom the others wait for, and how that is known. `node` is '' when the ranks are on several or nobody is."""

    ranks: tuple[int, ...]
    node: str
    reason: str
    newcomer: bool = False


@dataclass(frozen=True)
class Hang:
    """A hang, with all that decided."""

    standing: Standing
    suspicion: Suspicion
    evidence: str


def standing(ranks: Sequence[RankView], rule: Rule) -> Standing | None:
    """Return how the ranks furthest behind stand; None when there are none or one of them is not heard of.

    `ranks` are those that have not ended. A rank that tells of no step is behind all others.
    """
    if not ranks or any(each.still_s is None for each in ranks):
        return None
    least = min(-1 if each.step is None else each.step for each in ranks)
    behind = tuple(each for each in ranks if (-1 if each.step is None else each.step) == least)
    limits = {each.rank: limit_of(each.phase, each.phase_limit_s, each.pace, rule) for each in behind}
    decisive = min(behind, key=lambda each: (each.still_s or 0.0) - limits[each.rank].seconds)
    return Standing(
        step=None if least < 0 else least,
        behind=behind,
        decisive=decisive,
        still_s=decisive.still_s or 0.0,
        limit=limits[decisive.rank],
    )


def find_hang(ranks: Sequence[RankView], rule: Rule, *, newcomers: Collection[str] = ()) -> Hang | None:
    """Return the hang of a job, None while there is none or not enough is known.

    `newcomers`: nodes that took their place in the job a short while ago; the first to be suspected.
    """
    found = standing(ranks, rule)
    if found is None or not found.over:
        return None
    suspicion = suspect(ranks, newcomers=newcomers)
    told = f"No step for {found.still_s:.1f} s; limit {found.limit}. {suspicion.reason}"
    return Hang(standing=found, suspicion=suspicion, evidence=f"{told} {account(ranks)}")


def suspect(ranks: Sequence[RankView], *, newcomers: Collection[str] = ()) -> Suspicion:
    """Return the rank that the others seem to wait for, by what distinguishes it."""
    halted = [each for each in ranks if each.state in STATES]
    if halted and len(halted) < len(ranks):
        return _suspicion(halted, f"{listed(halted)}: {STATES[halted[0].state]}.")
    fresh = [each for each in ranks if each.node in newcomers]
    if fresh and len(fresh) < len(ranks):
        names = ", ".join(sorted({each.node for each in fresh}))
        return _suspicion(fresh, f"{names} came to the job a short while ago, so it is suspected first.", newcomer=True)
    left, reasons = list(ranks), []
    for narrow in (_behind, _elsewhere, _not_waiting, _last):
        fewer, reason = narrow(left)
        if fewer and len(fewer) < len(left):
            left = fewer
            reasons.append(reason)
    if len(left) == len(ranks):
        return Suspicion((), left[0].node if len(ranks) == 1 else "", "Nothing distinguishes a rank from the others.")
    return _suspicion(left, " ".join(reasons))


def _suspicion(ranks: Sequence[RankView], reason: str, *, newcomer: bool = False) -> Suspicion:
    nodes = {each.node for each in ranks}
    numbers = tuple(sorted(each.rank for each in ranks))
    told = f"Suspect: {listed(ranks)}{f' on {ranks[0].node}' if len(nodes) == 1 else ''}. {reason}"
    return Suspicion(numbers, ranks[0].node if len(nodes) == 1 else "", told, newcomer)


def _behind(ranks: Sequence[RankView]) -> tuple[list[RankView], str]:
    steps = [-1 if each.step is None else each.step for each in ranks]
    least, most = min(steps), max(steps)
    fewer = [each for each, step in zip(ranks, steps, strict=True) if step == least]
    return fewer, f"{listed(fewer)} finished step {least}, others up to step {most}."


def _elsewhere(ranks: Sequence[RankView]) -> tuple[list[RankView], str]:
    """The ranks in the rarest phase; where two are as rare, the one that was announced."""
    counts = Counter(each.phase for each in ranks)
    odd = min(counts, key=lambda phase: (counts[phase], not announced(phase), phase))
    usual = ", ".join(sorted(phase or "training" for phase in counts if phase != odd))
    fewer = [each for each in ranks if each.phase == odd]
    return fewer, f"{listed(fewer)} is in {odd or 'training'}, the others in {usual}."


def _not_waiting(ranks: Sequence[RankView]) -> tuple[list[RankView], str]:
    fewer = [each for each in ranks if not each.waits]
    return fewer, f"{listed(fewer)} has not come to the collective in which the others wait."


def _last(ranks: Sequence[RankView]) -> tuple[list[RankView], str]:
    """The rank that moved last: a weak sign, so only one rank alone, and by a clear margin."""
    ordered = sorted(ranks, key=lambda each: each.still_s or 0.0)
    if len(ordered) < 2:
        return [], ""
    first, second = ordered[0], ordered[1]
    by_s = (second.still_s or 0.0) - (first.still_s or 0.0)
    margin_s = LAST_BY_S + (first.pace.median_s / 2 if first.pace else 0.0)
    return ([first], f"Rank {first.rank} was the last to move, by {by_s:.1f} s.") if by_s > margin_s else ([], "")


def listed(ranks: Iterable[RankView]) -> str:
    """Return 'Rank 5' or 'Ranks 0-4, 6'."""
    numbers = sorted(each.rank for each in ranks)
    return f"Rank{'s' if len(numbers) > 1 else ''} {ranges(numbers)}"


def ranges(numbers: Sequence[int]) -> str:
    """Return sorted numbers with runs drawn together: '0-4, 6'."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)


def account(ranks: Sequence[RankView]) -> str:
    """Return each rank's last step and phase, those that are alike in one sentence, the furthest behind first."""
    alike: dict[tuple[int, str, bool, str], list[RankView]] = {}
    for each in ranks:
        key = (-1 if each.step is None else each.step, each.phase, each.waits, each.state)
        alike.setdefault(key, []).append(each)
    ordered = [alike[key] for key in sorted(alike)]
    told = " ".join(_told(group) for group in ordered[:MOST_GROUPS])
    return told + (f" And {len(ordered) - MOST_GROUPS} more groups." if len(ordered) > MOST_GROUPS else "")


def _told(group: Sequence[RankView]) -> str:
    one = group[0]
    step = "no step yet" if one.step is None else f"step {one.step}"
    doing = "in a collective" if one.waits else one.phase or "training"
    stills = [each.still_s for each in group if each.still_s is not None]
    return f"{listed(group)}: {step}, {doing}{_range(stills)}{f', {one.state}' if one.state else ''}."


def _range(stills: Sequence[float]) -> str:
    if not stills:
        return ", not heard"
    least, most = min(stills), max(stills)
    return f" for {least:.1f} s" if most - least < 0.05 else f" for {least:.1f} to {most:.1f} s"
