"""How does what is found on a node become text that can be sent, whatever a program named its files?"""

import json
import re
from typing import Any

_HALF = re.compile("[\ud800-\udfff]")
_BYTES_FROM = 0xDC80


def text_of(value: object) -> str:
    r"""Return a JSON text that every reader takes.

    A file's name that is not UTF-8 comes from the system with half characters, which no encoding can carry: each byte
    of it is written as the four characters \xff, any other half as U+FFFD. Raises TypeError, ValueError,
    RecursionError for what is no JSON at all: NaN, infinity, an object of Python, what is nested too deeply.
    """
    return _HALF.sub(_written_out, json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")))


def value_of(text: str) -> Any:
    """Return what a text of JSON says, which `text_of` can make a text of. Raises ValueError, RecursionError."""
    return json.loads(text_of(json.loads(text)))


def _written_out(found: re.Match[str]) -> str:
    byte = ord(found[0]) - _BYTES_FROM
    return f"\\\\x{byte + 0x80:02x}" if 0 <= byte < 0x80 else "\ufffd"
