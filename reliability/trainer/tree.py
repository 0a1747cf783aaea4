"""How is a state, a tree of plain Python values and arrays, written as JSON beside raw buffers?

JSON null, true, numbers, text and arrays stand for themselves (an array is a list). Everything else is an object
with one key that names its kind. A value comes back as the same type, or it is refused with its place in the
state: nothing is turned silently into something else, and nothing is pickled.
"""

import ctypes
import struct
from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from . import arrays, parts
from .arrays import UNSEEN, Buffer, Known, under
from .errors import CorruptSnapshot, UnsupportedState

MAX_DEPTH = 100
_EXACT_INT = 2**53  # beyond it readers of JSON differ, and Python limits the digits it converts
_MAPPINGS: dict[type, str] = {dict: "dict", OrderedDict: "odict", Counter: "counter"}


@dataclass(frozen=True)
class Early:
    """What changes before the next update: registered states by name, and addresses of arrays in the others."""

    names: frozenset[str] = frozenset()
    addresses: frozenset[int] = frozenset()


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
        self._tensor_types = arrays.tensor_types()
        self.parts: list[str] = []
        self._early = early or Early()
        self._named = named
        self._part = parts.SHARDED
        self._changes = False  # whether the registered state that is being encoded does before the next update
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
        node = {_MAPPINGS[type(value)]: self._items(value, where, depth) if depth else self._states(value, where)}
        versions = getattr(value, "_metadata", None)  # torch keeps the versions of modules there
        if versions is not None:
            node["metadata"] = self.encode(versions, f"{where}._metadata", depth + 1)
        return node

    def _states(self, value: Any, where: str) -> list[Any]:
        """The registered states by name; each is of its own part."""
        items = []
        for key, item in value.items():
            self._part = self._named.by_name.get(key, parts.SHARDED)
            self._changes = key in self._early.names
            items += self._items({key: item}, where, 0)
        return items

    def _items(self, value: Any, where: str, depth: int) -> list[Any]:
        """The keys and values of a mapping. Nearly all that takes time are tensors that lie as they did: no calls."""
        items, buffers, before, now = [], self.buffers, self._known.before, self._known.now
        tensor_types, changes, shared = self._tensor_types, self._changes, self._shared
        early = self._early.addresses
        for key, item in value.items():
            name = key if type(key) is str and key.isascii() else self._key(key, where, depth)
            if type(item) not in tensor_types:
                items.append([name, self.encode(item, under(where, key), depth + 1)])
                continue
            seen = before.get(id(item), UNSEEN)
            alive, address, shape, dtype, node, size, lazy = seen
            number = len(buffers)
            if (
                alive() is item
                and not changes
                and item.data_ptr() == address
                and item.dtype is dtype
                and item.shape == shape
                and item.is_contiguous()
                and node["tensor"] == number
                and not (lazy and (address in early or shared.setdefault((address, size), number) != number))
            ):
                now[id(item)] = seen
                buffers.append(Buffer(size, address, item, (where, key), lazy))
                self.parts.append(self._part)
            else:
                node = self._tensor(item, where, key)
            items.append([name, node])
        return items

    def _key(self, key: Any, where: str, depth: int) -> Any:
        return self.encode(key, f"the key {under(where, key)}", depth + 1)

    def _raw(self, value: Any, where: str) -> Any:
        if arrays.is_tensor(value):
            node, buffer = arrays.tensor_buffer(value, where)
            node["tensor"] = self._add(buffer, spread=parts.is_spread(value))
            return node
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

    def _tensor(self, value: Any, where: str, key: object) -> dict[str, Any]:
        node, buffer = arrays.tensor_buffer(value, under(where, key))
        lazy = buffer.lazy
        node["tensor"] = self._add(buffer)
        if buffer.lazy is lazy:
            self._known.keep(value, node, buffer)
        return node

    def _plain(self, data: bytes, where: str) -> int:
        """Add bytes that nobody else can change."""
        address = ctypes.cast(ctypes.c_char_p(data), ctypes.c_void_p).value if data else 0
        return self._add(Buffer(len(data), address or 0, data, where))

    def _add(self, buffer: Buffer, *, spread: bool = False) -> int:
        if buffer.lazy and (self._changes or buffer.lies_at in self._early.addresses):
            buffer.lazy = False
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
