"""How are arrays and tensors taken apart into raw bytes, and put together again?

NumPy and torch are used only when the program has imported them itself: this module looks them up and never
imports them on its own. Bytes are stored in the order in which they lie in memory (`axes`), because a library
may add numbers up in another order for another layout, and a restored run must repeat every bit.
"""

import ctypes
import sys
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from .errors import CorruptSnapshot, StateMismatch, UnsupportedState

ALIGNMENT = 64


@dataclass(slots=True)
class Buffer:
    """Bytes that are to be copied: `size` bytes at `address`, alive as long as `owner` is.

    place: where they are in the state, or (place of a mapping, key): few are ever asked where they are.
    lazy: they are the program's own and stay as they are until its next update, so that copying may wait.
    device: a tensor on another device, which has no address here; its bytes are copied by its own library.
    """

    size: int
    address: int
    owner: Any
    place: str | tuple[str, Any]
    lazy: bool = False
    device: Any = None

    @property
    def lies_at(self) -> int:
        """Where the program changes them, on whatever device."""
        return self.address if self.device is None else int(self.device.data_ptr())

    @property
    def where(self) -> str:
        """Where they are in the state, for people."""
        return self.place if isinstance(self.place, str) else under(*self.place)


def under(where: str, key: object) -> str:
    """Return the place of what a mapping holds under a key."""
    return f"{where}[{key!r}]"


LAZY_BYTES = 64 * 2**10
"""What is smaller is copied at once: it takes no longer than to arrange for later."""


def loaded(module: str) -> Any:
    """Return a module the program has already imported, or None."""
    return sys.modules.get(module)


def needed(module: str) -> Any:
    """Return a module that the state needs; raise StateMismatch when the program has not imported it."""
    found = loaded(module)
    if found is None:
        raise StateMismatch(
            f"the snapshot holds {module} values, but the program has not imported {module}",
            hint=f"Import {module} before run.restore().",
        )
    return found


def aligned_buffer(size: int) -> memoryview:
    """Return `size` writable zero bytes whose address is a multiple of 64, as array libraries allocate them."""
    if size == 0:
        return memoryview(bytearray())
    raw = bytearray(size + ALIGNMENT)
    address = ctypes.addressof(ctypes.c_char.from_buffer(raw))
    start = -address % ALIGNMENT
    return memoryview(raw)[start : start + size]


def memory_order(shape: Sequence[int], strides: Sequence[int]) -> list[int]:
    """Return the axes from the slowest to the fastest in memory; [0, 1, ...] is C order."""
    wide = [axis for axis in range(len(shape)) if shape[axis] > 1]
    ordered = sorted(wide, key=lambda axis: -abs(strides[axis]))
    if ordered == wide:
        return list(range(len(shape)))
    return ordered + [axis for axis in range(len(shape)) if shape[axis] <= 1]


def inverse(axes: Sequence[int]) -> list[int]:
    """Return the permutation that undoes `axes`."""
    back = [0] * len(axes)
    for position, axis in enumerate(axes):
        back[axis] = position
    return back


def is_ndarray(value: object) -> bool:
    """Return whether it is a plain NumPy array (a subclass would lose what it adds)."""
    numpy = loaded("numpy")
    return numpy is not None and type(value) in (numpy.ndarray, numpy.memmap)


def is_numpy_scalar(value: object) -> bool:
    """Return whether it is a NumPy scalar such as numpy.float32(1)."""
    numpy = loaded("numpy")
    return numpy is not None and isinstance(value, numpy.generic)


def tensor_types() -> tuple[type, ...]:
    """Return the types of plain torch tensors; none when the program has not imported torch."""
    torch = loaded("torch")
    return () if torch is None else (torch.Tensor, torch.nn.Parameter)


def is_tensor(value: object) -> bool:
    """Return whether it is a plain torch tensor, parameter or buffer, or a tensor spread over ranks."""
    kinds, kind = tensor_types(), type(value)
    return kind in kinds or (kind.__name__ in _KINDS and isinstance(value, kinds))


_KINDS = frozenset({"Buffer", "DTensor"})


def local(value: Any) -> Any:
    """Return this rank's own part of a tensor that is spread over ranks; any other tensor as it is."""
    part = value.to_local() if type(value).__name__ == "DTensor" else value
    wait = getattr(part, "wait", None)  # a collective that is still under way
    return wait() if type(part).__name__ == "AsyncCollectiveTensor" and wait else part


_descriptions: dict[Any, Any] = {}


def described(dtype: Any, where: str) -> Any:
    """Return `dtype_name` of a dtype, remembered: checking it takes longer than copying a small array."""
    known = _descriptions.get(dtype)
    if known is None or dtype.fields is not None:
        known = dtype_name(dtype, where)
        _descriptions[dtype] = known
    return known


def dtype_name(dtype: Any, where: str) -> Any:
    """Return a JSON form of a NumPy dtype, checked to give the same dtype back."""
    numpy = needed("numpy")
    refused = UnsupportedState(f"{where} has the data type {dtype}, which cannot be stored")
    if dtype.hasobject or dtype.kind == "T" or dtype.metadata is not None:
        raise refused
    try:
        descr = numpy.lib.format.dtype_to_descr(dtype)
        same = numpy.lib.format.descr_to_dtype(descr) == dtype
    except (TypeError, ValueError) as error:
        raise refused from error
    if not same:
        raise refused
    return descr


