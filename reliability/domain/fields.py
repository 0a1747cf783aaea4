"""How is one value from outside read: its type, its bounds, and the sentence that names what is wrong?

Every reader takes (value, path) and returns the clean value or raises InvalidInput with the dotted path. Text that
a database cannot keep (NUL, lone surrogates) is replaced, because it comes out of logs that nobody controls.
"""

import math
import re
from collections.abc import Callable, Mapping
from typing import Any

from reliability.errors import InvalidInput

Reader = Callable[[object, str], Any]

MAX_INTEGER = 2**63 - 1
MAX_DEPTH = 8
MOST_VALUES = 32
LONGEST_VALUE = 300
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,79}")

INVISIBLE = re.compile(
    "[\u00ad\u061c\u070f\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    "\U00013430-\U0001343f\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0001\U000e0020-\U000e007f]"
)
"""Letters that show nothing, yet break a line or turn the rest of it round. What only joins letters is none of them."""


def shown(value: str) -> str:
    """Return the text with what does not show written out: `[U+202E]`."""
    return INVISIBLE.sub(lambda each: f"[U+{ord(each[0]):04X}]", value)


def check_shows(value: object, path: str) -> None:
    """Refuse what a person wrote with letters that do not show, however deep. Raises InvalidInput with its path."""
    if isinstance(value, str):
        found = INVISIBLE.search(value)
        if found:
            raise InvalidInput(path, f"has a letter that does not show, {shown(found[0])}", hint="Leave it out.")
    elif isinstance(value, Mapping):
        for key, each in value.items():
            check_shows(each, f"{path}.{key}" if path else str(key))
    elif isinstance(value, list):
        for index, each in enumerate(value):
            check_shows(each, f"{path}.{index}")


def clean_text(value: str) -> str:
    """Return the text without what databases refuse."""
    return value.replace("\x00", "\ufffd").encode("utf-8", "replace").decode("utf-8")


def text(*, most: int, least: int = 0) -> Reader:
    """Read a string of at most `most` characters; a longer one is an error."""

    def read(value: object, path: str) -> str:
        if not isinstance(value, str):
            raise InvalidInput(path, "is not text", hint=f"Give a string of at most {most} characters.")
        if not least <= len(value) <= most:
            raise InvalidInput(path, f"has {len(value)} characters", hint=f"Between {least} and {most} are possible.")
        return clean_text(value)

    return read


def cut_text(*, most: int) -> Reader:
    """Read a string of any length and keep its last `most` characters: output whose end says the most."""

    def read(value: object, path: str) -> str:
        if not isinstance(value, str):
            raise InvalidInput(path, "is not text", hint="Give a string.")
        return clean_text(value[-most:])

    return read


def name(value: object, path: str) -> str:
    """Read a name of a node or job."""
    if not isinstance(value, str) or not NAME.fullmatch(value):
        raise InvalidInput(path, "is not a name", hint="Letters, digits, - and _, at most 80, the first no sign.")
    return value


def integer(*, least: int = 0, most: int = MAX_INTEGER) -> Reader:
    """Read a whole number within bounds; true and false are no numbers."""

    def read(value: object, path: str) -> int:
        if isinstance(value, bool) or not isinstance(value, int):
            raise InvalidInput(path, "is not a whole number", hint=f"Give a number from {least} to {most}.")
        if not least <= value <= most:
            raise InvalidInput(path, f"{_shown(value)} is out of range", hint=f"Give a number from {least} to {most}.")
        return value

    return read


def _shown(value: int) -> str:
    return str(value) if abs(value) <= MAX_INTEGER else "the number"


def number(*, least: float = -1e15, most: float = 1e15) -> Reader:
    """Read a finite number within bounds."""

    def read(value: object, path: str) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise InvalidInput(path, "is not a number", hint=f"Give a number from {least:.12g} to {most:.12g}.")
        if isinstance(value, float) and not math.isfinite(value):
            raise InvalidInput(path, "is not finite", hint="Leave it out or give null where there is no value.")
        if not least <= value <= most:
            raise InvalidInput(path, "is out of range", hint=f"Give a number from {least:.12g} to {most:.12g}.")
        return float(value)

    return read


