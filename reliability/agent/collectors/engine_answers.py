"""Does the container engine of this node answer, and how fast?

One that hangs keeps its connections open and says nothing: its event stream stays silent and does not end. So it is
asked, in a thread that does nothing else; the call has a limit.
"""

from collections.abc import Callable

from reliability.agent.clock import steady
from reliability.agent.collectors.checking import Found
from reliability.agent.collectors.found import NODE, Reports, body_of
from reliability.agent.collectors.standing import Standings
from reliability.errors import ReliabilityError

NAME = "engine"
PERIOD_S = 2.0
STALE_S = 20.0
HANGS_S = 5.0
"""One that took so long to say nothing hangs; one that refuses at once is gone, which the end of its events tells."""


class EngineAnswers:
    """The engine as a check of the node. `ping` raises ReliabilityError when it does not answer within its limit."""

    def __init__(self, ping: Callable[[], None], *, standings: Standings, reports: Reports) -> None:
        self._ping = ping
        self._standings = standings
        self._reports = reports
        self._hangs = False
        standings.expect(NAME, STALE_S)

    def look(self) -> None:
        """Ask once."""
        began = steady()
        try:
            self._ping()
        except ReliabilityError as error:
            took_s = steady() - began
            self._standings.note(NAME, False, error.message, {}, ended_at=steady())
            if took_s >= HANGS_S:
                self._tell_hang(took_s)
        else:
            self._hangs = False
            measured = {"answered_in_s": round(steady() - began, 4)}
            self._standings.note(NAME, True, "", measured, ended_at=steady())

    def _tell_hang(self, took_s: float) -> None:
        """Tell once for as long as it goes on; what hangs is not known to be ill, only not known to be well."""
        sentence = f"The container engine did not answer within {took_s:.0f} s."
        self._standings.doubt(NAME, sentence)
        if not self._hangs:
            self._hangs = True
            found = Found(code="probe-hang", evidence=sentence, fields={"check": NAME})
            self._reports.report_found([(body_of(found, NODE), "", 0)], source=NAME, place=None)
