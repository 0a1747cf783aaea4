"""What is saved and trained: tensors as a small transformer and its optimizer have them, and a step that uses them."""

import ctypes
import mmap
import os
import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

MB = 2**20
POPULATE_WRITE = 23
_SMALL, _MIDDLE, _LARGE = 32, 32, 2


def build(size_mb: int) -> dict[str, Any]:
    """Return 66 parameters with two moments each, `size_mb` in all, and the small things that go with them."""
    floats = size_mb * MB // 4 // 3
    left = floats - _SMALL * 1024
    large = int(left * 0.16) // _LARGE
    middle = (left - large * _LARGE) // _MIDDLE
    sizes = [large] * _LARGE + [middle] * _MIDDLE + [1024] * _SMALL
    generator = torch.Generator().manual_seed(1)
    model, moments = {}, {}
    for number, size in enumerate(sizes):
        model[f"layer{number}.weight"] = torch.rand(size, generator=generator)
        first, second = torch.rand(size, generator=generator), torch.rand(size, generator=generator)
        moments[number] = {"step": torch.tensor(1.0), "exp_avg": first, "exp_avg_sq": second}
    group = {"lr": 1e-3, "betas": [0.9, 0.95], "params": list(range(len(sizes)))}
    return {"model": model, "optimizer": {"state": moments, "param_groups": [group]}, "rng": torch.get_rng_state()}


def tensors(state: Any) -> Iterator[torch.Tensor]:
    """Yield all tensors of a nested state, in order."""
    if torch.is_tensor(state):
        yield state
    elif isinstance(state, dict):
        for value in state.values():
            yield from tensors(value)
    elif isinstance(state, list | tuple):
        for value in state:
            yield from tensors(value)


def named(state: Any, prefix: str = "") -> Iterator[tuple[str, torch.Tensor]]:
    """Yield all tensors with the place where they are."""
    if torch.is_tensor(state):
        yield prefix, state
    elif isinstance(state, dict):
        for key, value in state.items():
            yield from named(value, f"{prefix}.{key}" if prefix else str(key))


class Training:
    """A step that reads for `compute_s`, as forward and backward do, and then changes every tensor in place."""

    def __init__(self, state: dict[str, Any], compute_s: float) -> None:
        self._changed = [tensor for tensor in tensors(state) if tensor.is_floating_point() and tensor.numel() > 1]
        self._a, self._b = torch.rand(384, 384), torch.rand(384, 384)
        self._times = max(1, int(compute_s / min(self._multiply_s(20) / 20 for _ in range(10))))
        self.before_update: Callable[[], object] = lambda: None

    def _multiply_s(self, times: int) -> float:
        """Return how long some multiplications take. The fastest of several tries is that of a quiet moment."""
        began = time.perf_counter()
        for _ in range(times):
            torch.mm(self._a, self._b)
        return time.perf_counter() - began

    def step(self) -> tuple[float, float]:
        """Return (seconds of the step, seconds of it spent waiting for a save)."""
        began = time.perf_counter()
        for _ in range(self._times):
            torch.mm(self._a, self._b)
        waits = time.perf_counter()
        self.before_update()
        waited = time.perf_counter() - waits
        for tensor in self._changed:
            tensor.mul_(1.0000001)
        return time.perf_counter() - began, waited

    def base_s(self, steps: int = 3) -> float:
        """Return the time of a step while nothing is saved."""
        return statistics.median(self.step()[0] for _ in range(steps))


class Reference:
    """What every stall is measured against: the same tensors copied by the C library into touched shared memory."""

    def __init__(self, state: dict[str, Any], folder: Path) -> None:
        self._tensors = list(tensors(state))
        self.bytes = sum(tensor.nbytes for tensor in self._tensors)
        path = folder / f"reference-{os.getpid()}"
        size = self.bytes + 64 * len(self._tensors)
        with path.open("wb+") as file:
            os.posix_fallocate(file.fileno(), 0, size)
            self._map = mmap.mmap(file.fileno(), size)
        path.unlink()
        self._map.madvise(POPULATE_WRITE)
        self._address = ctypes.addressof(ctypes.c_char.from_buffer(self._map))

    def memcpy_s(self, times: int = 3) -> float:
        """Return the median time of a copy by one thread."""
        return statistics.median(self._copy() for _ in range(times))

    def _copy(self) -> float:
        began, at = time.perf_counter(), self._address
        for tensor in self._tensors:
            ctypes.memmove(at, tensor.data_ptr(), tensor.nbytes)
            at += tensor.nbytes + -tensor.nbytes % 64
        return time.perf_counter() - began
