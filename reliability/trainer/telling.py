"""How does a rank keep its progress record up to date: steps, phases, collectives, losses?

Every call is a handful of memory writes; medians are worked out at most four times a second.
"""

import contextlib
import math
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from .errors import ConfigurationError
from .progress import Progress, ProgressRecord, StepClock
from .watching import Computing, Losses, StepTimes, Watched, steady

SNAPSHOT_LIMIT_S = 600.0
"""How long a save of the client's own may take before it counts as a hang."""
REFRESH_S = 0.25
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,23}")
_OWN = ("starting", "training", "ended")


@dataclass
class _Phase:
    name: str
    limit_s: float
    began_at: float


class Teller:
    """Writes the record of one rank; where there is no room for one it only keeps the clock of the steps."""

    def __init__(self, path: Path, *, epoch: int, said: Callable[[str], None]) -> None:
        self.clock = StepClock()
        self._epoch = epoch
        self._told = Watched(epoch=epoch)
        self._times = StepTimes()
        self._losses = Losses(self._told)
        self._computing = Computing()
        self._phases: list[_Phase] = []
        self._collectives = 0
        self._refreshed_at = -math.inf
        self._record: ProgressRecord | None = None
        try:
            self._record = ProgressRecord(path)
        except OSError as error:
            said(f"progress cannot be reported, training goes on: {error}")

    def step(self, step: int, loss: float | None) -> None:
        """Take note that a step is finished; `loss` is None when it was not told."""
        now = time.monotonic()
        took_s = self.clock.tick(now)
        if took_s is not None:
            self._times.add(took_s)
        self._computing.step(took_s)
        if loss is not None:
            self._losses.add(step, loss)
        if now - self._refreshed_at >= REFRESH_S:
            self._refreshed_at = now
            self._refresh()
        self._moved()

    def publish(self, *, step: int, loss: float, restored_step: int, plan_version: int) -> None:
        """Write down how far the rank is."""
        if self._record is None:
            return
        self._record.write(
            Progress(
                epoch=self._epoch,
                step=step,
                loss=loss,
                wall=time.time(),
                step_s=self.clock.step_s,
                restored_step=restored_step,
                plan_version=plan_version,
            )
        )
        self._write()

    @contextlib.contextmanager
    def phase(self, name: str, limit_s: float) -> Iterator[None]:
        """Announce a phase for as long as the block runs. One within another has the limit of its own."""
        began = time.monotonic()
        self._phases.append(_Phase(name, limit_s, steady()))
        self._show_phase()
        try:
            yield
        finally:
            self._phases.pop()
            if not self._phases:
                self.clock.leave_out_since(began, time.monotonic())
            self._show_phase()

    @contextlib.contextmanager
    def collective(self) -> Iterator[None]:
        """Mark the time in which this rank waits for others."""
        began = time.monotonic()
        self._collectives += 1
        self._told.waits = True
        self._write()
        try:
            yield
        finally:
            self._collectives -= 1
            if not self._collectives:
                self._told.waits = False
                if not self._phases:
                    self._computing.waited(time.monotonic() - began)
            self._write()

    def role(self, name: str) -> None:
        """Say what this rank is for."""
        self._told.role = name
        self._write()

    def _show_phase(self) -> None:
        """Show the innermost phase; what is left of an outer one is less than its whole limit."""
        told, inner = self._told, self._phases[-1] if self._phases else None
        told.phase = inner.name if inner else ""
        told.phase_limit_s = inner.limit_s - (steady() - inner.began_at) if inner else math.nan
        self._moved()
        self._write()

    def _moved(self) -> None:
        self._told.moves += 1
        self._told.moved_at = steady()

    def _refresh(self) -> None:
        for each in (self._times, self._losses, self._computing):
            each.refresh()

    def _write(self) -> None:
        if self._record is None:
            return
        told, times = self._told, self._times
        told.median_s, told.mad_s, told.longest_s, told.timed = (
            times.median_s, times.mad_s, times.longest_s, times.timed,
        )  # fmt: skip
        told.compute_s = self._computing.compute_s
        self._record.watched.write(told)


def check_phase(name: str, limit_s: float) -> None:
    """Raise ConfigurationError when a phase is named or limited as none can be."""
    if not _NAME.fullmatch(name) or name in _OWN:
        raise ConfigurationError(
            f"{name!r} is no name of a phase",
            hint=f"A letter, then letters, digits and . _ -, at most 24 in all; none of {', '.join(_OWN)}.",
        )
    if not (isinstance(limit_s, int | float) and math.isfinite(limit_s) and limit_s > 0):
        raise ConfigurationError(
            f"the limit of the phase {name!r} must be a number of seconds above 0, not {limit_s!r}",
            hint="Give the longest time that it may take; after that it counts as a hang.",
        )


def check_role(name: str) -> None:
    """Raise ConfigurationError when a role is named as none can be."""
    if not _NAME.fullmatch(name) or len(name) > 16:
        hint = "A letter, then letters, digits and . _ -, at most 16 in all: stage-0, say."
        raise ConfigurationError(f"{name!r} is no name of a role", hint=hint)