def boolean(value: object, path: str) -> bool:
    """Read true or false."""
    if not isinstance(value, bool):
        raise InvalidInput(path, "is neither true nor false", hint="Give true or false.")
    return value


def one_of(*options: str) -> Reader:
    """Read one of a few words."""

    def read(value: object, path: str) -> str:
        if not isinstance(value, str) or value not in options:
            raise InvalidInput(path, "is not one of the words known here", hint=f"One of: {', '.join(options)}.")
        return value

    return read


def nullable(reader: Reader, default: Any = None) -> Reader:
    """Read null as `default`."""

    def read(value: object, path: str) -> Any:
        return default if value is None else reader(value, path)

    return read


def list_of(reader: Reader, *, most: int) -> Reader:
    """Read a list of at most `most` items."""

    def read(value: object, path: str) -> list[Any]:
        if not isinstance(value, list):
            raise InvalidInput(path, "is not a list", hint="Give a list.")
        if len(value) > most:
            raise InvalidInput(path, f"has {len(value)} items", hint=f"At most {most} are possible.")
        return [reader(item, f"{path}.{index}") for index, item in enumerate(value)]

    return read


def mapping(value: object, path: str) -> Mapping[str, Any]:
    """Read an object."""
    if not isinstance(value, dict):
        raise InvalidInput(path, "is not an object", hint="Give a JSON object.")
    return value


def record(fields: Mapping[str, tuple[Reader, bool]]) -> Reader:
    """Read an object of known fields: name -> (reader, required). A missing optional field reads as null.

    Fields that are not known are left out: a newer sender may tell more than this version understands.
    """

    def read(value: object, path: str) -> dict[str, Any]:
        raw = mapping(value, path or "body")
        result = {}
        for key, (reader, required) in fields.items():
            where = f"{path}.{key}" if path else key
            if required and key not in raw:
                raise InvalidInput(where, "is missing", hint="Give it: nothing is assumed in its place.")
            result[key] = reader(raw.get(key), where)
        return result

    return read


def plain_values(value: object, path: str) -> dict[str, str | int]:
    """Read an object of a few names with texts or numbers; what has no value is left out."""
    given = mapping(value, path)
    if len(given) > MOST_VALUES:
        raise InvalidInput(path, f"has {len(given)} values", hint=f"At most {MOST_VALUES} are possible.")
    told = {clean_text(str(key))[:64]: _plain(each, f"{path}.{key}"[:200]) for key, each in given.items()}
    return {key: each for key, each in told.items() if each is not None}


def _plain(value: object, path: str) -> str | int | None:
    if value is None or isinstance(value, bool):
        return None if value is None else str(value).lower()
    if isinstance(value, str):
        return clean_text(value[:LONGEST_VALUE])
    if isinstance(value, int | float):
        number = _tree_number(value, path)
        return number if isinstance(number, int) else f"{number:g}"
    raise InvalidInput(path, "is neither text nor a number", hint="Give a text or a number.")


def document(value: object, path: str) -> dict[str, Any]:
    """Read a free JSON object: depth, sizes and numbers bounded, text made safe."""
    return dict(_tree(mapping(value, path), path, 0))


def _tree(value: object, path: str, depth: int) -> Any:
    if depth > MAX_DEPTH:
        raise InvalidInput(path, "is nested too deeply", hint=f"At most {MAX_DEPTH} levels are possible.")
    if isinstance(value, dict):
        return {
            clean_text(str(key))[:200]: _tree(item, f"{path}.{key}"[:200], depth + 1) for key, item in value.items()
        }
    if isinstance(value, list):
        return [_tree(item, f"{path}.{index}", depth + 1) for index, item in enumerate(value)]
    if isinstance(value, str):
        return clean_text(value)
    if value is None or isinstance(value, bool):
        return value
    return _tree_number(value, path)


def _tree_number(value: object, path: str) -> int | float:
    if isinstance(value, float):
        return float(number()(value, path)) if abs(value) < 1e15 else _refuse(path)
    if isinstance(value, int):
        return value if abs(value) <= MAX_INTEGER else _refuse(path)
    raise InvalidInput(path, "is no JSON value")


def _refuse(path: str) -> int:
    raise InvalidInput(path, "is out of range or not finite", hint="Numbers must fit into 64 bits and be finite.")
