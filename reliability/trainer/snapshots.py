"""How does a rank's state get into the memory tier whole or not at all, and what does that cost training?

`save` lays the state out, takes a slot and copies. At once (sync), training stands still for the copy alone; lazily,
only for laying it out: the large arrays are copied by a copy thread while training goes on to read them, and `settle`,
which must be called before they change, waits for it. A shard counts from the moment its slot is ready; the node's
second process then computes its digest and writes the commit record beside it.
"""

import ctypes
import os
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from . import copier, layout, moments, parts
from .arrays import Buffer, Known
from .copier import CopyThread, DeviceCopy, TearCheck
from .errors import HeaderGrew
from .folder import JobFolder, Shard
from .layout import Layout
from .parts import Named
from .pool import SlotPool
from .slots import Slot
from .tree import Early, Encoder


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
    tree: Any
    buffers: list[Buffer]
    told: str
    group: str
    generation: int
    taken_at: float
    began: float
    stall_s: float = 0.0
    waiting_since: float | None = None

    def stalled_s(self, now: float) -> float:
        """Return for how long training has stood still until the monotonic time `now`."""
        return self.stall_s + (max(now - self.waiting_since, 0.0) if self.waiting_since is not None else 0.0)


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
        self._copying = CopyThread()
        self._device = DeviceCopy()
        self._known = Known()
        self._planned: tuple[tuple[list[int], int, str], Layout] | None = None  # most states keep their form
        self._current: _Save | None = None
        self._laid: weakref.WeakKeyDictionary[Slot, object] = weakref.WeakKeyDictionary()
        self._data_at = 0
        self._planned_for = -1  # how many buffers the room for the header was made for
        self._told_at = 0.0  # when the last save wrote down its stall
        self._tail_s = 0.0  # for how long training stood still after that
        self._generation = 0
        self.taken = 0
        self.failed = 0

    def follow(self, restored: Shard | None) -> None:
        """Take note of the shard this attempt goes on from."""
        self._pool.follow(restored)

    def address_of(self, path: Path) -> int | None:
        """Return where a shard of an earlier attempt is mapped: its slots are taken over."""
        return self._pool.address_of(path)

    def reserve(self, state: Any, *, named: Named = parts.NOTHING) -> None:
        """Reserve and touch the slots for a state of this size. Raises SlotMemory, UnsupportedState, OSError."""
        encoder = Encoder(named=named)
        tree = encoder.encode(state)
        told = parts.letters(encoder.parts) if named.any else ""
        self._pool.reserve(self._plan(tree, encoder.buffers, told, named.group, afresh=True).needed)

    def save(
        self,
        step: int,
        state: Any,
        *,
        lazy: bool = False,
        early: Early | None = None,
        began: float | None = None,
        named: Named = parts.NOTHING,
    ) -> Shard:
        """Copy the state after `step` into a slot; with `lazy` it must not change before `settle` has returned.

        `early`: what in the state does change before, and is copied at once. `began`: monotonic time at which training
        stopped for it, before the state was gathered; the stall counts from there. What training waits for after the
        stall was written down is known only then, so it is told with the next save. `named`: the parts of the states.

        Raises OSError, SlotMemory, SlotsBusy, UnsupportedState, TornSnapshot (also of a lazy save before this one);
        then nothing of it counts and the older shards are untouched.
        """
        self.settle()
        began = time.monotonic() if began is None else began
        taken_at = time.time() - (time.monotonic() - began)
        self._generation += 1
        try:
            encoder = Encoder(early, named, self._known)
            tree, buffers = encoder.encode(state), encoder.buffers
            told = parts.letters(encoder.parts) if named.any else ""
            plan = self._plan(tree, buffers, told, named.group, afresh=not lazy)
            slot, shard = self._pool.take(plan.needed), Shard(self._epoch, step, self._rank)
            save = _Save(shard, slot, plan, tree, buffers, told, named.group, self._generation, taken_at, began)
            self._current = save
            self._copy(save, lazy=lazy)
            if not lazy:
                self._tail_s += time.monotonic() - self._told_at
            return shard
        except BaseException:
            self.failed += 1
            self._abandon()
            raise

    @property
    def busy(self) -> bool:
        """Whether a state is being copied beside training."""
        return self._copying.busy

    def settle(self, limit_s: float | None = None) -> bool:
        """Wait until nothing of the state is being copied any more; return whether that is so.

        Raises what went wrong with a lazy save; it was left out then.
        """
        if not self._copying.busy:
            return self._settled(limit_s)
        save, since = self._current, time.monotonic()  # the copy thread takes the save away once it counts
        if save is not None:
            save.waiting_since = since
        try:
            return self._settled(limit_s)
        finally:
            self._tail_s += time.monotonic() - max(since, self._told_at)

    def _settled(self, limit_s: float | None) -> bool:
        try:
            return self._copying.wait(limit_s)
        except BaseException:
            self.failed += 1
            self._abandon()
            raise

    def _copy(self, save: _Save, *, lazy: bool) -> None:
        slot, buffers, offsets = save.slot, save.buffers, save.layout.offsets
        if save.told:
            self._clear_gaps(save)
        else:
            self._laid.pop(slot, None)
        tear = TearCheck(buffers, offsets) if self._saving.check else None
        arrived = self._device.begin(slot, buffers, offsets)
        if not lazy:
            self._copy_at_once(copier.pieces(slot, buffers, offsets))
            self._finish(save, arrived, tear)
            return
        later, now = copier.divided(slot, buffers, offsets)
        copier.copy(now)
        save.stall_s = time.monotonic() - save.began
        self._copying.begin(lambda: self._copy_later(save, later, arrived, tear))

    def _clear_gaps(self, save: _Save) -> None:
        """Have nothing of an earlier save between the buffers: what ranks have in common must be the same bits."""
        sizes = tuple(buffer.size for buffer in save.buffers)
        laid = (save.layout, sizes)
        if self._laid.get(save.slot) == laid:
            return
        for start, end in layout.gaps(save.layout, sizes, save.slot.size):
            ctypes.memset(save.slot.address + start, 0, end - start)
        self._laid[save.slot] = laid

    def _copy_later(
        self, save: _Save, work: list[copier.Piece], arrived: Callable[[], None], tear: TearCheck | None
    ) -> None:
        """Beside training: what was not copied at once."""
        copier.copy(work)
        self._finish(save, arrived, tear)

    def _plan(self, tree: Any, buffers: Sequence[Buffer], told: str, group: str, *, afresh: bool) -> Layout:
        """Return where the buffers go. A save beside training leaves as much room for its header as the last needed."""
        sizes = [buffer.size for buffer in buffers]
        if afresh or self._planned_for != len(sizes):
            header = layout.header_of(self._facts(0), tree, sizes, told, group)
            self._data_at = layout.room_for(header, self._data_at)
            self._planned_for = len(sizes)
        wanted = (sizes, self._data_at, told)
        if self._planned is None or self._planned[0] != wanted:
            self._planned = (wanted, layout.plan(*wanted))
        return self._planned[1]

    def _facts(self, step: int, began: float = 0.0) -> dict[str, Any]:
        counts = {"taken": self.taken + 1, "failed": self.failed}
        return {**self._about, "step": step, "moment": moments.moment(began), **counts}

    def _copy_at_once(self, work: list[copier.Piece]) -> None:
        if self._saving.threads < 2 or sum(piece[2] for piece in work) < copier.WAKE_BYTES:
            copier.copy(work)
            return
        mine, others = copier.halves(work)
        self._copying.begin(lambda: copier.copy(others))
        try:
            copier.copy(mine)
        finally:
            self._copying.wait()

    def _finish(self, save: _Save, arrived: Callable[[], None], tear: TearCheck | None) -> None:
        """Make what was copied count, once all of it has arrived."""
        sizes = [buffer.size for buffer in save.buffers]
        header = layout.header_of(self._facts(save.shard.step, save.began), save.tree, sizes, save.told, save.group)
        if layout.PRELUDE_BYTES + len(header) > save.layout.data_at:
            self._planned_for = -1
            raise HeaderGrew(f"what is not arrays grew to {len(header)} bytes, which left no room in the slot")
        save.slot.view[layout.PRELUDE_BYTES : layout.PRELUDE_BYTES + len(header)] = header
        arrived()
        if tear is not None:
            tear.check(save.slot)
        self._told_at = time.monotonic()
        stall_s = self._tail_s + (save.stalled_s(self._told_at) if save.stall_s else self._told_at - save.began)
        self._tail_s = 0.0
        prelude = save.layout.prelude(
            header, total=save.slot.size, generation=save.generation, taken_at=save.taken_at, stall_s=stall_s
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
        """Let a save that is under way end: the last one of a program counts too. Raises what went wrong with it.

        While it still copies when the limit is over, its slot stays mapped: it ends with the process.
        """
        try:
            self.settle(limit_s)
        finally:
            if not self._copying.busy:
                self._pool.close()


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
