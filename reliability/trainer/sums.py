"""What is added up over a shard so that it can be checked while it is copied, at the speed of memory?

For every chunk of 8 MiB two sums modulo 2**64 over its little-endian words of 64 bits: one over the words as they lie,
one over those that begin four bytes later in each piece of 512 KiB. A changed bit changes the first; a stretch that
became zero, or any other constant, changes one of them whatever was there, because each half word is the low half of
a word in one of the two. Against everything else there is the digest, which NumPy cannot compute fast.
"""

import ctypes
import sys
from collections.abc import Callable
from typing import Any

CHUNK_BYTES = 8 * 2**20
PIECE_BYTES = 512 * 2**10
_MASK = 2**64 - 1


class Sums:
    """Adds up one chunk that lies at an address, piece after piece while it is in the processor's cache.

    With `thorough` False only the first sum is formed: enough for what can befall memory, and half the work.
    """

    def __init__(self, address: int, size: int, *, thorough: bool = True) -> None:
        self._size = size
        self._thorough = thorough
        self._straight = self._shifted = 0
        self._add = _adder(address, size)

    def add(self, at: int) -> None:
        """Take in the piece that begins at offset `at`, a multiple of the piece's size."""
        end = min(at + PIECE_BYTES, self._size)
        self._straight += self._add(at, end)
        if self._thorough and end - at > 8:
            self._shifted += self._add(at + 4, end - 4)

    def add_all(self) -> None:
        """Take in the whole chunk; where only the first sum is formed, at once: it is the same in any pieces."""
        if self._thorough:
            for at in range(0, self._size, PIECE_BYTES):
                self.add(at)
        else:
            self._straight += self._add(0, self._size)

    def text(self) -> str:
        """Return both sums as a commit record holds them: 32 hexadecimal digits."""
        return f"{self._straight & _MASK:016x}{self._shifted & _MASK:016x}"

    def agrees(self, expected: str) -> bool:
        """Whether these are the sums of a commit record, as far as they were formed."""
        found = self.text()
        return found == expected if self._thorough else found[:16] == expected[:16]


def _adder(address: int, size: int) -> Callable[[int, int], int]:
    """Return a function (from, to) -> sum. NumPy adds fastest; torch does it where there is no NumPy."""
    raw = (ctypes.c_char * size).from_address(address)
    numpy, torch = sys.modules.get("numpy"), sys.modules.get("torch")
    if numpy is not None:
        return _numpy_adder(numpy, raw, size)
    if torch is not None:
        return lambda start, end: int(torch.frombuffer(raw, dtype=torch.uint8)[start:end].view(torch.int64).sum())
    view = memoryview(raw).cast("B")
    return lambda start, end: sum(view[start:end].cast("Q"))  # a state without arrays is small


def _numpy_adder(numpy: Any, raw: Any, size: int) -> Callable[[int, int], int]:
    add = numpy.add.reduce
    straight = numpy.frombuffer(raw, dtype=numpy.uint64)
    shifted = numpy.frombuffer(raw, dtype=numpy.uint64, offset=4, count=size // 8 - 1) if size > 8 else straight

    def adder(start: int, end: int) -> int:
        words = shifted if start % 8 else straight
        return int(add(words[start // 8 : (end - start % 8) // 8]))

    return adder
