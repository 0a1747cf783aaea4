"""How is a state, a tree of plain Python values and arrays, written as JSON beside raw buffers?

JSON null, true, numbers, text and arrays stand for themselves (an array is a list). Everything else is an object
with one key that names its kind. A value comes back as the same type, or it is refused with its place in the
state: nothing is turned silently into something else, and nothing is pickled.
"""

import ctypes
import struct
from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from . import arrays, parts
from .arrays import Buffer, Known
from .errors import CorruptSnapshot, UnsupportedState

MAX_DEPTH = 100
_EXACT_INT = 2**53  # beyond it readers of JSON differ, and Python limits the digits it converts
_MAPPINGS: dict[type, str] = {dict: "dict", OrderedDict: "odict", Counter: "counter"}


@dataclass(frozen=True)
class Early:
    """What changes before the next update: beginnings of places in the state, and addresses of arrays."""

    places: tuple[str, ...] = ()
    addresses: frozenset[int] = frozenset()

    def holds(self, buffer: Buffer) -> bool:
        """Return whether a buffer is part of it."""
        return buffer.address in self.addresses or (bool(self.places) and buffer.where.startswith(self.places))


class Encoder:
    """Turns one state into a JSON tree and the list of raw buffers the tree refers to by number.

    Memory that several values share is one buffer: tied weights are stored once and come back tied.
    """

    def __init__(
        self, early: Early | None = None, named: parts.Named = parts.NOTHING, known: Known | None = None
    ) -> None:
        """`early`: what in the state changes before the program's next update; `named`: the parts of its states.

        `known`: what the last save saw.
        """
        self.buffers: list[Buffer] = []
        self._known = known or Known()
        self._known.begin()
        self._tensor_type = getattr(arrays.loaded("torch"), "Tensor", None)
        self.parts: list[str] = []
        self._early = early or Early()
        self._named = named
        self._part = parts.SHARDED
        self._shared: dict[tuple[int, int], int] = {}

    def encode(self, value: Any, where: str = "state", depth: int = 0) -> Any:
        """Return the JSON form. Raises UnsupportedState, which names the place of the value."""
        if depth > MAX_DEPTH:
            raise UnsupportedState(f"{where[:200]} is nested more than {MAX_DEPTH} levels deep, or contains itself")
        if value is None or isinstance(value, bool):
            return value
        plain = _PLAIN.get(type(value))
        if plain is not None:
            return plain(value)
        if type(value) in (list, tuple):
            items = [self.encode(item, f"{where}[{index}]", depth + 1) for index, item in enumerate(value)]
            return items if type(value) is list else {"tuple": items}
        if type(value) in _MAPPINGS:
            return self._mapping(value, where, depth)
        return self._raw(value, where)

    def _mapping(self, value: Any, where: str, depth: int) -> Any:
        items = []
        for key, item in value.items():
            place = f"{where}[{key!r}]"
            if depth == 0:
                self._part = self._named.by_name.get(key, parts.SHARDED)
            plain = type(key) is str and key.isascii()  # nearly all are
            name = key if plain else self.encode(key, f"the key {place}", depth + 1)
            if type(item) is self._tensor_type:  # nearly all that takes time: straight to the point
                items.append([name, self._tensor(item, place, spread=False)])
            else:
                items.append([name, self.encode(item, place, depth + 1)])
        node = {_MAPPINGS[type(value)]: items}
        versions = getattr(value, "_metadata", None)  # torch keeps the versions of modules there
        if versions is not None:
            node["metadata"] = self.encode(versions, f"{where}._metadata", depth + 1)
        return node

    def _raw(self, value: Any, where: str) -> Any:
        if arrays.is_tensor(value):
            return self._tensor(value, where, spread=parts.is_spread(value))
        if type(value) in (bytes, bytearray):
            return {type(value).__name__: self._plain(bytes(value), where)}
        if arrays.is_ndarray(value):
            descr = arrays.described(value.dtype, where)
            axes, buffer = arrays.ndarray_buffer(value, where)
            return {"ndarray": self._add(buffer), "dtype": descr, "shape": list(value.shape), "axes": axes}
        if arrays.is_numpy_scalar(value):
            descr = arrays.described(value.dtype, where)
            return {"scalar": self._plain(value.tobytes(), where), "dtype": descr}
        raise UnsupportedState(f"{where} is a {type(value).__module__}.{type(value).__qualname__}")

    def _tensor(self, value: Any, where: str, *, spread: bool) -> dict[str, Any]:
        node, buffer = self._known.buffer(value, where)
        node["tensor"] = self._add(buffer, spread=spread)
        return node

    def _plain(self, data: bytes, where: str) -> int:
        """Add bytes that nobody else can change."""
        address = ctypes.cast(ctypes.c_char_p(data), ctypes.c_void_p).value if data else 0
        return self._add(Buffer(len(data), address or 0, data, where))

    def _add(self, buffer: Buffer, *, spread: bool = False) -> int:
        if buffer.lazy and self._early.holds(buffer):
            buffer = replace(buffer, lazy=False)
        number = len(self.buffers)
        if buffer.lazy and buffer.address:
            number = self._shared.setdefault((buffer.address, buffer.size), number)
        if number == len(self.buffers):
            self.buffers.append(buffer)
            self.parts.append(parts.SHARDED if spread else self._part)
        return number


