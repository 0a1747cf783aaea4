"""Do this node's ranks stand still for longer than the rule allows? Then the server is asked to look at once.

The server decides, who knows the ranks of all nodes and looks about once a second by itself; being asked it need not
wait for its turn. The rule comes with its answers; until one came it is the usual one.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from reliability.domain.progress import Pace, RankView, Rule, standing

_LIMITS = ("floor_s", "steps", "warm_up_s")


class Rules:
    """The rule as the server told it last; one for all jobs."""

    def __init__(self) -> None:
        self.rule = Rule()

    def learn(self, told: object) -> None:
        """Take over the rule of an answer; what makes no sense leaves the one that is known."""
        if not isinstance(told, dict):
            return
        limits = {name: told[name] for name in _LIMITS if name in told}
        if all(isinstance(each, int | float) and not isinstance(each, bool) and each > 0 for each in limits.values()):
            self.rule = Rule(**limits)


rules = Rules()


class Standstill:
    """Asks once for each time the ranks of a job stand still. `report` sends a report of the job."""

    def __init__(self, report: Callable[[str, Mapping[str, Any]], None]) -> None:
        self._report = report
        self._asked: tuple[tuple[int, object], ...] = ()

    def look(self, ranks: Sequence[Mapping[str, Any]]) -> None:
        """Take the ranks as a heartbeat tells of them; those that tell of no step are not judged here."""
        live = [each for each in ranks if each["phase"] != "ended" and each["step"] is not None]
        found = standing([_view(each) for each in live], rules.rule)
        if found is None or not found.over:
            return
        marks = tuple((each["rank"], (each["step"], each["watch"].get("moves"))) for each in live)
        if marks != self._asked:
            self._asked = marks
            rank, phase = found.decisive.rank, found.decisive.phase
            told = {"step": found.step, "phase": phase, "still_s": round(found.still_s, 3)}
            self._report("standstill", {"rank": rank, **told, "limit_s": round(found.limit.seconds, 3)})


def _view(told: Mapping[str, Any]) -> RankView:
    watch = told["watch"]
    known = watch.get("median_s") is not None and watch.get("mad_s") is not None
    pace = (
        Pace(
            median_s=watch["median_s"],
            mad_s=watch["mad_s"],
            longest_s=watch.get("longest_s") or 0.0,
            timed=watch.get("timed") or 0,
        )
        if known
        else None
    )
    return RankView(
        rank=told["rank"],
        node="",
        step=told["step"],
        still_s=watch.get("moved_age_s"),
        phase=told["phase"],
        phase_limit_s=watch.get("phase_limit_s"),
        pace=pace,
    )
