"""Hangs, broken losses, stragglers and drops of speed: what is found of a job that runs, and what is done about it."""

from datetime import datetime
from typing import Any

import pytest

from reliability.models import Failover, Finding, Incident, Job, Rank, Snapshot, Watch
from reliability.services import beats, clock, fault_codes, watching
from tests.services.world import World

pytestmark = [pytest.mark.django_db, pytest.mark.slow]
PACE = {"median_s": 2.0, "mad_s": 0.05, "longest_s": 2.4, "timed": 300}
HANGS = ("hang", "hang-newcomer", "hang-somewhere")


def tell(world: World, rank: int, **told: Any) -> None:
    """Have the agent that runs a rank tell this of it; what goes into `watch` is added to the pace."""
    phase = {"phase": told.pop("phase")} if "phase" in told else {"phase": "training"}
    for agent in world.agents.values():
        if rank in agent.ranks:
            agent.told[rank] = {**phase, "watch": {**PACE, **told}}


def eight_ranks(world: World, **spec: Any) -> Job:
    """Run a job of 8 ranks on n1 and n2, all of which tell their pace."""
    job = world.running_job(nodes=2, ranks_per_node=4, **spec)
    for rank in range(8):
        tell(world, rank)
    pass_seconds(world, 6, 2.0)
    return job


def stop_stepping(world: World) -> datetime:
    for agent in world.agents.values():
        agent.stepping = False
    return clock.now()


def go_on(world: World) -> None:
    for agent in world.agents.values():
        agent.stepping, agent.told = True, {}


def hangs() -> list[Finding]:
    return list(Finding.objects.filter(code__in=HANGS).order_by("pk"))


def pass_seconds(world: World, seconds: float, every_s: float = 1.0) -> None:
    """Let time pass in which nodes beat and progress is watched, and nothing else is done."""
    for _ in range(int(seconds / every_s)):
        world.pass_time(every_s)
        for agent in world.agents.values():
            agent.train()
            agent.beat()
        beats.flush(clock.now())
        watching.look(clock.now())


def until_hang(world: World) -> Finding:
    for _ in range(60):
        pass_seconds(world, 1)
        if hangs():
            break
    (hang,) = hangs()
    return hang


def test_a_rank_that_stays_in_its_evaluation_is_found_at_its_limit_and_restarted_in_place(world: World) -> None:
    """C07: eight ranks, rank 5 stops in its evaluation of 60 s at most, the others wait for it."""
    eight_ranks(world)
    world.save(20)
    began = stop_stepping(world)
    tell(world, 5, phase="eval", phase_limit_s=60.0, moves=1)
    pass_seconds(world, 54, 2.0)
    pass_seconds(world, 4)
    assert not hangs(), "the others are long over the limit of a step, but wait for a phase that was announced"
    pass_seconds(world, 5)
    (hang,) = hangs()
    assert 60.0 <= (hang.found_at - began).total_seconds() <= 62.0
    assert (hang.code, hang.rank, hang.node.name, hang.fault_class) == ("hang", 5, "n2", "software")
    assert "limit 60 s = what the program announced for eval" in hang.evidence
    assert "Rank 5: step" in hang.evidence
    assert "Ranks 0-4, 6-7: step" in hang.evidence
    go_on(world)
    recovery = world.recover()
    assert (recovery.kind, recovery.state, recovery.moves) == ("restart_in_place", "completed", [])


def test_a_step_that_takes_longer_than_the_stated_limit_is_a_hang_of_the_rank_that_is_stopped(world: World) -> None:
    eight_ranks(world)
    began = stop_stepping(world)
    tell(world, 2, state="stopped")
    hang = until_hang(world)
    assert 30.0 <= (hang.found_at - began).total_seconds() <= 32.0
    assert (hang.rank, hang.node.name) == (2, "n1")
    assert "No step for" in hang.evidence
    assert "its process is stopped by a signal" in hang.evidence


def test_nobody_is_suspected_where_no_rank_differs_and_the_job_is_restarted_all_the_same(world: World) -> None:
    eight_ranks(world)
    stop_stepping(world)
    hang = until_hang(world)
    assert (hang.code, hang.rank) == ("hang-somewhere", None)
    assert Failover.objects.get().kind == "restart_in_place"


def test_a_hang_a_short_while_after_a_node_joined_makes_it_the_first_suspect(world: World) -> None:
    eight_ranks(world)
    world.save(20)
    world.agents["n2"].power_off()
    for agent in world.agents.values():
        agent.stepping = False
    world.until(Failover.objects.exists, seconds=15)
    go_on(world)
    world.recover()
    for rank in range(8):
        tell(world, rank)
    pass_seconds(world, 5)
    stop_stepping(world)
    hang = until_hang(world)
    assert (hang.code, hang.node.name) == ("hang-newcomer", "s1")


def test_an_episode_is_told_once_and_its_end_is_noted(world: World) -> None:
    eight_ranks(world)
    fault_codes.change("hang-somewhere", values={"action": "observe"}, by="ann", reason="shadow")
    stop_stepping(world)
    pass_seconds(world, 50, 2.0)
    assert len(hangs()) == 1
    assert Watch.objects.get().hang["evidence"] == hangs()[0].evidence
    go_on(world)
    pass_seconds(world, 3)
    over = Finding.objects.get(code="progress-again")
    assert "Training goes on" in over.evidence
    assert Incident.objects.get(code="hang-somewhere").closed_at is not None
    assert not Failover.objects.exists()
    for rank in range(8):
        tell(world, rank)
    pass_seconds(world, 3)
    stop_stepping(world)
    pass_seconds(world, 50, 2.0)
    assert len(hangs()) == 2, "another one is another finding"