def dtype_from(descr: Any) -> Any:
    """Return the NumPy dtype that `dtype_name` described. JSON has made lists of its tuples."""
    numpy = needed("numpy")
    return numpy.lib.format.descr_to_dtype(_tuples(descr))


def _tuples(descr: Any) -> Any:
    """Give a structured description its tuples back: [(name, type, shape), ...], nested."""
    if not isinstance(descr, list):
        return descr
    fields = []
    for name, kind, *shape in descr:
        titled = tuple(name) if isinstance(name, list) else name
        fields.append((titled, _tuples(kind), *(tuple(part) for part in shape)))
    return fields


def ndarray_buffer(value: Any, where: str) -> tuple[list[int], Buffer]:
    """Return (axes, bytes in memory order). No copy is made of an array without gaps."""
    numpy = needed("numpy")
    axes = memory_order(value.shape, value.strides)
    flat = numpy.ascontiguousarray(value if axes == list(range(value.ndim)) else value.transpose(axes))
    lazy = flat.nbytes >= LAZY_BYTES and (flat is value or flat.base is value or flat.base is value.base is not None)
    if flat.nbytes == 0:
        return axes, Buffer(0, 0, None, where)
    return axes, Buffer(flat.nbytes, flat.__array_interface__["data"][0], flat, where, lazy)


def ndarray_from(data: memoryview, descr: Any, shape: list[int], axes: list[int]) -> Any:
    """Return the array; its memory is `data` itself."""
    numpy = needed("numpy")
    dtype = dtype_from(descr)
    stored = [shape[axis] for axis in axes]
    flat = numpy.frombuffer(data, dtype=dtype) if len(data) else numpy.zeros(_count(shape), dtype=dtype)
    return flat.reshape(stored).transpose(inverse(axes))


_names: dict[Any, str] = {}
"""The names of data types whose tensors can be stored, remembered: a save asks for hundreds."""


UNSEEN: tuple[Any, ...] = (lambda: None, 0, None, None, {}, 0, False)
"""What `Known` has of a tensor that it has not seen: it fits none."""


class Known:
    """Tensors of the save before, so that the same ones are described faster. Holds none of them alive.

    By identity: (reference, address, shape, dtype, what describes it, size, lazy). What is remembered of a tensor
    counts only while it still is that object and lies where and as it lay.
    """

    def __init__(self) -> None:
        self.before: dict[int, tuple[Any, ...]] = {}
        self.now: dict[int, tuple[Any, ...]] = {}

    def begin(self) -> None:
        """Begin a save: what the one before the last saw is forgotten."""
        self.before, self.now = self.now, {}

    def keep(self, value: Any, node: dict[str, Any], buffer: Buffer) -> None:
        """Remember how a tensor was described, unless a copy of it was taken."""
        if buffer.owner is value and buffer.device is None and value.is_contiguous():
            kept = (weakref.ref(value), buffer.address, value.shape, value.dtype, node, buffer.size, buffer.lazy)
            self.now[id(value)] = kept


def tensor_buffer(value: Any, where: str) -> tuple[dict[str, Any], Buffer]:
    """Return (what describes it, its bytes in memory order); of a tensor that is spread over ranks the local part."""
    torch = needed("torch")
    if type(value).__name__ == "DTensor":
        value = local(value)
    name = _names.get(value.dtype) or _name(value, where)
    if value.layout is not torch.strided:
        raise UnsupportedState(f"{where} is a sparse tensor")
    shape, size = list(value.shape), value.nbytes
    if size and value.is_cpu and value.is_contiguous() and not (value.is_neg() or value.is_conj()):
        axes = [0] if len(shape) == 1 else list(range(len(shape)))
        buffer = Buffer(size, value.data_ptr(), value, where, size >= LAZY_BYTES)
    else:
        axes, buffer = _rearranged(value, where, size)
    return {"tensor": 0, "dtype": name, "shape": shape, "axes": axes}, buffer


def _name(value: Any, where: str) -> str:
    if value.is_quantized:
        raise UnsupportedState(f"{where} is a quantized tensor")
    return _names.setdefault(value.dtype, str(value.dtype).removeprefix("torch."))


def _rearranged(value: Any, where: str, size: int) -> tuple[list[int], Buffer]:
    """A copy in memory order, where that is not how the tensor lies; on another device the copy stays there."""
    if value.is_meta:
        raise UnsupportedState(f"{where} is a meta tensor, which has no content")
    axes = memory_order(value.shape, value.stride())
    dense = value.detach().resolve_conj().resolve_neg().permute(axes).contiguous()
    if size == 0:
        return axes, Buffer(0, 0, None, where)
    if not dense.is_cpu:
        return axes, Buffer(size, 0, dense, where, True, dense)
    lazy = size >= LAZY_BYTES and dense.data_ptr() == value.data_ptr()
    return axes, Buffer(size, dense.data_ptr(), dense, where, lazy)


def tensor_from(data: memoryview, name: str, shape: list[int], axes: list[int]) -> Any:
    """Return the tensor on the CPU; its memory is `data` itself."""
    torch = needed("torch")
    dtype = getattr(torch, name, None)
    if not isinstance(dtype, torch.dtype):
        raise CorruptSnapshot(f"this version of torch has no data type {name!r}")
    stored = [shape[axis] for axis in axes]
    flat = torch.frombuffer(data, dtype=dtype) if len(data) else torch.empty(_count(shape), dtype=dtype)
    return flat.reshape(stored).permute(inverse(axes))


def _count(shape: Sequence[int]) -> int:
    count = 1
    for length in shape:
        count *= length
    return count
