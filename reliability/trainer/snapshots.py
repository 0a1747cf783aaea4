"""How does a rank's state get into the memory tier whole or not at all, and what does that cost training?

`save` lays the state out, takes a slot and copies. At once (sync), training stands still for the copy alone; lazily,
only for laying it out: the large arrays are copied by a helper while training goes on to read them, and `settle`,
which must be called before they change, waits for it. A shard counts from the moment its slot is ready; the node's
second process then computes its digest and writes the commit record beside it.
"""

import contextlib
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from . import copier, layout
from .arrays import Buffer
from .copier import DeviceCopy, Helper, TearCheck
from .folder import JobFolder, Shard
from .layout import Layout
from .pool import SlotPool
from .slots import Slot
from .tree import Encoder


@dataclass(frozen=True)
class Saving:
    """How saves are made. `threads`: 1 or 2 for a copy at once; `check`: prove that nothing tore, at some cost."""

    slots: int = 2
    threads: int = 1
    check: bool = False


@dataclass
class _Save:
    """One save under way."""

    shard: Shard
    slot: Slot
    layout: Layout
    generation: int
    taken_at: float
    began: float
    stall_s: float = 0.0
    waiting_since: float | None = None

    def stalled_s(self) -> float:
        """Return for how long training has stood still so far."""
        return self.stall_s + (time.monotonic() - self.waiting_since if self.waiting_since is not None else 0.0)


class MemoryTier:
    """The shards of one rank in the job's folder. `told` hears of every shard that is ready, from any thread."""

    def __init__(
        self,
        folder: JobFolder,
        *,
        job: str,
        epoch: int,
        rank: int,
        saving: Saving | None = None,
        told: Callable[[Shard], None] = lambda _shard: None,
    ) -> None:
        self._folder = folder
        self._about = {"job": job, "epoch": epoch, "rank": rank}
        self._epoch = epoch
        self._rank = rank
        self._saving = saving or Saving()
        self._told = told
        self._pool = SlotPool(folder, rank=rank, epoch=epoch, wanted=self._saving.slots)
        self._helper = Helper()
        self._device = DeviceCopy()
        self._current: _Save | None = None
        self._data_at = 0
        self._generation = 0
        self.taken = 0
        self.failed = 0

    def follow(self, restored: Shard | None) -> None:
        """Take note of the shard this attempt goes on from."""
        self._pool.follow(restored)

    def reserve(self, state: Any) -> None:
        """Reserve and touch the slots for a state of this size. Raises SlotMemory, UnsupportedState, OSError."""
        encoder = Encoder()
        plan = self._plan(0, encoder.encode(state), encoder.buffers)
        self._pool.reserve(plan.needed)

    def save(self, step: int, state: Any, *, lazy: bool = False, early: tuple[str, ...] = ()) -> Shard:
        """Copy the state after `step` into a slot; with `lazy` it must not change before `settle` has returned.

        `early`: beginnings of places in the state that do change before, and are copied at once.

        Raises OSError, SlotMemory, SlotsBusy, UnsupportedState, TornSnapshot (also of a lazy save before this one);
        then nothing of it counts and the older shards are untouched.
        """
        began, taken_at = time.monotonic(), time.time()
        self.settle()
        self._generation += 1
        try:
            encoder = Encoder(early)
            plan = self._plan(step, encoder.encode(state), encoder.buffers)
            slot = self._pool.take(plan.needed)
            shard = Shard(self._epoch, step, self._rank)
            save = self._current = _Save(shard, slot, plan, self._generation, taken_at, began)
            self._copy(save, encoder.buffers, lazy=lazy)
            return shard
        except BaseException:
            self.failed += 1
            self._abandon()
            raise

    def settle(self, limit_s: float | None = None) -> bool:
        """Wait until nothing of the state is being copied any more; return whether that is so.

        Raises what went wrong with a lazy save; it was left out then.
        """
        if self._current is not None and self._helper.busy:
            self._current.waiting_since = time.monotonic()
        try:
            return self._helper.wait(limit_s)
        except BaseException:
            self.failed += 1
            self._abandon()
            raise

    def _copy(self, save: _Save, buffers: list[Buffer], *, lazy: bool) -> None:
        slot, plan = save.slot, save.layout
        tear = TearCheck(buffers, plan.offsets) if self._saving.check else None
        arrived = self._device.begin(slot, buffers, plan.offsets)
        slot.view[layout.PRELUDE_BYTES : layout.PRELUDE_BYTES + len(plan.header)] = plan.header
        if not lazy:
            self._copy_at_once(copier.pieces(slot, buffers, plan.offsets))
            self._finish(save, [], arrived, tear, buffers)
            return
        now, later = _parts(buffers, plan.offsets)
        copier.copy(copier.pieces(slot, *now))
        work = copier.pieces(slot, *later)
        save.stall_s = time.monotonic() - save.began
        self._helper.begin(lambda: self._finish(save, work, arrived, tear, buffers))

    def _plan(self, step: int, tree: Any, buffers: Sequence[Buffer]) -> Layout:
        about = {**self._about, "step": step, "taken": self.taken + 1, "failed": self.failed}
        plan = layout.plan(about, tree, [buffer.size for buffer in buffers], least_data_at=self._data_at)
        self._data_at = plan.data_at
        return plan

    def _copy_at_once(self, work: list[copier.Piece]) -> None:
        if self._saving.threads < 2 or sum(piece[2] for piece in work) < copier.WAKE_BYTES:
            copier.copy(work)
            return
        mine, others = copier.halves(work)
        self._helper.begin(lambda: copier.copy(others))
        try:
            copier.copy(mine)
        finally:
            self._helper.wait()

    def _finish(
        self,
        save: _Save,
        work: list[copier.Piece],
        arrived: Callable[[], None],
        tear: TearCheck | None,
        _keep: Sequence[Buffer],
    ) -> None:
        """Copy what is left and make it count."""
        copier.copy(work)
        arrived()
        if tear is not None:
            tear.check(save.slot)
        stall_s = save.stalled_s() if save.stall_s else time.monotonic() - save.began
        prelude = save.layout.prelude(
            total=save.slot.size,
            state=layout.WRITING,
            generation=save.generation,
            taken_at=save.taken_at,
            stall_s=stall_s,
        )
        save.slot.publish(prelude, self._folder.memory / f"{save.shard.stem}.snap", save.shard)
        self._current = None
        self.taken += 1
        self._pool.retire()
        self._told(save.shard)

    def _abandon(self) -> None:
        save, self._current = self._current, None
        if save is not None and save.slot.shard is None:
            save.slot.give_up()

    def sweep(self) -> None:
        """Remove what an earlier attempt of this rank left unfinished: nobody may ever read it."""
        for path in self._folder.memory.glob(f"*-r{self._rank}.*"):
            shard = Shard.of(path)
            if shard is None or shard.rank != self._rank or shard.epoch > self._epoch:
                continue
            alone = path.suffix == ".json" and not path.with_suffix(".snap").exists()
            if path.name.endswith(".part") or alone:
                path.unlink(missing_ok=True)

    def ready(self) -> list[Shard]:
        """Return this rank's whole shards in memory, oldest first by epoch and step."""
        return sorted(slot.shard for slot in self._pool.slots if slot.shard is not None)

    def close(self, limit_s: float) -> None:
        """Let a save that is under way end: the last one of a program counts too."""
        with contextlib.suppress(Exception):
            self.settle(limit_s)
        self._pool.close()