@pytest.mark.parametrize("jump_s", [3600, -3600, 70])
def test_a_server_that_was_away_or_whose_clock_was_set_finds_no_hang_in_that_time(world: World, jump_s: int) -> None:
    eight_ranks(world)
    world.pass_time(jump_s)
    watching.look(clock.now())
    beats.flush(clock.now())
    watching.look(clock.now())
    for agent in world.agents.values():
        agent.beat()  # nothing has moved since
    beats.flush(clock.now())
    watching.look(clock.now())
    assert not hangs()
    pass_seconds(world, 40, 2.0)
    assert not hangs()


def test_what_is_not_heard_of_is_not_judged_and_a_job_that_is_recovering_has_no_hang(world: World) -> None:
    eight_ranks(world)
    world.agents["n2"].beating = False  # training goes on there, as far as anybody can tell
    world.agents["n1"].stepping = False
    pass_seconds(world, 5)
    Rank.objects.update(moved_at=clock.now().replace(year=2020))
    watching.look(clock.now())
    assert not hangs()


def test_a_program_that_tells_of_no_steps_falls_quiet_and_that_is_only_observed(world: World, settings: Any) -> None:
    settings.QUIET_S = 30
    for agent in world.agents.values():
        agent.stepless = True
    world.running_job(nodes=2, mode="plain")
    for age in range(0, 30, 2):
        for agent in world.agents.values():
            told = {"output_age_s": float(age), "output_longest_s": 9.0}
            agent.told = {rank: {"phase": "starting", "watch": told} for rank in agent.ranks}
        assert not Finding.objects.exists()
        pass_seconds(world, 2, 2.0)
    pass_seconds(world, 4, 2.0)
    finding = Finding.objects.get(code="no-progress")
    assert "is not known" in finding.evidence
    assert not Failover.objects.exists()


def test_a_loss_that_is_no_number_is_told_once_with_rank_and_step(world: World) -> None:
    eight_ranks(world)
    tell(world, 3, bad_loss={"count": 2, "first": 7, "last": 8})
    tell(world, 6, bad_loss={"count": 1, "first": 8, "last": 8})
    pass_seconds(world, 5)
    finding = Finding.objects.get(code="loss-no-number")
    assert (finding.rank, finding.fault_class, finding.action) == (3, "application", "observe")
    assert "at step 7" in finding.evidence
    assert not Failover.objects.exists()


def test_where_policy_restarts_for_a_broken_loss_what_was_saved_since_is_not_gone_back_to(world: World) -> None:
    eight_ranks(world)
    fault_codes.change("loss-no-number", values={"action": "restart_in_place"}, by="ann", reason="restart")
    for step in (5, 6, 8):
        world.save(step)
    tell(world, 3, bad_loss={"count": 2, "first": 6, "last": 7})
    world.until(Failover.objects.exists, seconds=10)
    assert set(Snapshot.objects.filter(distrusted=True).values_list("step", flat=True)) == {6, 8}
    assert Failover.objects.get().restore_step == 5


def test_a_loss_that_jumps_is_observed_and_more_jumps_soon_after_add_nothing(world: World) -> None:
    eight_ranks(world)
    tell(world, 0, spike={"count": 1, "step": 9, "loss": 11.5, "usual": 2.25})
    pass_seconds(world, 3)
    tell(world, 0, spike={"count": 2, "step": 11, "loss": 12.5, "usual": 2.25})
    pass_seconds(world, 3)
    finding = Finding.objects.get(code="loss-spike")
    assert "a loss of 11.5 after step 9; usual were 2.25" in finding.evidence
    assert not Failover.objects.exists()


def windows(world: World, count: int, *, told: bool = True, **slow: Any) -> None:
    """Let so many windows pass in which ranks compute 1.5 s, and rank 6 what `slow` says."""
    for rank in range(8) if told else ():
        tell(world, rank, **{"compute_s": 1.5 + rank / 1000, **(slow if rank == 6 else {})})
    for _ in range(count):
        world.pass_time(watching.WINDOW_S)
        for agent in world.agents.values():
            agent.ranks = {rank: step + 20 for rank, step in agent.ranks.items()}
            agent.beat()
        beats.flush(clock.now())
        watching.watch(world.job().pk, clock.now(), clock.now())


def test_a_rank_that_keeps_computing_longer_is_a_straggler_that_nothing_is_done_about(world: World) -> None:
    eight_ranks(world)
    windows(world, 6)
    windows(world, 7, compute_s=2.0)
    assert not Finding.objects.filter(code="straggler").exists(), "it has to last"
    windows(world, 3, compute_s=2.0)
    finding = Finding.objects.get(code="straggler")
    assert (finding.rank, finding.node.name, finding.action) == (6, "n2", "observe")
    assert "33 % more than the median" in finding.evidence
    assert not Failover.objects.exists()
    windows(world, 5)
    assert Finding.objects.filter(code="progress-again").count() == 1
    assert not Watch.objects.get().stragglers


def test_a_job_that_becomes_slower_than_it_was_is_told_once_with_both_times(world: World) -> None:
    eight_ranks(world)
    windows(world, 33)
    slower = {**PACE, "median_s": 3.0}
    for agent in world.agents.values():
        agent.told = {rank: {"phase": "training", "watch": slower} for rank in agent.ranks}
    windows(world, 10, told=False)
    finding = Finding.objects.get(code="throughput-drop")
    assert "A step takes 3.000 s, usual in this attempt are 2.000 s: 33 % less" in finding.evidence
