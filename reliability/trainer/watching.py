"""What does a rank tell beyond its step, so that a hang, a slow rank or a broken loss can be seen from outside?

A second record of 192 bytes behind the first 64 of the progress file, with a `seq` of its own that is odd while it
changes. Readers that know the first record alone read on as before, and a file that ends with it is an older client's.
"""

import mmap
import struct
import time
from collections import deque
from dataclasses import dataclass
from math import isfinite, nan

AT = 64
SIZE = 192
VERSION = 1
RECORD = struct.Struct("<QIIq24s16sdddddqdIIqqIIqdd")
_SEQ = struct.Struct("<Q")
_TIMES = 64
_BUCKET = 16384
_FIRST_STEPS = 3
_WARM = 10
_COMPUTED = 16
_LOSSES = 128
_LEAST_LOSSES = 32
SPIKE_SPREADS = 8.0
SPIKE_SHARE = 0.2
CALM_AFTER = 8
SIGMA_OF_MAD = 1.4826


def steady() -> float:
    """Return seconds of the clock that agent and ranks of a machine share (CLOCK_BOOTTIME)."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def middle(values: list[float]) -> tuple[float, float]:
    """Return median and median absolute deviation; NaN for no values."""
    if not values:
        return nan, nan
    half = len(values) // 2
    median = sorted(values)[half]
    return median, sorted(abs(each - median) for each in values)[half]


@dataclass
class Watched:
    """What the record holds.

    phase: '' in a step, else announced, with its limit (NaN: none), since `moved_at`, seconds of CLOCK_BOOTTIME.
    moves: steps and changes of phase so far. Times of steps as in `StepTimes`. compute_s: median time before
    collectives in a step, NaN when none is marked; waits: in one now. bad_*: losses that are no numbers. spike_*: the
    last loss that jumped, and what was usual.
    """

    epoch: int
    moves: int = 0
    phase: str = ""
    role: str = ""
    phase_limit_s: float = nan
    moved_at: float = 0.0
    median_s: float = nan
    mad_s: float = nan
    longest_s: float = 0.0
    timed: int = 0
    compute_s: float = nan
    waits: bool = False
    bad_losses: int = 0
    bad_first: int = -1
    bad_last: int = -1
    spikes: int = 0
    spike_step: int = -1
    spike_loss: float = nan
    spike_usual: float = nan


class WatchRecord:
    """The writer's side, in a map that has room for it."""

    def __init__(self, view: mmap.mmap) -> None:
        self._view = view
        self._seq = 0

    def write(self, told: Watched) -> None:
        """Publish all of it."""
        _SEQ.pack_into(self._view, AT, self._seq + 1)
        self._seq += 2
        body = RECORD.pack(
            self._seq - 1,
            VERSION,
            told.moves % 2**32,
            told.epoch,
            told.phase.encode()[:24],
            told.role.encode()[:16],
            told.phase_limit_s,
            told.moved_at,
            told.median_s,
            told.mad_s,
            told.longest_s,
            told.timed,
            told.compute_s,
            told.waits,
            min(told.bad_losses, 2**32 - 1),
            told.bad_first,
            told.bad_last,
            min(told.spikes, 2**32 - 1),
            0,
            told.spike_step,
            told.spike_loss,
            told.spike_usual,
        )
        self._view[AT : AT + len(body)] = body
        _SEQ.pack_into(self._view, AT, self._seq)


class StepTimes:
    """How long steps took: median and spread of the last 64, the longest of the last 16384 to 32768.

    The first three of an attempt compile and fill caches: they are forgotten once ten were timed.
    """

    def __init__(self) -> None:
        self.timed = 0
        self.median_s = self.mad_s = nan
        self._last: deque[float] = deque(maxlen=_TIMES)
        self._longest = [0.0, 0.0]

    @property
    def longest_s(self) -> float:
        """The longest step of late."""
        return max(self._longest)

    def add(self, took_s: float) -> None:
        """Count one step."""
        self.timed += 1
        if self.timed % _BUCKET == 0:
            self._longest = [0.0, self._longest[0]]
        self._longest[0] = max(self._longest[0], took_s)
        self._last.append(took_s)
        if self.timed == _WARM:
            for _ in range(_FIRST_STEPS):
                self._last.popleft()
            self._longest = [max(self._last), 0.0]

    def refresh(self) -> None:
        """Work the figures out anew."""
        self.median_s, self.mad_s = middle(list(self._last))


class Losses:
    """Which losses are no numbers, and which jump away from the last 128 by 8 robust standard deviations and 20 %?

    A spike is told once: it is over when eight losses in a row are ordinary again.
    """

    def __init__(self, told: Watched) -> None:
        self._told = told
        self._last: deque[float] = deque(maxlen=_LOSSES)
        self._usual = self._spread = nan
        self._calm = CALM_AFTER

    def add(self, step: int, loss: float) -> None:
        """Take the loss of one step."""
        told = self._told
        if not isfinite(loss):
            told.bad_losses += 1
            told.bad_first = step if told.bad_first < 0 else told.bad_first
            told.bad_last = step
            return
        jumped = len(self._last) >= _LEAST_LOSSES and loss - self._usual > max(
            SPIKE_SPREADS * SIGMA_OF_MAD * self._spread, SPIKE_SHARE * abs(self._usual)
        )
        if jumped and self._calm >= CALM_AFTER:
            told.spikes += 1
            told.spike_step, told.spike_loss, told.spike_usual = step, loss, self._usual
        self._calm = 0 if jumped else self._calm + 1
        self._last.append(loss)
        if len(self._last) == _LEAST_LOSSES:
            self.refresh()

    def refresh(self) -> None:
        """Work out anew what is usual."""
        self._usual, self._spread = middle(list(self._last))


class Computing:
    """How long a rank computes in a step before collectives that it marks: the median of the last 16 steps."""

    def __init__(self) -> None:
        self.compute_s = nan
        self._waited_s = 0.0
        self._marked = False
        self._last: deque[float] = deque(maxlen=_COMPUTED)

    def waited(self, seconds: float) -> None:
        """Count the time in one collective."""
        self._waited_s += seconds
        self._marked = True

    def step(self, took_s: float | None) -> None:
        """Count a step that took so long; None when that is not known."""
        if self._marked and took_s is not None:
            self._last.append(max(0.0, took_s - self._waited_s))
        self._waited_s, self._marked = 0.0, False

    def refresh(self) -> None:
        """Work the figure out anew."""
        self.compute_s = middle(list(self._last))[0]
