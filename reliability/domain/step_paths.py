"""Which paths may a step of a program hold, and where does a link of it end?"""

from collections import deque
from collections.abc import Mapping
from pathlib import PurePosixPath

MOST_HOPS = 40
"""How many links the kernel follows for one path; then it refuses."""
_LONGEST_NAME = 255


def is_below(path: str) -> bool:
    """Return whether a path names one place below the step: in its shortest form, and with names that can be made."""
    parts = PurePosixPath(path).parts
    if not parts or ".." in parts or path.startswith("/") or "/".join(parts) != path:
        return False
    return all(_can_be_made(part) for part in parts)


def stays(path: str, target: str, links: Mapping[str, str]) -> bool:
    """Return whether a link at a path of a step ends within the step, followed through the step's links by path.

    Words alone do not say so: where `q` leads to `.`, the link `p` to `q/..` leads outside.
    """
    at, left, hops = list(PurePosixPath(path).parts[:-1]), deque([target]), 0
    while left:
        words, _, rest = left.popleft().partition("/")
        if rest:
            left.appendleft(rest.lstrip("/"))
        if words in {"", "."}:
            continue
        if words == "..":
            if not at:
                return False
            at.pop()
            continue
        found = links.get("/".join([*at, words]))
        hops += found is not None
        if hops > MOST_HOPS or (found or "").startswith("/"):
            return False
        if found is None:
            at.append(words)
        else:
            left.appendleft(found)
    return not target.startswith("/")


def is_target(text: str) -> bool:
    """Return whether a link can be made to lead there."""
    return text != "" and "\0" not in text and _encoded(text) is not None


def _can_be_made(name: str) -> bool:
    raw = _encoded(name)
    return raw is not None and b"\0" not in raw and len(raw) <= _LONGEST_NAME


def _encoded(text: str) -> bytes | None:
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return None
