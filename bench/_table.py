"""How are measured ratios shown beside what they must be, what they should be, and what others reach?"""

import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from bench.figures import Figure

BUSY = "not judged: busy"
ENOUGH = 0.75
"""The share of a row's samples that must be undisturbed for it to be judged."""


@dataclass(frozen=True, kw_only=True)
class Row:
    """One ratio: `must` and `stretch` are the most it may be, or the least with `at_least`. None: nothing is demanded.

    samples: the undisturbed ones, or all where too few were; `taken`: how many there were. `peers`: the same ratio of
    others, by name.
    """

    what: str
    samples: Sequence[float]
    taken: int = 0
    judged: bool = True
    must: float | None = None
    stretch: float | None = None
    at_least: bool = False
    peers: Mapping[str, float] = field(default_factory=dict)
    note: str = ""

    @property
    def ratio(self) -> float:
        """The median."""
        return statistics.median(self.samples) if self.samples else float("nan")

    @property
    def verdict(self) -> str:
        """Whether the target was met, in a few words; nothing where there is none."""
        if self.must is None and self.stretch is None:
            return ""
        if not (self.judged and self.samples):
            return BUSY
        if self.must is not None and not self._meets(self.must):
            return "MISSED"
        if self.stretch is not None and self._meets(self.stretch):
            return "stretch met"
        return "met" if self.must is not None else "stretch not met"

    def _meets(self, limit: float) -> bool:
        return self.ratio >= limit if self.at_least else self.ratio <= limit

    @property
    def figure(self) -> Figure:
        """Return it as it is kept."""
        sign = ">=" if self.at_least else "<="
        wanted = f"must be {sign} {self.must:g}: {self.verdict}" if self.must is not None else ""
        beside = ", ".join(f"{name} {value:.3g}" for name, value in self.peers.items())
        note = "; ".join(filter(None, (wanted, beside, self.note)))
        return Figure(name=self.what, samples=list(self.samples) or [float("nan")], unit="x", note=note)


def enough(undisturbed: Sequence[float], taken: Sequence[float]) -> bool:
    """Whether a row may be judged by its undisturbed samples alone."""
    return bool(undisturbed) and len(undisturbed) >= ENOUGH * len(taken)


def lines(rows: Sequence[Row]) -> Iterator[str]:
    """Yield the table, one line a row."""
    widest = max((len(row.what) for row in rows), default=0)
    head = f"{'must':>8} {'stretch':>8} {'ratio':>8}  {'spread':<16} {'n':>5}  {'verdict':<17} beside"
    yield f"  {'what':<{widest}}  {head}"
    for row in rows:
        sign = ">=" if row.at_least else "<="
        must = f"{sign} {row.must:g}" if row.must is not None else ""
        stretch = f"{sign} {row.stretch:g}" if row.stretch is not None else ""
        spread = f"{min(row.samples):.3g} .. {max(row.samples):.3g}" if row.samples else ""
        count = f"{len(row.samples)}/{row.taken}"
        beside = ", ".join(filter(None, [*(f"{name} {value:.3g}" for name, value in row.peers.items()), row.note]))
        yield (
            f"  {row.what:<{widest}}  {must:>8} {stretch:>8} {row.ratio:>8.3g}  {spread:<16} {count:>5}  "
            f"{row.verdict:<17} {beside}"
        ).rstrip()
