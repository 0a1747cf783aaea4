"""Does this machine compute what every healthy machine computes? (silent data corruption, M4)

Each round hashes three things: a chain of wrap-around integer arithmetic, a chain of floating-point arithmetic, and a
pattern that lies in memory all the time. Intermediate values are hashed too, because a wrong bit may cancel out
later. Rounds go over the processor's cores in turn. Digests are equal on machines with the same processor model and
the same algorithm only, so the answer's `cpu_model` names both.
"""

import array
import hashlib
import importlib
import os
import time
from collections.abc import Callable, Mapping
from typing import Any

from reliability.agent.collectors import host
from reliability.agent.probes import request

PATTERN_BYTES = 32 * 2**20
VECTOR_STEPS, PLAIN_STEPS = 12, 24
LEAST_SIZE, MOST_SIZE = 8, 2048
_MASK = 2**64 - 1
_MULTIPLIER, _INCREMENT = 6364136223846793005, 1442695040888963407
_PATTERN_WORD = 0x9E3779B97F4A7C15

Compute = Callable[[int, int, Callable[[bytes], None]], None]


def run(wanted: Mapping[str, Any]) -> dict[str, Any]:
    """Return the digest of each round."""
    size = int(wanted["size"])
    if not LEAST_SIZE <= size <= MOST_SIZE:
        return {"error": f"size {size} is not between {LEAST_SIZE} and {MOST_SIZE}"}
    algorithm, compute = _algorithm()
    pattern = _pattern(int(wanted["seed"]))
    address, _length = pattern.buffer_info()
    request.note({"pid": os.getpid(), "address": address, "bytes": PATTERN_BYTES, "algorithm": algorithm})
    began = time.monotonic()
    cores = sorted(os.sched_getaffinity(0))
    digests = []
    for number in range(int(wanted["rounds"])):
        os.sched_setaffinity(0, {cores[number % len(cores)]})
        digests.append(_round(compute, int(wanted["seed"]), size, pattern))
    return {
        "digests": digests,
        "cpu_model": f"{host.cpu_model()} [{algorithm}]",
        "algorithm": algorithm,
        "cores": [cores[number % len(cores)] for number in range(len(digests))],
        "seconds": round(time.monotonic() - began, 3),
    }


def _round(compute: Compute, seed: int, size: int, pattern: "array.array[int]") -> str:
    hasher = hashlib.blake2b(digest_size=16)
    compute(seed, size, hasher.update)
    hasher.update(memoryview(pattern).cast("B"))
    return hasher.hexdigest()


def _algorithm() -> tuple[str, Compute]:
    """Return the NumPy chains where NumPy is there: they reach the vector units. Otherwise plain Python.

    One thread, set before NumPy is loaded: the order of additions must be the same in every run.
    """
    os.environ.update(dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1"))
    try:
        numpy = importlib.import_module("numpy")
    except ImportError:
        return "plain-1", _plain
    return f"numpy-1 {numpy.__version__}", lambda seed, size, update: _vectors(numpy, seed, size, update)


def _vectors(numpy: Any, seed: int, size: int, update: Callable[[bytes], None]) -> None:
    with numpy.errstate(over="ignore"):
        start = numpy.arange(size * size, dtype=numpy.uint64).reshape(size, size) + numpy.uint64(seed & _MASK)
        matrix = start * numpy.uint64(_MULTIPLIER) + numpy.uint64(_INCREMENT)
        integers = matrix.copy()
        floats = (matrix >> numpy.uint64(40)).astype(numpy.float32) / numpy.float32(2**24) - numpy.float32(0.5)
        weights = floats / numpy.float32(size**0.5)
        for _ in range(VECTOR_STEPS):
            integers = integers @ matrix + (integers >> numpy.uint64(17))
            floats = floats @ weights
            floats = floats / (numpy.float32(1) + numpy.abs(floats)) + numpy.float32(0.125)
            update(integers.tobytes())
            update(floats.tobytes())


def _plain(seed: int, size: int, update: Callable[[bytes], None]) -> None:
    """Only operations whose result the floating-point standard fixes: machines may differ in anything else."""
    state, value = seed & _MASK, 0.5
    values = array.array("d", bytes(8 * size))
    words = array.array("Q", bytes(8 * size))
    for _ in range(PLAIN_STEPS * max(size // 4, 1)):
        for index in range(size):
            state = (state * _MULTIPLIER + _INCREMENT) & _MASK
            words[index] = (words[index] ^ (state >> 29)) * 0xBF58476D1CE4E5B9 & _MASK
            value = value / (1.0 + abs(value)) + (state >> 40) / 2**24 - 0.25
            values[index] = values[index] * 0.5 + value
        update(words.tobytes())
        update(values.tobytes())


def _pattern(seed: int) -> "array.array[int]":
    block = array.array("Q", ((seed + index) * _PATTERN_WORD & _MASK for index in range(4096)))
    return block * (PATTERN_BYTES // (8 * len(block)))


def main() -> None:
    """Run the probe."""
    _mode, wanted = request.take(("run",))
    request.answer(run(wanted))


if __name__ == "__main__":
    main()
