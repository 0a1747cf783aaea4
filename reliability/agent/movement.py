"""Since when has each rank on this node neither finished a step nor changed its phase, and since when is it quiet?

Seen from outside, on a clock that never jumps. What a rank says of the instant is taken where it agrees with that: it
lies between the look before and this one.
"""

from collections.abc import Hashable
from pathlib import Path

from reliability.agent.clock import steady
from reliability.agent.progress import Progress
from reliability.agent.watched import Watched


class Movement:
    """Follows the ranks of one attempt after the other."""

    def __init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        """Forget an older attempt: a new one starts now."""
        self._began_at = steady()
        self._moves: dict[int, tuple[Hashable, float]] = {}
        self._looked_at: dict[int, float] = {}
        self._output: dict[int, tuple[Hashable, float]] = {}
        self._longest_quiet_s: dict[int, float] = {}

    def look(self, rank: int, progress: Progress | None, watched: Watched | None, log: Path) -> None:
        """Take in what a rank has put down by now."""
        now = steady()
        before = self._looked_at.get(rank, self._began_at)
        self._looked_at[rank] = now
        mark = (progress.step if progress else None, watched.moves if watched else None)
        if self._moves.get(rank, (None, 0.0))[0] != mark:
            told = watched.moved_at if watched else None
            self._moves[rank] = (mark, told if told is not None and before <= told <= now else now)
        self._look_at_output(rank, log, now)

    def _look_at_output(self, rank: int, log: Path, now: float) -> None:
        try:
            state = log.lstat()
        except OSError:
            return
        mark = (state.st_size, state.st_mtime_ns)
        known = self._output.get(rank)
        if known is None or known[0] != mark:
            quiet_s = now - known[1] if known else 0.0
            self._longest_quiet_s[rank] = max(quiet_s, self._longest_quiet_s.get(rank, 0.0))
            self._output[rank] = (mark, now)

    def still_s(self, rank: int) -> float:
        """Return for how long a rank has not moved; since this began to look where it never did."""
        return max(0.0, steady() - self._moves.get(rank, (None, self._began_at))[1])

    def quiet_s(self, rank: int) -> float | None:
        """Return for how long a rank has written no output, None where it has no log."""
        known = self._output.get(rank)
        return None if known is None else max(0.0, steady() - known[1])

    def longest_quiet_s(self, rank: int) -> float | None:
        """Return its longest pause between two outputs, None where it has no log."""
        return self._longest_quiet_s.get(rank)
