"""Which arrays of the program can take what a snapshot holds, in place?

The tree of the snapshot and the state as it is now are walked side by side. An array is filled in place when it has
the type, shape and memory order of what was saved, lies on the CPU and nowhere has gaps. What does not fit is left to
the caller, which gets it as a new array.
"""

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

from . import arrays
from .errors import TrainerError
from .tree import Decoder, Encoder


class Placement:
    """addresses: (address, bytes) by number of the buffer; values: the program's own array by identity of its node."""

    def __init__(self) -> None:
        self.addresses: dict[int, tuple[int, int]] = {}
        self.values: dict[int, Any] = {}
        self.numbers: dict[int, int] = {}


def place(tree: Any, live: Any) -> Placement:
    """Return where what is saved can go; nothing when there is no live state."""
    found = Placement()
    if live is not None:
        _walk(tree, live, found)
        _drop_overlapping(found)
    return found


def _drop_overlapping(found: Placement) -> None:
    """What was saved apart must not be filled into one memory: the last would win."""
    spans = sorted((address, address + size, number) for number, (address, size) in found.addresses.items())
    for (_start, end, number), (start, _end, other) in pairwise(spans):
        if start < end:
            found.addresses.pop(number, None)
            found.addresses.pop(other, None)
    kept = set(found.addresses)
    found.values = {key: value for key, value in found.values.items() if found.numbers[key] in kept}


def _walk(node: Any, live: Any, found: Placement) -> None:
    if isinstance(node, list):
        _walk_items(node, live, list, found)
    elif isinstance(node, dict):
        if "tuple" in node:
            _walk_items(node["tuple"], live, tuple, found)
        elif "ndarray" in node or "tensor" in node:
            _place_array(node, live, found)
        else:
            kind = next(iter(node), "")
            if kind in ("dict", "odict") and isinstance(live, Mapping):
                _walk_mapping(node[kind], live, found)


def _walk_items(nodes: list[Any], live: Any, kind: type, found: Placement) -> None:
    if isinstance(live, kind) and len(live) == len(nodes):  # type: ignore[arg-type]
        for node, item in zip(nodes, live, strict=True):  # type: ignore[call-overload]
            _walk(node, item, found)


def _walk_mapping(pairs: list[Any], live: Mapping[Any, Any], found: Placement) -> None:
    decoder = Decoder([])
    for key, node in pairs:
        if not isinstance(key, str | int) or isinstance(key, bool):
            try:
                key = decoder.decode(key)
            except (TrainerError, IndexError):  # a key made of bytes
                continue
        if key in live:
            _walk(node, live[key], found)


def _place_array(node: dict[str, Any], live: Any, found: Placement) -> None:
    kind = "ndarray" if "ndarray" in node else "tensor"
    fits = arrays.is_ndarray(live) if kind == "ndarray" else arrays.is_tensor(live)
    if not fits or not _writable(live, kind):
        return
    try:
        encoder = Encoder()
        mine = encoder.encode(live)
    except TrainerError:
        return
    if any(mine.get(name) != node.get(name) for name in ("dtype", "shape", "axes")):
        return
    buffer, number = encoder.buffers[0], node[kind]
    if not buffer.address or buffer.size < 1 or not _is_own(buffer, live, kind):
        return
    known = found.addresses.setdefault(number, (buffer.address, buffer.size))
    if known == (buffer.address, buffer.size):
        found.values[id(node)], found.numbers[id(node)] = live, number


def _writable(live: Any, kind: str) -> bool:
    return bool(live.flags.writeable) if kind == "ndarray" else not live.is_conj()


def _is_own(buffer: Any, live: Any, kind: str) -> bool:
    """Whether the buffer is the array's own memory and not a copy that was made of one with gaps."""
    if kind == "ndarray":
        return bool(live.__array_interface__["data"][0] == buffer.address)
    return bool(arrays.local(live).data_ptr() == buffer.address)
