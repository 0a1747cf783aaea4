"""What is added up over a shard so that it can be checked while it is copied, at the speed of memory?

For every chunk of 8 MiB two sums modulo 2**64 over its little-endian words of 64 bits: one over the words as they lie,
one over those that begin four bytes later in each piece of 512 KiB. A changed bit changes the first; a stretch that
became zero, or any other constant, changes one of them whatever was there, because each half word is the low half of
a word in one of the two. Against everything else there is the digest, which NumPy cannot compute fast.
"""

import ctypes
import sys
from typing import Any

CHUNK_BYTES = 8 * 2**20
PIECE_BYTES = 512 * 2**10
_MASK = 2**64 - 1


class Sums:
    """Adds up one chunk after the other, in pieces that still lie in the processor's cache."""

    def __init__(self) -> None:
        self._add = _adder()

    def of(self, address: int, size: int) -> tuple[int, int]:
        """Return both sums over `size` bytes at an address; `size` is a multiple of 8."""
        straight = shifted = 0
        for at in range(0, size, PIECE_BYTES):
            length = min(PIECE_BYTES, size - at)
            straight += self._add(address + at, length)
            if length > 8:
                shifted += self._add(address + at + 4, length - 8)
        return straight & _MASK, shifted & _MASK


def text_of(sums: tuple[int, int]) -> str:
    """Return both sums as a commit record holds them: 32 hexadecimal digits."""
    return f"{sums[0]:016x}{sums[1]:016x}"


def _adder() -> Any:
    """Return a function (address, bytes) -> sum. NumPy adds fastest; torch does it where there is no NumPy."""
    for module, make in (("numpy", _numpy_adder), ("torch", _torch_adder)):
        if module in sys.modules:
            return make(sys.modules[module])
    return _plain  # a state without arrays is small


def _numpy_adder(numpy: Any) -> Any:
    add, words, frombuffer = numpy.add.reduce, numpy.uint64, numpy.frombuffer

    def adder(address: int, size: int) -> int:
        raw = (ctypes.c_char * size).from_address(address)
        return int(add(frombuffer(raw, dtype=words)))

    return adder


def _torch_adder(torch: Any) -> Any:
    def adder(address: int, size: int) -> int:
        raw = (ctypes.c_char * size).from_address(address)
        return int(torch.frombuffer(raw, dtype=torch.int64).sum()) & _MASK

    return adder


def _plain(address: int, size: int) -> int:
    raw = (ctypes.c_char * size).from_address(address)
    return sum(memoryview(raw).cast("B").cast("Q"))
