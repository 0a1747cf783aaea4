"""Runs the checks of a node, each in a fork of its own with a hard limit of time.

A child of the agent with one thread, so forks are cheap and safe. A check that does not return within its limit is
killed, and told once for as long as it goes on like that; one that cannot be killed (it hangs in the kernel) is left
alone and not started again until it is gone. Neither delays another check.
"""

import contextlib
import os
import select
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from reliability.agent import processes
from reliability.agent.clock import steady
from reliability.agent.collectors import checks, saying
from reliability.agent.collectors.attending import attend
from reliability.agent.collectors.check_run import Run
from reliability.agent.collectors.checking import Check, Inputs

LAST_WAIT_S = 0.2
APART_S = 0.1
"""Checks begin so far apart at first, so that they do not all run at once ever after."""


class Host:
    """The checks, when each is due, and those that run now."""

    def __init__(self, chosen: Sequence[Check], states: Mapping[str, Any], stuck: Mapping[str, int]) -> None:
        self._checks = {check.name: check for check in chosen}
        now = steady()
        self._due = {check.name: now + place * APART_S for place, check in enumerate(chosen)}
        self._states = {name: state for name, state in states.items() if isinstance(state, dict)}
        self._began: dict[str, float] = {}
        self._runs: dict[str, Run] = {}
        self._left = dict(stuck)
        self._hanging = set(stuck)
        self.facts: Mapping[str, Any] = {}

    def handles(self) -> dict[int, str]:
        """Return what becomes readable when a check said something."""
        return {run.handle: name for name, run in self._runs.items() if run.handle >= 0}

    def wait_s(self) -> float:
        """Return how long nothing has to be done unless a check says something."""
        moments = [due for name, due in self._due.items() if name not in self._runs]
        moments += [run.ends_at for run in self._runs.values()]
        return min(max(min(moments, default=steady() + saying.BEAT_S) - steady(), 0.0), saying.BEAT_S)

    def turn(self) -> None:
        """Start what is due, end what is over."""
        now = steady()
        for name in list(self._runs):
            self._look(name, now)
        for name, due in list(self._due.items()):
            if due <= now and name not in self._runs:
                if self._is_left(name):
                    self._due[name] = now + saying.BEAT_S
                else:
                    self._start(name, now)

    def read(self, name: str) -> None:
        """Take what a check said."""
        self._runs[name].read()

    def end(self) -> None:
        """Kill what still runs."""
        for run in self._runs.values():
            run.kill()

    def _start(self, name: str, now: float) -> None:
        check = self._checks[name]
        before = self._began.get(name)
        inputs = Inputs(
            options=check.options,
            facts=self.facts,
            state=self._states.get(name, {}),
            since_s=None if before is None else now - before,
        )
        self._began[name] = now
        self._due[name] = now + check.period_s
        self._runs[name] = Run(check, inputs, ends_at=now + check.limit_s)

    def _look(self, name: str, now: float) -> None:
        run = self._runs[name]
        if run.outcome is not None:
            self._ended(name, run)
        elif run.killed_at is None and now >= run.ends_at:
            run.kill()
            run.killed_at, run.ends_at = now, now + LAST_WAIT_S
            self._tell_hang(name, run)
        elif run.killed_at is not None and run.reaped():
            del self._runs[name]
        elif run.killed_at is not None and now >= run.ends_at:
            del self._runs[name]
            run.leave()
            self._left[name] = run.pid
            saying.say("left", name=name, pid=run.pid)

    def _ended(self, name: str, run: Run) -> None:
        if not run.reaped():
            run.kill()
            run.ends_at = steady() + LAST_WAIT_S / 10  # it said all and only has to go
            return
        del self._runs[name]
        self._hanging.discard(name)
        outcome = run.outcome or {}
        if outcome.get("ok") is not None or outcome.get("state"):
            self._states[name] = outcome.get("state") or {}
        saying.say("check", name=name, ended_at=steady(), **outcome)

    def _tell_hang(self, name: str, run: Run) -> None:
        saying.say("hang", name=name, limit_s=self._checks[name].limit_s, again=name in self._hanging)
        self._hanging.add(name)

    def _is_left(self, name: str) -> bool:
        """Whether an earlier run of a check still hangs in the kernel."""
        pid = self._left.get(name)
        if pid is None:
            return False
        with contextlib.suppress(ChildProcessError):
            os.waitpid(pid, os.WNOHANG)
        if processes.alive(pid):
            return True
        del self._left[name]
        saying.say("left", name=name, pid=0)
        return False


def serve(hearing: saying.Hearing, wanted: dict[str, Any]) -> None:
    """Run the checks until the agent is gone."""
    chosen = _settled(checks.CHECKS, wanted.get("checks") or {})
    host = Host(chosen, wanted.get("states") or {}, wanted.get("stuck") or {})
    host.facts = wanted.get("facts") or {}
    beat_at = 0.0
    while True:
        if steady() >= beat_at:
            saying.say("beat")
            beat_at = steady() + saying.BEAT_S
        host.turn()
        handles = host.handles()
        readable, _, _ = select.select([0, *handles], [], [], host.wait_s())
        for handle in readable:
            if handle:
                host.read(handles[handle])
        if 0 in readable and not _heard(host, hearing):
            host.end()
            return


def _heard(host: Host, hearing: saying.Hearing) -> bool:
    """Take over what the agent says; return False when it has gone."""
    data = os.read(0, 65536)
    for message in hearing.feed(data):
        if isinstance(message.get("facts"), dict):
            host.facts = message["facts"]
    return bool(data)


def _settled(chosen: Sequence[Check], wanted: Mapping[str, Mapping[str, Any]]) -> list[Check]:
    """Return the checks that are wanted, with the operator's values (`choosing.py` has checked them)."""
    result = []
    for check in chosen:
        if (said := wanted.get(check.name)) is not None:
            options = {name: said.get(name, default) for name, default in check.options.items()}
            times = {"period_s": said.get("period_s", check.period_s), "limit_s": said.get("limit_s", check.limit_s)}
            result.append(replace(check, options=options, **times))
    return result


if __name__ == "__main__":
    attend(serve)