class Decoder:
    """Turns the JSON tree and the buffers back into the state."""

    def __init__(self, buffers: Sequence[memoryview], live: Mapping[int, Any] | None = None) -> None:
        """`live`: values of the program that hold what a node says already, by the identity of the node."""
        self._buffers = buffers
        self._live = live or {}

    def decode(self, node: Any) -> Any:
        """Return the value. Raises CorruptSnapshot for a tree this version cannot have written."""
        if isinstance(node, list):
            return [self.decode(item) for item in node]
        if not isinstance(node, dict):
            return node
        kind = next(iter(node), "")
        if id(node) in self._live:
            return self._live[id(node)]
        reader = _READERS.get(kind)
        if reader is None:
            raise CorruptSnapshot(f"the snapshot holds a value of the unknown kind {kind!r}")
        return reader(self, node)

    def _mapping(self, node: dict[str, Any]) -> Any:
        kind = next(iter(node))
        made: Any = next(known for known, name in _MAPPINGS.items() if name == kind)()
        for key, item in node[kind]:
            made[self.decode(key)] = self.decode(item)
        if "metadata" in node:
            made._metadata = self.decode(node["metadata"])
        return made

    def _tuple(self, node: dict[str, Any]) -> Any:
        return tuple(self.decode(item) for item in node["tuple"])

    def _ndarray(self, node: dict[str, Any]) -> Any:
        return arrays.ndarray_from(self._buffers[node["ndarray"]], node["dtype"], node["shape"], node["axes"])

    def _tensor(self, node: dict[str, Any]) -> Any:
        return arrays.tensor_from(self._buffers[node["tensor"]], node["dtype"], node["shape"], node["axes"])

    def _scalar(self, node: dict[str, Any]) -> Any:
        return arrays.ndarray_from(self._buffers[node["scalar"]], node["dtype"], [1], [0])[0]

    def _bytes(self, node: dict[str, Any]) -> Any:
        return self._buffers[node["bytes"]].tobytes()

    def _bytearray(self, node: dict[str, Any]) -> Any:
        return bytearray(self._buffers[node["bytearray"]])


def _int(value: int) -> Any:
    return value if abs(value) < _EXACT_INT else {"int": hex(value)}


def _float(value: float) -> Any:
    finite = value - value == 0.0
    return value if finite else {"float": struct.pack("<d", value).hex()}


def _str(value: str) -> Any:
    try:
        value.encode()
    except UnicodeEncodeError:  # half a surrogate pair, as in a file name that is not UTF-8
        return {"str": value.encode("utf-8", "surrogatepass").hex()}
    return value


def _complex(value: complex) -> Any:
    return {"complex": struct.pack("<dd", value.real, value.imag).hex()}


_PLAIN: dict[type, Callable[[Any], Any]] = {int: _int, float: _float, str: _str, complex: _complex}

_READERS: dict[str, Callable[[Decoder, dict[str, Any]], Any]] = {
    "tuple": Decoder._tuple,
    "dict": Decoder._mapping,
    "odict": Decoder._mapping,
    "counter": Decoder._mapping,
    "ndarray": Decoder._ndarray,
    "tensor": Decoder._tensor,
    "scalar": Decoder._scalar,
    "bytes": Decoder._bytes,
    "bytearray": Decoder._bytearray,
    "int": lambda _decoder, node: int(node["int"], 16),
    "float": lambda _decoder, node: struct.unpack("<d", bytes.fromhex(node["float"]))[0],
    "str": lambda _decoder, node: bytes.fromhex(node["str"]).decode("utf-8", "surrogatepass"),
    "complex": lambda _decoder, node: complex(*struct.unpack("<dd", bytes.fromhex(node["complex"]))),
}
