"""What a rank tells beyond its step: phases, collectives, step times, losses; and that its node reads what it wrote."""

import math
import random
from pathlib import Path

import pytest

import reliability.trainer as stepkeeper
from reliability.agent import progress as agent_progress
from reliability.agent import watched
from reliability.trainer import watching
from reliability.trainer.errors import ConfigurationError
from reliability.trainer.progress import ProgressRecord, StepClock
from reliability.trainer.telling import Teller
from reliability.trainer.watching import Losses, StepTimes, Watched


def teller(path: Path) -> Teller:
    return Teller(path, epoch=3, said=lambda text: None)


def publish(told: Teller, step: int) -> None:
    told.step(step, 1.0)
    told.publish(step=step, loss=1.0, restored_step=0, plan_version=2)


def test_the_node_reads_each_field_of_both_records_as_the_rank_wrote_it(tmp_path: Path):
    path = tmp_path / "progress-0"
    record = ProgressRecord(path)
    told = Watched(
        epoch=3, moves=4, phase="eval", role="stage-1", phase_limit_s=60.5, moved_at=7.25, median_s=0.5, mad_s=0.25,
        longest_s=9.5, timed=300, compute_s=0.125, waits=True, bad_losses=2, bad_first=11, bad_last=12, spikes=1,
        spike_step=9, spike_loss=8.5, spike_usual=2.5,
    )  # fmt: skip
    assert watched.read(path) is None, "nothing was written yet"
    record.watched.write(told)
    found = watched.read(path)
    assert found is not None
    assert {name: getattr(found, name) for name in vars(told)} == vars(told)
    assert (watching.AT, watching.RECORD.format) == (watched.AT, watched.FORMAT.format)
    assert agent_progress.read(path) is None, "the first record is its own"


def test_a_file_of_an_older_client_or_a_senseless_one_tells_nothing_more(tmp_path: Path):
    path = tmp_path / "progress-0"
    told = teller(path)
    publish(told, 7)
    whole = path.read_bytes()
    assert watched.read(path) is not None
    for spoiled in (whole[:64], whole[:65] + b"\x01" * 190, whole[:64] + bytes(192), whole[:64] + b"\xff" * 192):
        path.write_bytes(spoiled)
        assert watched.read(path) is None
        assert agent_progress.read(path).step == 7
    random.seed(5)
    for _ in range(300):  # whatever a program writes there is read as something that can be sent, or not at all
        path.write_bytes(whole[:64] + bytes([2]) + bytes(7) + random.randbytes(watching.RECORD.size - 8))
        found = watched.read(path)
        assert found is None or all(value is None or value == value for value in found.told().values())


def test_a_phase_is_shown_with_what_is_left_of_its_limit_and_is_no_part_of_a_step(tmp_path: Path):
    told = teller(tmp_path / "p")
    publish(told, 1)
    moves = watched.read(tmp_path / "p").moves
    with told.phase("eval", 60.0):
        with told.phase("load", 5.0):
            inner = watched.read(tmp_path / "p")
        outer = watched.read(tmp_path / "p")
    after = watched.read(tmp_path / "p")
    assert (inner.phase, inner.phase_limit_s) == ("load", pytest.approx(5.0, abs=0.5))
    assert (outer.phase, outer.phase_limit_s) == ("eval", pytest.approx(60.0, abs=5.0))
    assert outer.phase_limit_s < 60.0, "its time goes on while another is within it"
    assert (after.phase, after.phase_limit_s) == ("", None)
    assert after.moves == moves + 4
    assert after.moved_at >= inner.moved_at


def test_a_phase_ends_with_an_error_too(tmp_path: Path):
    told = teller(tmp_path / "p")
    with pytest.raises(ValueError, match="x"), told.phase("eval", 60.0):
        raise ValueError("x")
    publish(told, 1)
    assert watched.read(tmp_path / "p").phase == ""


