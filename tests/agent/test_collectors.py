"""Collectors live beside the agent: one that hangs or crashes is told and delays nothing else."""

import os
import signal
import socket
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from reliability.agent.collectors import choosing
from reliability.agent.collectors.checking import Check, Found, Inputs, Outcome
from reliability.agent.collectors.debouncing import FLOOD, LONGEST_S, MOST_AT_ONCE, Debounce
from reliability.agent.collectors.engine_answers import HANGS_S, EngineAnswers
from reliability.agent.collectors.found import Ready
from reliability.agent.collectors.node_checks import NodeChecks
from reliability.agent.collectors.standing import Standings
from reliability.agent.probes.children import Children
from reliability.errors import InvalidInput
from reliability.runtimes.docker import DockerRuntime
from tests.agent.ingest import until


class Reports:
    """Keeps what was reported."""

    def __init__(self) -> None:
        self.bodies: list[dict[str, Any]] = []

    def report_found(self, found: Sequence[Ready], *, source: str, place: str | None) -> None:
        self.bodies += [body for body, _, _ in found]

    def codes(self) -> list[str]:
        return [body["code"] for body in self.bodies]


@contextmanager
def running(folder: Path, module: str, known: tuple[Check, ...], facts: Mapping[str, Any]) -> Iterator[Any]:
    """Give checks that run, their standings and what they reported."""
    standings, reports = Standings(), Reports()
    checks = NodeChecks(
        known,
        choosing.chosen(known, None),
        children=Children(folder / "log"),
        standings=standings,
        reports=reports,
        facts=lambda: facts,
        kept=folder / "checks.json",
        host=module,
    )
    checks.start()
    try:
        yield checks, standings, reports
    finally:
        checks.stop()


HOST = "tests.agent.checks_that_fail"


def test_a_check_that_hangs_is_told_once_and_the_others_stay_fresh(folder: Path) -> None:
    from tests.agent.checks_that_fail import CHECKS

    with running(folder, HOST, CHECKS, {}) as (_, standings, reports):
        until(lambda: standings.told()["counting"]["measured"].get("runs", 0) >= 12)
        told = standings.told()
        assert told["counting"]["ok"] is True
        assert told["sleeping"]["ok"] is None
        assert "did not return within 0.3 s" in told["sleeping"]["reason"]
        assert told["raising"]["ok"] is None
        assert "ValueError" in told["raising"]["reason"]
        assert told["crashing"]["ok"] is None
        assert told["loud"]["measured"] == {"said": "all of it"}
        hangs = [body for body in reports.bodies if body["code"] == "probe-hang"]
        assert [body["fields"] for body in hangs] == [{"check": "sleeping"}]


def test_what_a_check_keeps_outlives_its_host_and_the_agent(folder: Path) -> None:
    from tests.agent.checks_that_fail import CHECKS

    with running(folder, HOST, CHECKS, {}) as (checks, standings, _):
        until(lambda: standings.told()["counting"]["measured"].get("runs", 0) >= 3)
        os.kill(checks.pid(), signal.SIGKILL)
        until(lambda: standings.told()["counting"]["ok"] is None)
        until(lambda: standings.told()["counting"]["measured"].get("runs", 0) >= 6)
    with running(folder, HOST, CHECKS, {}) as (_, standings, _reports):
        until(lambda: standings.told()["counting"]["measured"])
        assert standings.told()["counting"]["measured"]["runs"] >= 7


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting needs root")
@pytest.mark.engine
def test_a_check_that_no_kill_ends_is_left_and_runs_again_when_it_is_gone(folder: Path) -> None:
    """A file system whose server never answers holds a process as a hanging driver does, on every machine."""
    from tests.agent.checks_that_freeze import CHECKS, SilentServer

    known = {"silent": str(folder / "asked")}
    with (
        SilentServer(folder) as server,
        running(folder, "tests.agent.checks_that_freeze", CHECKS, known) as (checks, standings, reports),
    ):
        until(lambda: "did not return" in standings.told()["asking"]["reason"])
        stuck = until(lambda: checks.stuck().get("asking"))
        os.kill(checks.pid(), signal.SIGKILL)
        until(lambda: standings.told()["counting"]["ok"] is None)
        until(lambda: standings.told()["counting"]["ok"])
        runs = standings.told()["counting"]["measured"]["runs"]
        until(lambda: standings.told()["counting"]["measured"]["runs"] > runs + 5)
        assert checks.stuck() == {"asking": stuck}
        assert server.asked == {stuck}, "no second run is started beside one that hangs"
        assert reports.codes().count("probe-hang") == 1
        server.let_go()
        until(lambda: standings.told()["asking"]["ok"])


def test_a_result_grows_old_when_no_more_come() -> None:
    standings = Standings()
    standings.expect("disks", 35.0)
    standings.note("disks", True, "", {}, ended_at=time.clock_gettime(time.CLOCK_BOOTTIME) - 100.0)
    told = standings.told()["disks"]
    assert told["age_s"] > told["limit_s"]


# The operator's file


def _checked(text: str, folder: Path) -> dict[str, Any]:
    def run(_: Inputs) -> Outcome:
        return Outcome(ok=True)

    path = folder / "checks.toml"
    path.write_text(text)
    known = (
        Check(name="disks", run=run, options={"least": 0.5, "root": "/", "deep": False, "free_share": 0.1}),
        Check(name="ecc", run=run),
    )
    return choosing.chosen(known, path)


