"""How an admin writes down a line that stands for a code: its text, with {name} for one word and * for anything.

    GPU {device} lost * after {seconds} s

No regular expression: a phrase is searched piece by piece from left to right, so that no text can make it slow.
"""

import re
from dataclasses import dataclass
from functools import cached_property

from reliability.domain.faults.words import Value
from reliability.errors import InvalidInput

_PIECES = re.compile(r"\{([a-z_]{1,32})\}|(\*)|([^{}*]+)|([{}])")
LONGEST = 300
LEAST_LITERAL = 6
"""A phrase needs a piece of fixed text of at least this length: anything shorter is found by chance."""


@dataclass(frozen=True)
class Phrase:
    """A phrase. Raises InvalidInput (field `phrase`) when it is empty, too long, too vague or misspelt."""

    text: str

    def __post_init__(self) -> None:
        """Check the phrase."""
        wrong = ""
        if len(self.text) > LONGEST:
            wrong = f"is {len(self.text)} characters long; at most {LONGEST} count"
        elif not self.text.isprintable():
            wrong = "has a letter that does not show and is in no line"
        elif any(stray for *_, stray in _PIECES.findall(self.text)):
            wrong = "has a brace that is no {name} of small letters"
        elif len(self.literal) < LEAST_LITERAL:
            wrong = f"needs a piece of fixed text of at least {LEAST_LITERAL} characters"
        if wrong:
            raise InvalidInput("phrase", wrong, hint="Example: GPU {device} lost * after {seconds} s")

    @cached_property
    def _pieces(self) -> tuple[tuple[str, str], ...]:
        found = _PIECES.findall(self.text.strip())
        return tuple(
            ("name", name) if name else ("any", "") if star else ("text", text) for name, star, text, _ in found
        )

    @property
    def literal(self) -> str:
        """The longest piece of fixed text."""
        return max((value for kind, value in self._pieces if kind == "text"), key=len, default="")

    @property
    def names(self) -> tuple[str, ...]:
        """The fields that a line carries."""
        return tuple(value for kind, value in self._pieces if kind == "name")

    def fields(self, line: str) -> dict[str, Value] | None:
        """Return the fields of a line that has this phrase, None when it has not.

        Pieces are found from left to right, each at the first place behind the one before it.
        """
        at, fields, waiting, loose = 0, dict[str, Value](), "", True
        for kind, value in self._pieces:
            if kind == "text":
                place = line.find(value, at)
                if place < 0 or (not loose and not waiting and place != at):
                    return None
                if waiting and not _word(fields, waiting, line[at:place]):
                    return None
                at, waiting, loose = place + len(value), "", False
            elif kind == "name":
                waiting = value
            else:
                loose = True
        if waiting:
            rest = line[at:].split(maxsplit=1)
            if not rest or not _word(fields, waiting, rest[0]):
                return None
        return fields


def _word(fields: dict[str, Value], name: str, word: str) -> bool:
    """Keep a word as a field; False when it is none."""
    word = word.strip()
    if not word or len(word) > 120 or any(character.isspace() for character in word):
        return False
    fields[name] = int(word) if word.isdecimal() and len(word) < 19 else word
    return True
