"""How are the bytes of a state copied into a slot, at once or beside training?

Copying goes through the C library's memmove, during which other threads of the program run. Small buffers, and those
that the program changes before its next update, are copied at once; the large ones by a copy thread, and whoever is
about to change the state waits for it. Tensors of a GPU are copied on a stream of their own.
"""

import contextlib
import ctypes
import hashlib
import queue
import threading
from collections.abc import Callable, Sequence
from typing import Any

from .arrays import Buffer, loaded
from .errors import TornSnapshot
from .slots import Slot

WAKE_BYTES = 32 * 2**20
"""Below this a second thread takes longer to wake up than to help."""

Piece = tuple[int, int, int]  # to, from, bytes


def pieces(slot: Slot, buffers: Sequence[Buffer], offsets: Sequence[int]) -> list[Piece]:
    """Return what is to be copied where."""
    later, now = divided(slot, buffers, offsets)
    return now + later


def divided(slot: Slot, buffers: Sequence[Buffer], offsets: Sequence[int]) -> tuple[list[Piece], list[Piece]]:
    """Return what is to be copied where: what may wait until the state changes, and what may not."""
    later: list[Piece] = []
    now: list[Piece] = []
    start = slot.address
    for buffer, offset in zip(buffers, offsets, strict=True):
        if buffer.size and buffer.device is None:
            (later if buffer.lazy else now).append((start + offset, buffer.address, buffer.size))
    return later, now


def copy(work: Sequence[Piece]) -> None:
    """Copy one piece after the other."""
    move = ctypes.memmove
    for target, source, size in work:
        move(target, source, size)


def halves(work: Sequence[Piece]) -> tuple[list[Piece], list[Piece]]:
    """Divide work into two lists of as many bytes, a piece in the middle included."""
    left = sum(size for _target, _source, size in work) // 2
    first: list[Piece] = []
    second: list[Piece] = []
    for target, source, size in work:
        mine = min(size, left)
        if 0 < mine < size:
            mine &= ~63
        if mine:
            first.append((target, source, mine))
        if mine < size:
            second.append((target + mine, source + mine, size - mine))
        left -= mine
    return first, second


class CopyThread:
    """A thread that does one piece of work at a time; `wait` returns when it is done."""

    def __init__(self) -> None:
        self._work: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._done = threading.Event()
        self._done.set()
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None

    @property
    def busy(self) -> bool:
        """Whether work is under way."""
        return not self._done.is_set()

    def begin(self, work: Callable[[], None]) -> None:
        """Begin a piece of work. The one before must have been waited for."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="stepkeeper-copy", daemon=True)
            self._thread.start()
        self._done.clear()
        self._work.put(work)

    def wait(self, limit_s: float | None = None) -> bool:
        """Wait for the work and return whether it is done; an error in it is raised here."""
        done = self._done.wait(limit_s)
        error, self._error = (self._error, None) if done else (None, self._error)
        if error is not None:
            raise error
        return done

    def _run(self) -> None:
        while True:
            work = self._work.get()
            try:
                work()
            except BaseException as error:
                self._error = error
            finally:
                del work
                self._done.set()


class DeviceCopy:
    """Copies tensors of a GPU into a slot on a stream beside that of the training. Not measured: see docs/adr/0014.

    The slot is pinned once, so that the device writes to it by itself. The stream waits for what training has queued
    so far; whoever is about to change the tensors waits for the event at its end, and the stream of the training waits
    for those that it changes before its next update.
    """

    def __init__(self) -> None:
        self._pinned: set[int] = set()
        self._stream: Any = None

    def begin(self, slot: Slot, buffers: Sequence[Buffer], offsets: Sequence[int]) -> Callable[[], None]:
        """Queue the copies and return what waits for them."""
        torch = loaded("torch")
        if torch is None or not any(buffer.device is not None for buffer in buffers):
            return lambda: None
        placed = [pair for pair in zip(buffers, offsets, strict=True) if pair[0].device is not None]
        early = [pair for pair in placed if not pair[0].lazy]
        self._pin(torch, slot)
        self._stream = self._stream or torch.cuda.Stream()
        training = torch.cuda.current_stream()
        self._stream.wait_stream(training)
        if early:
            training.wait_event(self._queued(torch, slot, early))
        event = self._queued(torch, slot, [pair for pair in placed if pair[0].lazy])
        return lambda: event.synchronize()

    def _queued(self, torch: Any, slot: Slot, placed: Sequence[tuple[Buffer, int]]) -> Any:
        """Queue copies and return the event at their end."""
        with torch.cuda.stream(self._stream):
            for buffer, offset in placed:
                raw = torch.frombuffer(slot.view[offset : offset + buffer.size], dtype=torch.uint8)
                raw.copy_(buffer.device.reshape(-1).view(torch.uint8), non_blocking=True)
                buffer.device.record_stream(self._stream)
            event = torch.cuda.Event()
            event.record(self._stream)
        return event

    def _pin(self, torch: Any, slot: Slot) -> None:
        if slot.address not in self._pinned:
            with contextlib.suppress(RuntimeError, AttributeError):
                torch.cuda.cudart().cudaHostRegister(slot.address, slot.size, 0)
            self._pinned.add(slot.address)


class TearCheck:
    """Proves that what was copied is what there was when the save began: a digest before, one of the copy after."""

    def __init__(self, buffers: Sequence[Buffer], offsets: Sequence[int]) -> None:
        self._placed = [pair for pair in zip(buffers, offsets, strict=True) if pair[0].address and pair[0].size]
        self._before = [_digest(buffer.address, buffer.size) for buffer, _offset in self._placed]

    def check(self, slot: Slot) -> None:
        """Raise TornSnapshot, which names the state, when a buffer changed while it was copied."""
        torn = [
            buffer.where
            for (buffer, offset), before in zip(self._placed, self._before, strict=True)
            if _digest(slot.address + offset, buffer.size) != before
        ]
        if torn:
            more = f" and {len(torn) - 1} more" if len(torn) > 1 else ""
            raise TornSnapshot(f"{torn[0]}{more} changed while it was copied beside training")


def _digest(address: int, size: int) -> bytes:
    return hashlib.blake2b((ctypes.c_char * size).from_address(address), digest_size=16).digest()
