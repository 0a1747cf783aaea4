"""What do the checks of this node come to? One child runs them (`check_host.py`); this keeps it alive and hears it.

What a check wants to know of its last run is kept for it on disk, so that counters are compared over restarts too.
"""

import json
import logging
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from reliability.agent.clock import steady
from reliability.agent.collectors import saying
from reliability.agent.collectors.checking import Check, Found, Option
from reliability.agent.collectors.debouncing import Debounce
from reliability.agent.collectors.following import Following
from reliability.agent.collectors.found import NODE, Reports, body_of, heard
from reliability.agent.collectors.standing import Standings
from reliability.agent.probes.children import Children
from reliability.errors import TierError
from reliability.tiers import copying

HOST = "reliability.agent.collectors.check_host"
SAVE_S = 30.0
SOURCE = "checks"
"""Who tells: what the kernel's log tells of the same event is one finding with two witnesses."""

Facts = Callable[[], Mapping[str, Any]]

log = logging.getLogger("stepkeeper.agent")


class NodeChecks:
    """The checks of this node, all run by one child (`check_host.py`)."""

    def __init__(
        self,
        known: tuple[Check, ...],
        chosen: Mapping[str, Mapping[str, Option]],
        *,
        children: Children,
        standings: Standings,
        reports: Reports,
        facts: Facts,
        kept: Path,
        host: str = HOST,
    ) -> None:
        self._chosen = chosen
        self._standings = standings
        self._reports = reports
        self._facts = facts
        self._kept = kept
        self._states: dict[str, Any] = _kept_states(kept)
        self._saved_at = steady()
        self._stuck: dict[str, int] = {}
        self._hung: set[str] = set()
        self._debounce = Debounce()
        self._limits = {check.name: _stale_s(check, chosen[check.name]) for check in known if check.name in chosen}
        self._following = Following("check_host", host, children, wanted=self._wanted, hear=self._hear, lost=self._lost)

    def start(self) -> None:
        """Begin, when there is any check."""
        for name, limit_s in self._limits.items():
            self._standings.expect(name, limit_s)
        if self._limits:
            self._following.start()

    def stop(self) -> None:
        """End them and keep what they want to know the next time."""
        self._following.stop()
        self._tell(math.inf)
        self._save()

    def pid(self) -> int | None:
        """Return the process id of the child that runs them."""
        return self._following.pid()

    def stuck(self) -> dict[str, int]:
        """Return the processes of checks that hang in the kernel, by the name of the check."""
        return dict(self._stuck)

    def tell_facts(self) -> None:
        """Tell the checks what the agent knows now."""
        self._following.tell({"facts": self._facts()})

    def _wanted(self) -> dict[str, Any]:
        return {"checks": self._chosen, "states": self._states, "stuck": self._stuck, "facts": self._facts()}

    def _lost(self, why: str) -> None:
        for name in self._limits:
            self._standings.doubt(name, f"Checks do not run: {why}")

    def _hear(self, said: Mapping[str, Any]) -> None:
        name, kind = saying.text(said, "name"), said.get("t")
        if kind == "check" and name in self._limits:
            self._ended(name, said)
        elif kind == "hang" and name in self._limits:
            self._hangs(name, said)
        elif kind == "left":
            self._left(name, said.get("pid"))
        self._tell(steady())

    def _ended(self, name: str, said: Mapping[str, Any]) -> None:
        ok, measured, at = said.get("ok"), said.get("measured"), said.get("ended_at")
        self._standings.note(
            name,
            ok if isinstance(ok, bool) else None,
            saying.text(said, "reason"),
            measured if isinstance(measured, dict) else {},
            ended_at=at if isinstance(at, float) else steady(),
        )
        if name in self._hung:
            self._hung.discard(name)
            over = Found(code="probe-hang-over", evidence=f"Check {name} returns again.", fields={"check": name})
            self._debounce.take(over, steady())
        if isinstance(said.get("state"), dict) and (said["state"] or isinstance(ok, bool)):
            self._states[name] = said["state"]
        for each in said.get("findings") or ():
            if (found := heard(each)) is not None:
                self._debounce.take(found, steady())
        if steady() - self._saved_at > SAVE_S:
            self._save()

    def _hangs(self, name: str, said: Mapping[str, Any]) -> None:
        sentence = f"Check {name} did not return within {said.get('limit_s')} s."
        self._standings.doubt(name, sentence)
        self._hung.add(name)
        if not said.get("again"):
            self._debounce.take(Found(code="probe-hang", evidence=sentence, fields={"check": name}), steady())

    def _left(self, name: str, pid: object) -> None:
        """A run that cannot be killed stays; a new child must know that, or it would start a second one beside it."""
        if isinstance(pid, int) and pid:
            self._stuck[name] = pid
        else:
            self._stuck.pop(name, None)

    def _tell(self, now: float) -> None:
        found = self._debounce.tell(now)
        bodies = [({**body_of(each, NODE), "source": SOURCE}, "", 0) for each in found]
        self._reports.report_found(bodies, source=SOURCE, place=None)

    def _save(self) -> None:
        self._saved_at = steady()
        try:
            copying.write_json(self._kept, self._states)
        except (TierError, OSError, TypeError, ValueError) as error:
            # What is lost by this is one difference of counters after a restart.
            log.warning("states of checks not kept: file=%s reason=%s", self._kept, error)


def _stale_s(check: Check, values: Mapping[str, Option]) -> float:
    period_s, limit_s = float(values["period_s"]), float(values["limit_s"])
    return Check(name=check.name, run=check.run, period_s=period_s, limit_s=limit_s).stale_s


def _kept_states(path: Path) -> dict[str, Any]:
    try:
        read = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return {}
    return read if isinstance(read, dict) else {}
