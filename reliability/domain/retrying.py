"""When does an agent that got no answer try again, and how long may that take at the worst?

The server's silence limit and the agent's retries must fit: a limit that one lost message exceeds makes every hiccup
look like a lost node. So the schedule follows from the limit, and a limit for which no schedule fits is refused.
"""

from dataclasses import dataclass

FIRST_WAIT_S = 0.05
LONGEST_WAIT_S = 2.0
LONGEST_ANSWER_S = 5.0
LEAST_WAIT_S = 0.25
LEAST_ANSWER_S = 0.75
BEATS = 3
"""So many heartbeats may be late before a node counts as silent."""
_ANSWER_SHARE = 0.7


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """The patience of an agent.

    `answer_s`: how long it waits for an answer that may never come. `wait_s`: its longest pause before a try.
    """

    answer_s: float = LONGEST_ANSWER_S
    wait_s: float = LONGEST_WAIT_S

    @property
    def worst_s(self) -> float:
        """Seconds by which one lost message delays the next at the worst."""
        return self.answer_s + self.wait_s


QUICKEST = Schedule(answer_s=LEAST_ANSWER_S, wait_s=LEAST_WAIT_S)
"""An agent that tried more often would only load a server that is slow."""


def schedule(*, heartbeat_s: float, silence_s: float) -> Schedule:
    """Return the schedule of an agent for these limits, seconds: what three heartbeats leave of the silence limit.

    Never quicker than QUICKEST, so that for a limit below `least_silence_s` it does not fit.
    """
    room_s = silence_s - BEATS * heartbeat_s
    return Schedule(
        answer_s=min(max(_ANSWER_SHARE * room_s, LEAST_ANSWER_S), LONGEST_ANSWER_S),
        wait_s=min(max((1 - _ANSWER_SHARE) * room_s, LEAST_WAIT_S), LONGEST_WAIT_S),
    )


def least_silence_s(heartbeat_s: float) -> float:
    """Return the shortest silence limit that one lost message cannot exceed: three heartbeats and the worst retry."""
    return BEATS * heartbeat_s + QUICKEST.worst_s
