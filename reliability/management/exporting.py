"""How does a shard become a file that other programs read: one of torch, or one in the safetensors format?

Neither library is part of the product. A safetensors file is written here, byte by byte, as its format says: the length
of a JSON header, the header, the arrays. A torch file needs torch, and so does any state that holds its tensors.
"""

import base64
import importlib
import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from reliability.errors import InvalidInput
from reliability.management import program_files
from reliability.trainer import reading
from reliability.trainer.errors import CorruptSnapshot, StateMismatch

PLAIN = "stepkeeper.plain"
ALIGNMENT = 64
_NUMPY = {
    "f8": "F64", "f4": "F32", "f2": "F16", "i8": "I64", "i4": "I32", "i2": "I16", "i1": "I8",
    "u8": "U64", "u4": "U32", "u2": "U16", "u1": "U8", "b1": "BOOL",
}  # fmt: skip
_TORCH = {
    "float64": "F64", "float32": "F32", "float16": "F16", "bfloat16": "BF16", "int64": "I64", "int32": "I32",
    "int16": "I16", "int8": "I8", "uint64": "U64", "uint32": "U32", "uint16": "U16", "uint8": "U8", "bool": "BOOL",
    "float8_e4m3fn": "F8_E4M3", "float8_e5m2": "F8_E5M2",
}  # fmt: skip


@contextmanager
def writer(path: Path) -> Iterator[Callable[[Any, Path], None]]:
    """Yield what writes a state to such a file, by its ending; without one, what writes a program's own files to a
    folder. Raises InvalidInput for another, or without torch.
    """
    if path.suffix == ".safetensors":
        yield safetensors_file
    elif path.suffix in {".pt", ".pth"}:
        _library("torch")
        yield torch_file
    elif not path.suffix:
        with program_files.opened(path) as write:
            yield write
    else:
        raise InvalidInput("--to", f"{path.name} tells no format", hint="End it with .safetensors, .pt or .pth.")


def load(record: Path, rank: int) -> Any:
    """Return the state of a shard, with the libraries that it needs. Raises InvalidInput when one is not installed."""
    _library("numpy")
    try:
        return reading.load(record, rank=rank)[1]
    except StateMismatch:
        _library("torch")
        return reading.load(record, rank=rank)[1]
    except CorruptSnapshot as error:
        raise InvalidInput("snapshot", str(error)) from error


def _library(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise InvalidInput(
            name, "is not installed here", hint=f"Install {name} beside the server, then again."
        ) from error


def torch_file(state: Any, path: Path) -> None:
    """Write a state with torch, its arrays as tensors, so that it loads with weights_only too."""
    torch = _library("torch")
    part = path.with_name(f"{path.name}.part")
    torch.save(_as_tensors(state, torch), part)
    _settle(part, path)


def _as_tensors(value: Any, torch: Any) -> Any:
    numpy = _library("numpy")
    if isinstance(value, numpy.ndarray) and value.dtype.str[1:] in _NUMPY:
        return torch.from_numpy(numpy.ascontiguousarray(value))
    if isinstance(value, numpy.generic):
        return value.item()
    if isinstance(value, dict):
        return {key: _as_tensors(item, torch) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(_as_tensors(item, torch) for item in value)
    return value


def safetensors_file(state: Any, path: Path) -> None:
    """Write the arrays of a state by their places in it, as in model.layer1.weight; plain values go to the metadata."""
    arrays: dict[str, tuple[str, list[int], memoryview]] = {}
    plain: dict[str, Any] = {}
    for place, value in _leaves(state, ""):
        if place in arrays or place in plain:
            raise InvalidInput(place, "stands for two values of the state", hint="Export it as a torch file.")
        found = _array(place, value)
        if found is None:
            plain[place] = _jsonable(place, value)
        else:
            arrays[place] = found
    header: dict[str, Any] = {"__metadata__": {PLAIN: json.dumps(plain)}}
    at = 0
    for place, (dtype, shape, content) in arrays.items():
        header[place] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + content.nbytes]}
        at += content.nbytes
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-(len(text) + 8) % ALIGNMENT)
    part = path.with_name(f"{path.name}.part")
    with part.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for _dtype, _shape, content in arrays.values():
            file.write(content)
    _settle(part, path)


def _settle(part: Path, path: Path) -> None:
    with part.open("rb") as file:
        os.fsync(file.fileno())
    part.rename(path)


def _leaves(value: Any, place: str) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping):
        items: Any = value.items()
    elif isinstance(value, list | tuple):
        items = enumerate(value)
    else:
        yield place or "state", value
        return
    for key, item in items:
        yield from _leaves(item, f"{place}.{key}" if place else str(key))


def _array(place: str, value: Any) -> tuple[str, list[int], memoryview] | None:
    """Return (dtype, shape, bytes) of an array or tensor, None for any other value."""
    if type(value).__module__.partition(".")[0] == "torch" and hasattr(value, "contiguous"):
        torch = _library("torch")
        dtype = _TORCH.get(str(value.dtype).removeprefix("torch."))
        flat = value.detach().contiguous().reshape(-1).view(torch.uint8).numpy() if dtype and value.numel() else b""
    elif hasattr(value, "dtype") and hasattr(value, "shape"):
        numpy = _library("numpy")
        dtype = _NUMPY.get(value.dtype.str[1:]) if value.dtype.str[0] != ">" else None
        flat = numpy.ascontiguousarray(value).reshape(-1).view(numpy.uint8) if dtype and value.size else b""
    else:
        return None
    if dtype is None:
        raise InvalidInput(place, f"has the data type {value.dtype}, which safetensors has not", hint="Use a .pt file.")
    return dtype, list(value.shape), memoryview(flat)


def _jsonable(place: str, value: Any) -> Any:
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, bytes | bytearray):
        return {"base64": base64.b64encode(value).decode()}
    raise InvalidInput(place, f"is a {type(value).__name__}, which safetensors cannot hold", hint="Use a .pt file.")
