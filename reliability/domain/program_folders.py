"""When does what a program writes into its snapshot folder count, and which step is it?

A job may name a rule: whose folder it is (of each rank, of each node, or of the job, of which every node writes a
part), and by what a step in it is known to be whole: a marker file, its final name, or a quiet period.
"""

import functools
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from reliability.domain import fields as f
from reliability.domain import name_patterns
from reliability.errors import InvalidInput

MARKER = "STEPKEEPER_DONE"
QUIET_S = 10.0
LEAST_QUIET_S = 0.5
ASIDE_BYTES = 100 * 10**9
_NAMED = re.compile(
    r"(?:.*[-_=.])?(?:global_?step|step|checkpoint|ckpt|iteration|iter|epoch=\d{1,9}-step)[-_=]?"
    r"(?P<step>\d{1,18})(?:\.(?:ckpt|pt|pth|bin|safetensors))?",
    re.IGNORECASE,
)
_NUMBER = re.compile(r"(?P<step>\d{1,18})")
_UNFINISHED = re.compile(r"\..*|tmp[-_].*|.*(?:\.|-|_)(?:tmp|part|partial|incomplete)", re.IGNORECASE)


class Whose(StrEnum):
    """Which ranks write into one folder."""

    RANK = "rank"
    NODE = "node"
    JOB = "job"


class SealedBy(StrEnum):
    """By what a step is known to be whole."""

    QUIET = "quiet"
    MARKER = "marker"
    RENAME = "rename"


_SENTENCES = {
    SealedBy.QUIET: "when nothing in it changed for {quiet_s:g} s while its ranks live, or when {marker} lies in it",
    SealedBy.MARKER: "when {marker} lies in it",
    SealedBy.RENAME: "when it has its final name",
}
_WRITERS = {
    Whose.RANK: "every rank writes a folder of its own",
    Whose.NODE: "the ranks of a node write into one folder",
    Whose.JOB: "every node writes its part of one folder, and gets all of it back",
}


@dataclass(frozen=True, kw_only=True)
class FolderRule:
    """How the snapshot folder of a job is read. `pattern`: '' or a regular expression with a group `step`.

    `aside_bytes`: how much of what abandoned attempts wrote each node keeps, the newest of it.
    """

    of: Whose = Whose.NODE
    sealed_by: SealedBy = SealedBy.QUIET
    quiet_s: float = QUIET_S
    marker: str = MARKER
    pattern: str = ""
    aside_bytes: int = ASIDE_BYTES

    def step_of(self, name: str) -> int | None:
        """Return the step of which a folder or file of this name holds the state; None when it names none."""
        return _step_of(self.pattern, name)

    def is_unfinished(self, name: str) -> bool:
        """Return whether a name is one of those under which programs write what is not whole yet, or a marker's."""
        return bool(_UNFINISHED.fullmatch(name)) or name.endswith(self.marker)

    def sentence(self) -> str:
        """Say the rule in words."""
        seals = _SENTENCES[self.sealed_by].format(quiet_s=self.quiet_s, marker=self.marker)
        return f"A step in the snapshot folder counts {seals}; {_WRITERS[self.of]}."

    def as_dict(self) -> dict[str, Any]:
        """Return the rule as jobs and orders carry it."""
        return asdict(self)


@functools.lru_cache(maxsize=4096)  # the same names are looked at again and again
def _step_of(pattern: str, name: str) -> int | None:
    found = re.fullmatch(pattern, name) if pattern else _NAMED.fullmatch(name) or _NUMBER.fullmatch(name)
    digits = found["step"] if found else None
    return int(digits) if digits and digits.isdecimal() and len(digits) <= 18 else None


def read(value: object, path: str) -> dict[str, Any] | None:
    """Read a rule; None means that the job has no snapshot folder. Raises InvalidInput, which names the field."""
    if value is None:
        return None
    raw = f.mapping(value, path)
    for name in raw:
        if name not in _FIELDS:
            raise InvalidInput(f"{path}.{name}", "is no field of it", hint=f"Fields: {', '.join(_FIELDS)}.")
    given = {name: _FIELDS[name](item, f"{path}.{name}") for name, item in raw.items()}
    return FolderRule(**given).as_dict()


def rule_of(value: Mapping[str, Any] | None) -> FolderRule | None:
    """Return the rule that `read` returned."""
    if value is None:
        return None
    words = {**value, "of": Whose(value["of"]), "sealed_by": SealedBy(value["sealed_by"])}
    return FolderRule(**words)


def is_shared(value: Mapping[str, Any] | None) -> bool:
    """Return whether every node needs the files of all nodes, by a rule that `read` returned."""
    return value is not None and value["of"] == Whose.JOB


def _marker(value: object, path: str) -> str:
    text: str = f.text(most=100, least=1)(value, path)
    if "/" in text or text in {".", ".."}:
        raise InvalidInput(path, f"{text!r} is no name of a file", hint="Name a file that the program writes last.")
    return text


def _pattern(value: object, path: str) -> str:
    text: str = f.text(most=300)(value, path)
    hint = r"For example 'model-(?P<step>\d+)'."
    try:
        groups = re.compile(text).groupindex
    except (re.error, OverflowError, RecursionError) as error:
        raise InvalidInput(path, f"is no regular expression: {error}", hint=hint) from error
    if text and "step" not in groups:
        raise InvalidInput(path, "has no group named step", hint=hint)
    if name_patterns.tries(text) > name_patterns.MOST_TRIES:
        what_to_do = f"Use at most three of *, + and {{m,n}}, none within another. {hint}"
        raise InvalidInput(path, "might try for hours to match one name", hint=what_to_do)
    return text


_FIELDS: Mapping[str, f.Reader] = {
    "of": lambda value, path: Whose(f.one_of(*Whose)(value, path)),
    "sealed_by": lambda value, path: SealedBy(f.one_of(*SealedBy)(value, path)),
    "quiet_s": f.number(least=LEAST_QUIET_S, most=86_400),
    "marker": _marker,
    "pattern": _pattern,
    "aside_bytes": f.integer(),
}
