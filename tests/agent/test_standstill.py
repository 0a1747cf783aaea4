"""A rank that stands still, as its node sees it: since when, in which phase, in which state, and who is told."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from reliability.agent import processes, rankprocess
from reliability.agent.movement import Movement
from reliability.agent.standstill import Rules, Standstill, rules
from reliability.domain.progress import Rule
from tests.agent.locals import JOB, LocalNode, TroubledRuntime
from tests.testbed.cgroups import HostGroup
from tests.trainer.node import wait_until


@pytest.fixture
def local(tmp_path: Path) -> Iterator[LocalNode]:
    runtime = TroubledRuntime(tmp_path / "runtime")
    node = LocalNode(tmp_path, runtime)
    rules.rule = Rule(floor_s=2.0, warm_up_s=2.0)
    yield node
    rules.rule = Rule()
    node.jobs.get(JOB).end_container("the test is over")
    node.jobs.close()


def rank_of(node: LocalNode) -> dict[str, object]:
    (rank,) = node.part.status()["ranks"]
    return rank


def test_a_rank_in_a_phase_beyond_its_limit_is_told_at_once_with_what_it_announced(local: LocalNode) -> None:
    local.start(env={"STUCK_AT": "30", "STUCK_PHASE": "eval", "STUCK_LIMIT_S": "4", "BAD_LOSS_AT": "7"})
    told = wait_until(lambda: local.of_kind("standstill"), "the node asks for a look", 30)
    assert (told[0]["rank"], told[0]["step"], told[0]["phase"]) == (0, 30, "eval")
    assert told[0]["limit_s"] == pytest.approx(4.0, abs=0.5)
    assert told[0]["still_s"] < told[0]["limit_s"] + 2.0
    rank = rank_of(local)
    watch = rank["watch"]
    assert (rank["phase"], rank["step"], watch["timed"]) == ("eval", 30, 30)
    assert 0.01 < watch["median_s"] < 1.0
    assert (watch["bad_loss"]["count"], watch["bad_loss"]["first"]) == (1, 7)
    assert watch["state"] == ""
    assert len(local.of_kind("standstill")) == 1, "once for each time"


def test_a_stopped_rank_is_told_as_stopped_and_its_age_counts_from_its_last_step(local: LocalNode) -> None:
    pid = next(iter(local.start().values()))
    wait_until(lambda: (rank_of(local)["step"] or 0) > 10, "some steps")
    outside = processes.outside_number(local.part.container.running().pid, pid)
    os.kill(outside, signal.SIGSTOP)
    wait_until(lambda: rank_of(local)["watch"]["state"] == "stopped", "seen as stopped", 30)
    before = rank_of(local)
    assert before["phase"] == "training"
    assert before["watch"]["moved_age_s"] >= 3.0
    wait_until(lambda: local.of_kind("standstill"), "the node asks for a look", 30)
    os.kill(outside, signal.SIGCONT)
    after = wait_until(lambda: (now := rank_of(local))["step"] > before["step"] and now, "it goes on", 30)
    assert after["watch"]["state"] == ""
    assert after["watch"]["moves"] != before["watch"]["moves"]


@pytest.mark.engine
def test_a_frozen_rank_is_told_as_frozen_and_ends_when_its_attempt_does(local: LocalNode) -> None:
    pid = next(iter(local.start().values()))
    outside = processes.outside_number(local.part.container.running().pid, pid)
    group = HostGroup(f"stepkeeper-test-{os.getpid()}")
    group.make()
    try:
        group.join_file.write_text(str(outside))
        group.freeze("host")
        wait_until(lambda: rank_of(local)["watch"]["state"] == "frozen", "seen as frozen", 30)
        assert local.part.stop(2, grace_s=0.0) == [0]
        assert not processes.alive(outside)
    finally:
        group.thaw("host")
        wait_until(lambda: not list(group.pids()), "nothing is left in the group", 30)
        group.remove()


def test_the_state_of_a_process_that_nobody_can_see_or_that_nobody_locks_is_not_told(tmp_path: Path) -> None:
    assert rankprocess.state_of(tmp_path / "missing") == ""
    (tmp_path / "alive-0").touch()
    assert rankprocess.state_of(tmp_path / "alive-0") == ""


def test_an_instant_that_a_rank_claims_counts_only_where_it_fits_what_was_seen(tmp_path: Path) -> None:
    movement = Movement()
    movement.look(0, None, None, tmp_path / "log")
    assert movement.quiet_s(0) is None
    (tmp_path / "log").write_text("one")
    movement.look(0, None, None, tmp_path / "log")
    assert movement.quiet_s(0) < 60
    assert movement.longest_quiet_s(0) == 0.0
    assert movement.still_s(3) < 60, "of a rank that never told anything, since the look began"


@pytest.mark.parametrize("told", [None, [], {"floor_s": "x"}, {"floor_s": -1}, {"steps": True}, {"steps": None}])
def test_a_rule_that_makes_no_sense_leaves_the_one_that_is_known(told: object) -> None:
    own = Rules()
    own.learn({"floor_s": 7.0, "steps": 3, "warm_up_s": 50, "more": "new"})
    own.learn(told)
    assert (own.rule.floor_s, own.rule.steps, own.rule.warm_up_s) == (7.0, 3, 50)


def test_ranks_that_tell_of_no_step_or_ended_ask_for_nothing() -> None:
    asked: list[object] = []
    watch = Standstill(lambda kind, body: asked.append(body))
    still = {"rank": 0, "phase": "training", "step": None, "watch": {"moved_age_s": 1e6}}
    watch.look([still, {**still, "rank": 1, "phase": "ended", "step": 4}])
    assert not asked
    watch.look([{**still, "step": 3}])
    watch.look([{**still, "step": 3}])
    assert len(asked) == 1
