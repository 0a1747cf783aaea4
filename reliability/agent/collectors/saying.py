"""What do collectors and the agent say to each other? One JSON object a line, both ways.

A collector says `beat` each second (it lives), `found` (findings, and the place in its source up to which all is told),
`check` (a check ended), `hang` (one did not), `left` (one hangs in the kernel and cannot be killed), `state` (whether
it can see its source). The agent says first what is wanted, then `facts` and `changes` of the fault table when they are
other ones.
"""

import json
import os
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from reliability.agent import sendable
from reliability.agent.collectors.checking import Found

BEAT_S = 1.0
LONGEST = 2**20
"""Bytes of a line; whoever says more is not understood."""
EVIDENCE = 2000
"""Characters of a line that are kept as evidence."""


def say(t: str, **said: Any) -> None:
    """Say something to the agent, whole. Raises BrokenPipeError when the agent is gone."""
    data = sendable.text_of({"t": t, **said}).encode() + b"\n"
    while data:
        data = data[os.write(1, data) :]


def found(findings: Sequence[Found]) -> list[dict[str, Any]]:
    """Return findings as they travel."""
    return [
        {
            "code": each.code,
            "evidence": each.evidence[:EVIDENCE],
            "count": each.count,
            "fields": dict(each.fields),
            "rank": each.rank,
        }
        for each in findings
    ]


class Hearing:
    """Cuts what the other side says into messages.

    What is no JSON object is passed over; `deaf` tells that one was too long.
    """

    def __init__(self) -> None:
        self._open = b""
        self._lines: deque[bytes] = deque()
        self.deaf = False

    def feed(self, data: bytes) -> Iterator[dict[str, Any]]:
        """Yield the messages that are complete now; those that are not asked for come with the next call."""
        *lines, self._open = (self._open + data).split(b"\n")
        self.deaf = self.deaf or len(self._open) > LONGEST
        self._lines.extend(lines)
        while self._lines:
            message = _message(self._lines.popleft())
            if message is not None:
                yield message


def _message(line: bytes) -> dict[str, Any] | None:
    try:
        said = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return said if isinstance(said, dict) else None


def text(said: Mapping[str, Any], key: str) -> str:
    """Return a text of a message, "" when there is none."""
    value = said.get(key)
    return value if isinstance(value, str) else ""