def _parts(
    buffers: Sequence[Buffer], offsets: Sequence[int]
) -> tuple[tuple[list[Buffer], list[int]], tuple[list[Buffer], list[int]]]:
    """Divide what is to be copied at once from what may wait."""
    now: tuple[list[Buffer], list[int]] = ([], [])
    later: tuple[list[Buffer], list[int]] = ([], [])
    for buffer, offset in zip(buffers, offsets, strict=True):
        part = later if buffer.lazy else now
        part[0].append(buffer)
        part[1].append(offset)
    return now, later


def saving_from(environment: Mapping[str, str]) -> Saving:
    """Return how saves are made, by the environment. Raises ValueError, which names the variable."""
    cores = len(os.sched_getaffinity(0)) // max(int(environment.get("LOCAL_WORLD_SIZE") or 1), 1)
    numbers = {"STEPKEEPER_SLOTS": (2, 3), "STEPKEEPER_COPY_THREADS": (1, 2), "STEPKEEPER_SAVE_CHECK": (0, 1)}
    default = {"STEPKEEPER_SLOTS": 2, "STEPKEEPER_COPY_THREADS": 2 if cores > 1 else 1, "STEPKEEPER_SAVE_CHECK": 0}
    found = {}
    for name, allowed in numbers.items():
        text = environment.get(name) or str(default[name])
        if text not in {str(number) for number in allowed}:
            raise ValueError(f"{name} must be {allowed[0]} or {allowed[1]}, not {text!r}")
        found[name] = int(text)
    return Saving(found["STEPKEEPER_SLOTS"], found["STEPKEEPER_COPY_THREADS"], bool(found["STEPKEEPER_SAVE_CHECK"]))
