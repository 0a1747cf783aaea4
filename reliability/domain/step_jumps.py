"""Can a number in a name be a step of this training? A date or a serial number can be far beyond any.

The measure is the spacing of the steps before it: one that lies a thousand times as far beyond the last is doubted, and
believed once the next goes on from there without a lower one between.
"""

from collections.abc import Collection, Sequence
from itertools import pairwise

MOST_STEPS = 10**12
TIMES = 1000


def is_jump(step: int, *, seen: Sequence[tuple[int, bool]], others: Collection[int], base: int) -> bool:
    """Return whether a step is too far beyond all others to be believed.

    `seen`: those judged so far in order of time, with True for those sealed and False for those that were doubted;
    `others`: those that lie there as well; `base`: what the attempt began from, 0 for nothing. Without two steps below
    it there is no measure, and only what no training reaches is a jump.
    """
    if step > MOST_STEPS:
        return True
    below = {base, *others, *(each for at, (each, sealed) in enumerate(seen) if sealed or _stands(at, seen, others))}
    steps = sorted(each for each in below if each < step)
    gaps = [later - earlier for earlier, later in pairwise(steps)]
    return bool(gaps) and step - steps[-1] > TIMES * max(gaps)


def _stands(at: int, seen: Sequence[tuple[int, bool]], others: Collection[int]) -> bool:
    """Whether nothing speaks against one that was doubted: no lower step came after it.

    Others that lie below the last sealed one say nothing: they were overtaken by it, not by the one that was doubted.
    """
    step = seen[at][0]
    lower = [each for each, sealed in seen[at + 1 :] if sealed and each < step]
    sealed_to = max((each for each, sealed in seen if sealed and each < step), default=-1)
    return not lower and not any(sealed_to < each < step for each in others) and step <= MOST_STEPS