def test_the_operators_file_changes_what_it_names_and_no_more(folder: Path) -> None:
    found = _checked("[disks]\nleast = 1\nperiod_s = 30\n[ecc]\nenabled = false\n", folder)
    same = {"root": "/", "deep": False, "free_share": 0.1, "limit_s": 5.0}
    assert found == {"disks": {"least": 1.0, "period_s": 30.0, **same}}


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("[disk]\n", "'disk' is no check"),
        ("[disks]\nmost = 1\n", "disks.most cannot be set"),
        ("[disks]\nleast = 'a'\n", "disks.least 'a' cannot be used"),
        ("[disks]\ndeep = 1\n", "disks.deep 1 cannot be used"),
        ("[disks]\nperiod_s = 0\n", "disks.period_s 0.0 cannot be used"),
        ("[disks]\nlimit_s = nan\n", "disks.limit_s nan cannot be used"),
        ("[disks]\nleast = -1\n", "disks.least -1 cannot be used"),
        ("[disks]\nfree_share = 5\n", "disks.free_share 5 cannot be used"),
        ("[disks]\nroot = 'host/sys'\n", "disks.root 'host/sys' cannot be used"),
        ("disks = 1\n", "'disks' stands outside a section"),
        ("[disks\n", "checks.toml"),
        (f"[disks]\nperiod_s = {'9' * 400}\n", f"disks.period_s {'9' * 60}... cannot be used"),
        (f"[disks]\nleast = -{'9' * 400}\n", "disks.least -999"),
        (f"[disks]\nleast = 0x{'f' * 5000}\n", "disks.least of thousands of digits cannot be used"),
        (f"[disks]\ndeep = {{a = 0x{'f' * 5000}}}\n", "disks.deep of thousands of digits cannot be used"),
        (f"[disks]\nleast = {'9' * 5000}\n", "checks.toml holds a number too long"),
        (f"[disks]\nleast = {'[' * 5000}\n", "checks.toml holds a number too long, or values nested too deep"),
    ],
)
def test_a_value_that_cannot_be_used_is_named(folder: Path, text: str, named: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        _checked(text, folder)
    assert caught.value.message.startswith("--checks-file: ")
    assert named in caught.value.message
    assert len(caught.value.message) < 300
    assert caught.value.hint


# Counting instead of repeating


def _told(debounce: Debounce, now: float) -> list[tuple[str, int]]:
    return [(found.code, found.count) for found in debounce.tell(now)]


def test_a_flood_is_counted_and_what_differs_is_told_at_once_behind_it() -> None:
    debounce, reports = Debounce(), list[tuple[str, int]]()
    for number in range(50_000):
        now = number / 10_000
        code = "xid-79" if number == 40_000 else "xid-95"
        debounce.take(Found(code=code, evidence=code, fields={"device": "0000:37:00"}), now)
        told = _told(debounce, now)
        if ("xid-79", 1) in told:
            assert number == 40_000
            assert told[0][0] == "xid-95"
        reports += told
    reports += _told(debounce, 200.0)
    assert len(reports) < 10
    assert sum(count for code, count in reports if code == "xid-95") == 49_999


def test_the_same_after_a_while_is_told_at_once_again() -> None:
    debounce = Debounce()
    for moment in (0.0, 3.0, 600.0):
        debounce.take(Found(code="xid-13", evidence="", fields={"gpc": 1}), moment)
        assert _told(debounce, moment) == [("xid-13", 1)] or moment == 3.0
        debounce.tell(moment + LONGEST_S)


def test_many_different_things_wait_for_the_end_of_the_moment_and_none_is_left_out() -> None:
    debounce, told = Debounce(), 0
    for number in range(20_000):
        debounce.take(Found(code=f"xid-{number}", evidence="", fields={}), 1.0)
        told += len(debounce.tell(1.0))
    assert told == MOST_AT_ONCE
    rest = _told(debounce, 4.0)
    assert len(rest) < 1100
    assert sum(count for _, count in rest) == 20_000 - MOST_AT_ONCE
    assert rest[-1][0] == FLOOD


# The container engine


def test_an_engine_that_takes_calls_and_never_answers_hangs_and_one_that_is_away_does_not(folder: Path) -> None:
    reports, standings = Reports(), Standings()
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(str(folder / "engine.sock"))
        silent.listen()
        hanging = DockerRuntime(f"unix://{folder}/engine.sock", call_limit_s=HANGS_S + 0.2)
        engine = EngineAnswers(hanging.ping, standings=standings, reports=reports)
        engine.look()
        assert standings.told()["engine"]["ok"] is None
        assert "did not answer within 5 s" in standings.told()["engine"]["reason"]
        assert [(body["code"], body["fields"]) for body in reports.bodies] == [("probe-hang", {"check": "engine"})]
    away = DockerRuntime(f"unix://{folder}/engine.sock", call_limit_s=HANGS_S + 0.2)
    engine = EngineAnswers(away.ping, standings=standings, reports=reports)
    engine.look()
    assert standings.told()["engine"]["ok"] is False
    assert len(reports.bodies) == 1
