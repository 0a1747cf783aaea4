"""Which fault code does the end of a rank stand for?

Its last output is asked first, because the number alone hides the cause: most exit codes 1 and 134 of a broken job are
victims of another rank.
"""

import re
from collections.abc import Iterator

from reliability.domain.faults.lines import MATCHER, Matcher
from reliability.domain.faults.special_lines import exit_name, plain_exit_code
from reliability.domain.faults.words import Action, FaultClass, FaultCode, Origin
from reliability.errors import InvalidInput

_OUR_OWN_NUMBERS = frozenset({86, 126, 127})
"""Numbers that mean one thing alone, so that no output can explain them better."""
_FULL = ("disk-full", "quota-full")
_LOOSE_VICTIM_SIGNS = re.compile(
    r"[Cc]onnection (was )?closed by (remote )?peer|[Cc]onnection reset by peer|Broken pipe|ConnectionResetError"
    r"|ConnectionAbortedError|BrokenPipeError|EOFError: peer|peer (has )?closed|ConnectionRefusedError"
    r"|[Cc]onnection refused|gloo.{0,200}(Read|Write) error"
)
"""What programs print in words of their own when a peer is gone. They only count in the output of a rank that ended."""
_TAIL_LINES = 400


def _told(tail: str, matcher: Matcher) -> Iterator[FaultCode]:
    for line in tail.splitlines()[-_TAIL_LINES:]:
        told = matcher.find(line, origin=Origin.OUTPUT)
        if told is not None and not told.code.startswith("exit-"):
            yield matcher.table.lookup(told.code)


def _at_an_end(row: FaultCode) -> str | None:
    """Return the code that a row comes to when the program ended with it; None when it explains no end."""
    if row.code in _FULL:
        return "exit-disk-full"
    if row.fault_class is FaultClass.STORAGE and row.action is Action.OBSERVE:
        return "exit-storage"
    explains = row.unexplained or row.action is not Action.OBSERVE
    return row.code if explains else None


def code_for_exit(exit_code: int, tail: str, *, oom_killed: bool = False, matcher: Matcher = MATCHER) -> str:
    """Return the fault code for a rank that ended with `exit_code` after writing `tail`.

    `exit_code` is 128 + signal for a signal (the negative form is understood too). `oom_killed` is the runtime's own
    word. The rank's own error outranks the signs of a lost peer, these outrank the runtime's flag, the number comes
    last. Raises InvalidInput for 0: a good end is no fault.
    """
    if exit_code == 0:
        raise InvalidInput("exit_code", "0 is a good end, not a fault", hint="Ask only for ranks that failed.")
    number = plain_exit_code(exit_code)
    if number in _OUR_OWN_NUMBERS:
        return f"exit-{number}"
    rows = list(_told(tail, matcher))
    own = next(filter(None, map(_at_an_end, rows)), None)
    victim = next((row.code for row in rows if row.follow_up), None)
    if own or victim:
        return own or victim or ""
    if _LOOSE_VICTIM_SIGNS.search(tail):
        return "peer-closed"
    return "oom" if oom_killed else exit_name(number)
