"""Which slot does the next save write to, and what must stay?

There is always one whole snapshot in memory once the first was taken: the newest of the line that goes on is written
over only while another one of that line is whole. Slots of an earlier attempt of this rank are taken over with what
they hold; a file that is one too many goes when a newer shard has taken its place.
"""

import itertools
import os
import secrets
import time
from pathlib import Path

from .errors import SlotMemory, SlotsBusy
from .folder import JobFolder, Shard
from .layout import PAGE, aligned
from .slots import Slot, owner_lock

LEAST = 2
SLACK = 256
WAIT_S = 0.5
PAUSE_S = 0.002


class SlotPool:
    """The slots of one rank. `wanted` is how many there are when memory allows, at least two."""

    def __init__(self, folder: JobFolder, *, rank: int, epoch: int, wanted: int = LEAST) -> None:
        self._folder = folder
        self._rank = rank
        self._epoch = epoch
        self._wanted = max(wanted, LEAST)
        self._owner: int | None = None
        self._opened = False
        self._line_ends: Shard | None = None
        self._mark = secrets.token_hex(6)
        self._numbers = itertools.count()
        self.slots: list[Slot] = []

    def follow(self, restored: Shard | None) -> None:
        """Take note of the shard this attempt goes on from: older attempts' shards beyond it are of a given-up line."""
        self._line_ends = restored

    def in_line(self, shard: Shard) -> bool:
        """Whether a shard is part of the history that goes on."""
        if shard.epoch >= self._epoch:
            return True
        return self._line_ends is not None and shard <= self._line_ends

    def reserve(self, needed: int) -> None:
        """Have at least two slots of `needed` bytes, reserved and touched. Raises SlotMemory, OSError.

        A third one is left out when there is no memory for it. What is whole stays where it is.
        """
        self._open()
        fits = [slot for slot in self.slots if slot.size >= needed]
        for slot in sorted(self.slots, key=self._worth):  # one after the other: the last whole one stays
            if slot.size < needed and self._may_go(slot) and slot.lock():
                self._drop(slot)
        while len(fits) < self._wanted:
            try:
                slot = Slot.reserved(self._free_name(), self._roomy(needed))
            except SlotMemory:
                if len(fits) < LEAST:
                    raise
                return
            self.slots.append(slot)
            fits.append(slot)

    def take(self, needed: int) -> Slot:
        """Return a slot of at least `needed` bytes, locked and begun; what it held is gone.

        Raises SlotsBusy when all others are being read for longer than half a second, SlotMemory, OSError.
        """
        self._open()
        if sum(slot.size >= needed for slot in self.slots) < LEAST:
            self.reserve(needed)
        end = time.monotonic() + WAIT_S
        while True:
            for slot in self._candidates(needed):
                if slot.lock():
                    slot.begin(self._free_name())
                    return slot
            if time.monotonic() > end:
                raise SlotsBusy("every slot is being read")
            time.sleep(PAUSE_S)

    def retire(self) -> None:
        """After a save: let go of slots that are too many, those that are too small first, then the oldest."""
        fitting = max((slot.size for slot in self.slots), default=0)
        for slot in sorted(self.slots, key=lambda slot: (2 * slot.size >= fitting, self._worth(slot))):
            if len(self.slots) > self._wanted and self._may_go(slot) and slot.lock():
                self._drop(slot)

    def address_of(self, path: Path) -> int | None:
        """Return where a slot's file is mapped, if it is one."""
        self._open()
        return next((slot.address for slot in self.slots if slot.path == path), None)

    def close(self) -> None:
        """Let go of the slots: what they hold stays, and another process may write to them."""
        for slot in self.slots:
            slot.close()
        self.slots, self._opened = [], False
        if self._owner is not None:
            os.close(self._owner)
            self._owner = None

    def _candidates(self, needed: int) -> list[Slot]:
        """Return the slots that may be written over, the one that is missed least first."""
        fitting = [slot for slot in self.slots if slot.size >= needed and self._may_go(slot)]
        return sorted(fitting, key=self._worth)

    def _worth(self, slot: Slot) -> tuple[int, int, int]:
        if slot.shard is None:
            return 0, 0, 0
        return 1 + self.in_line(slot.shard), slot.shard.epoch, slot.shard.step

    def _may_go(self, slot: Slot) -> bool:
        if slot.shard is None or not self.in_line(slot.shard):
            return True
        return any(other is not slot and other.shard is not None and self.in_line(other.shard) for other in self.slots)

    def _drop(self, slot: Slot) -> None:
        self.slots.remove(slot)
        slot.remove()

    def _open(self) -> None:
        """Take over the slots of an earlier attempt, unless a process of it still lives and may write to them."""
        if self._opened:
            return
        self._opened = True
        self._owner = owner_lock(self._folder.run / f"slots-{self._rank}")
        if self._owner is None:
            return
        for path in self._left_behind():
            slot = Slot.adopted(path)
            if slot is None:
                _forget(path)
            else:
                self.slots.append(slot)

    def _left_behind(self) -> list[Path]:
        shards = [path for path in self._folder.memory.glob(f"*-r{self._rank}.snap") if self._is_mine(path)]
        return [*self._folder.memory.glob(f"slot-{self._rank}-*"), *shards]

    def _is_mine(self, path: Path) -> bool:
        """A newer attempt's shard is not touched: this process may be one that has not noticed its end yet."""
        shard = Shard.of(path)
        return shard is not None and shard.epoch <= self._epoch

    def _free_name(self) -> Path:
        """Return a name that no slot has: process ids come again in every container, so the name holds none."""
        return self._folder.memory / f"slot-{self._rank}-{self._mark}-{next(self._numbers)}"

    def _roomy(self, needed: int) -> int:
        """A little more than needed: a header grows with the numbers in it, and slots that fit are used again."""
        return aligned(needed + needed // SLACK, PAGE)


def _forget(path: Path) -> None:
    """Remove what is no slot: half a shard, or one of another format."""
    path.with_suffix(".json").unlink(missing_ok=True)
    path.unlink(missing_ok=True)