def test_a_collective_is_shown_while_it_lasts_and_splits_a_step_into_computing_and_waiting(tmp_path: Path):
    told = teller(tmp_path / "p")
    publish(told, 1)
    with told.collective(), told.collective():
        assert watched.read(tmp_path / "p").waits
    assert not watched.read(tmp_path / "p").waits
    told.clock.resume(0.0)
    computing = told._computing
    computing.step(None)
    for _ in range(16):
        computing.waited(0.75)
        computing.step(1.0)
    computing.step(5.0)  # a step without a mark says nothing
    computing.refresh()
    assert computing.compute_s == 0.25


def test_the_times_of_phases_at_any_place_of_a_step_are_left_out():
    clock = StepClock()
    clock.tick(0.0)
    clock.leave_out_since(0.5, 10.5)
    assert clock.tick(11.5) == 1.5
    clock.leave_out_since(5.0, 21.5)  # it began before the step did
    assert clock.tick(22.0) == 0.5


def test_step_times_are_robust_leave_the_first_steps_out_and_forget_a_long_pause_in_the_end():
    times = StepTimes()
    for took in (60.0, 30.0, 20.0, *[2.0] * 6):
        times.add(took)
    assert times.longest_s == 60.0, "all that is known yet"
    times.add(2.0)
    assert times.longest_s == 2.0
    for step in range(64):
        times.add(40.0 if step == 20 else 2.0 + 0.01 * (step % 5))
    times.refresh()
    assert times.median_s == pytest.approx(2.02)
    assert times.mad_s == pytest.approx(0.01)
    assert times.longest_s == 40.0
    for _ in range(33_000):
        times.add(2.0)
    assert times.longest_s < 3.0


def test_losses_that_are_no_numbers_are_counted_with_the_first_and_last_step():
    told = Watched(epoch=1)
    losses = Losses(told)
    for step, loss in enumerate([1.0, math.nan, 1.0, math.inf, -math.inf, 1.0]):
        losses.add(step, loss)
    assert (told.bad_losses, told.bad_first, told.bad_last) == (3, 1, 4)


@pytest.mark.parametrize("seed", range(5))
def test_a_falling_noisy_loss_has_no_spikes_and_one_jump_is_one_spike(seed: int):
    chance = random.Random(seed)
    told = Watched(epoch=1)
    losses = Losses(told)

    def usual(step: int) -> float:
        return 2.0 + 8.0 / (1 + step / 200) + chance.gauss(0, 0.1) + (0.2 if chance.random() < 0.01 else 0.0)

    for step in range(20_000):
        losses.add(step, usual(step))
        if step % 20 == 0:
            losses.refresh()
    assert told.spikes == 0
    for step in range(20_000, 20_006):
        losses.add(step, 11.0)
    for step in range(20_006, 20_100):
        losses.add(step, usual(step))
    assert (told.spikes, told.spike_step, told.spike_loss) == (1, 20_000, 11.0)
    assert told.spike_usual == pytest.approx(2.0, abs=0.3)


@pytest.mark.parametrize(
    ("name", "limit_s"),
    [("", 60), ("two words", 60), ("x" * 25, 60), ("training", 60), ("eval", 0), ("eval", math.inf), ("eval", None)],
)
def test_a_phase_that_is_named_or_limited_as_none_can_be_is_refused_in_words(name: str, limit_s: float):
    with pytest.raises(ConfigurationError, match=r"phase"):
        stepkeeper.phase(name, limit_s=limit_s)


def test_outside_a_guarded_run_the_marks_do_nothing_and_from_anywhere_they_reach_the_run(tmp_path: Path):
    stepkeeper.attach({})
    with stepkeeper.phase("eval", limit_s=60), stepkeeper.collective():
        stepkeeper.role("stage-0")
    for part in ("ctl", "mem", "run", "log"):
        (tmp_path / part).mkdir()
    environment = {"STEPKEEPER_DIR": str(tmp_path), "STEPKEEPER_JOB": "job", "STEPKEEPER_EPOCH": "3", "RANK": "0"}
    run = stepkeeper.attach(environment)
    try:
        stepkeeper.role("stage-0")
        with stepkeeper.phase("eval", limit_s=60):
            found = watched.read(tmp_path / "run" / "progress-0")
        assert (found.epoch, found.phase, found.role) == (3, "eval", "stage-0")
    finally:
        run.close()
        stepkeeper.attach({})
