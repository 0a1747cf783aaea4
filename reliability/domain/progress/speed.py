"""Has a job become slower than it was? Its recent steps are compared with its own history, without saves and phases."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from reliability.domain.progress.limits import SIGMA_OF_MAD


@dataclass(frozen=True, kw_only=True)
class SpeedRule:
    """Steps are slow when they take longer than usual by a share of `drop` and by `spreads` robust standard deviations.

    A drop is told when `needed` of the last `recent` windows are slow, after `history` windows to compare with, of
    which the first `warm_up` do not count.
    """

    drop: float = 0.20
    spreads: float = 4.0
    recent: int = 10
    needed: int = 8
    history: int = 20
    warm_up: int = 2


@dataclass(frozen=True, kw_only=True)
class Drop:
    """Steps take longer than they did. Times in seconds."""

    usual_s: float
    now_s: float
    slow: int
    recent: int

    @property
    def evidence(self) -> str:
        """What was measured, in a sentence."""
        percent = 100 * (1 - self.usual_s / self.now_s)
        return (
            f"A step takes {self.now_s:.3f} s, usual in this attempt are {self.usual_s:.3f} s: {percent:.0f} % less is "
            f"done in the same time. So it is in {self.slow} of the last {self.recent} windows; saves and announced "
            "phases are left out."
        )


def judge_speed(windows: Sequence[float], rule: SpeedRule) -> Drop | None:
    """Return the drop that the newest windows show, None when there is none or too little to compare with.

    `windows` are median step times in seconds, the oldest first.
    """
    older, recent = windows[rule.warm_up : -rule.recent], windows[-rule.recent :]
    if len(older) < rule.history:
        return None
    usual_s = median(older)
    sigma_s = SIGMA_OF_MAD * median(abs(each - usual_s) for each in older)
    limit_s = usual_s + max(rule.drop * usual_s, rule.spreads * sigma_s)
    slow = [each for each in recent if each > limit_s]
    if len(slow) < rule.needed:
        return None
    return Drop(usual_s=usual_s, now_s=median(slow), slow=len(slow), recent=len(recent))
