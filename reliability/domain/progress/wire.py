"""What does a heartbeat tell of a rank beyond its step? Read field by field, as everything from outside is."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from reliability.domain import fields as f
from reliability.domain.progress.hang import STATES
from reliability.domain.progress.limits import Pace

_seconds = f.nullable(f.number(least=0, most=1e9))
_count = f.nullable(f.integer(), 0)
_step = f.nullable(f.integer())
_figure = f.nullable(f.number())


@dataclass(frozen=True, kw_only=True)
class BadLoss:
    """Losses that are no numbers: how many in this attempt, and at which steps the first and the last."""

    count: int
    first: int | None = None
    last: int | None = None


@dataclass(frozen=True, kw_only=True)
class Spike:
    """Losses that jumped away from what was usual: how often in this attempt, and the last one."""

    count: int
    step: int | None = None
    loss: float | None = None
    usual: float | None = None


@dataclass(frozen=True, kw_only=True)
class RankWatch:
    """What is told of one rank. Times in seconds, None where nothing is known.

    moves: steps and changes of phase so far, a counter that may begin anew. moved_age_s: since the last of them.
    phase_limit_s: of the phase that was announced. waits: in a collective that it marked. state: of its process.
    output_age_s, output_longest_s: since its last output, and the longest pause between two.
    """

    moves: int = 0
    moved_age_s: float | None = None
    phase_limit_s: float | None = None
    waits: bool = False
    state: str = ""
    role: str = ""
    median_s: float | None = None
    mad_s: float | None = None
    longest_s: float | None = None
    timed: int = 0
    compute_s: float | None = None
    bad_loss: BadLoss | None = None
    spike: Spike | None = None
    output_age_s: float | None = None
    output_longest_s: float | None = None

    @property
    def pace(self) -> Pace | None:
        """How long its steps take; None until that was measured."""
        if self.median_s is None or self.mad_s is None:
            return None
        return Pace(median_s=self.median_s, mad_s=self.mad_s, longest_s=self.longest_s or 0.0, timed=self.timed)

    def kept(self) -> dict[str, Any]:
        """Return it as it is kept: without the ages, which are those of one moment."""
        told = {name: value for name, value in asdict(self).items() if value not in (None, "", False, 0)}
        return {name: value for name, value in told.items() if name not in ("moved_age_s", "output_age_s")}


def _bad_loss(value: object, path: str) -> BadLoss:
    return BadLoss(**f.record({"count": (_count, True), "first": (_step, False), "last": (_step, False)})(value, path))


def _spike(value: object, path: str) -> Spike:
    told = {"count": (_count, True), "step": (_step, False), "loss": (_figure, False), "usual": (_figure, False)}
    return Spike(**f.record(told)(value, path))


_WATCH = f.record(
    {
        "moves": (_count, False),
        "moved_age_s": (_seconds, False),
        "phase_limit_s": (_seconds, False),
        "waits": (f.nullable(f.boolean, False), False),
        "state": (f.nullable(f.one_of("", *STATES), ""), False),
        "role": (f.nullable(f.text(most=24), ""), False),
        "median_s": (_seconds, False),
        "mad_s": (_seconds, False),
        "longest_s": (_seconds, False),
        "timed": (_count, False),
        "compute_s": (_seconds, False),
        "bad_loss": (f.nullable(_bad_loss), False),
        "spike": (f.nullable(_spike), False),
        "output_age_s": (_seconds, False),
        "output_longest_s": (_seconds, False),
    }
)


STANDSTILL = f.record(
    {
        "rank": (f.integer(most=10_000_000), True),
        "step": (_step, False),
        "phase": (f.nullable(f.text(most=32), ""), False),
        "still_s": (_seconds, False),
        "limit_s": (_seconds, False),
    }
)
"""Body of the report by which a node asks that its job is looked at."""


def read(value: object, path: str) -> RankWatch:
    """Return what a heartbeat tells of a rank. Raises InvalidInput with the path of the first bad field."""
    return RankWatch(**_WATCH(value, path))


def restored(kept: Mapping[str, Any]) -> RankWatch:
    """Return what was kept of a rank; nothing known where nothing was, or where another version kept it."""
    known = {each.name for each in fields(RankWatch)}
    values = {name: value for name, value in kept.items() if name in known}
    for name, kind in (("bad_loss", BadLoss), ("spike", Spike)):
        if values.get(name):
            values[name] = kind(**values[name])
    return RankWatch(**values)
