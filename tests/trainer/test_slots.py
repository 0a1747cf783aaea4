"""Where a save goes, what stays meanwhile, and what a save beside training may and may not see."""

import fcntl
import json
import math
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import reliability.trainer as stepkeeper
from reliability.trainer import copier, room, slots, snapshots
from reliability.trainer.errors import HeaderGrew, SlotMemory, SlotsBusy
from reliability.trainer.folder import JobFolder, Shard
from reliability.trainer.pool import SlotPool
from reliability.trainer.snapshots import MemoryTier, Saving
from reliability.trainer.tree import Early
from tests.trainer.node import REPO
from tests.trainer.shards import read, seal_all

LARGE = 200_000


@pytest.fixture
def folder(tmp_path: Path) -> JobFolder:
    job = JobFolder(tmp_path)
    job.make()
    job.period.write_text('{"version": 1, "plan": [{"from_step": 0, "every_steps": 1}]}')
    return job


def make_tier(folder: JobFolder, epoch: int = 1, **saving: Any) -> MemoryTier:
    return MemoryTier(folder, job="job", epoch=epoch, rank=0, saving=Saving(**saving))


def held(folder: JobFolder) -> list[str]:
    return sorted(path.stem for path in folder.memory.glob("*.snap"))


def value_of(folder: JobFolder, stem: str) -> float:
    seal_all(folder.memory)
    found = read(folder.memory / f"{stem}.json")
    assert len(set(found["w"].tolist())) == 1
    return float(found["w"][0])


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """Copies beside training wait until it is set."""
    event, real = threading.Event(), copier.copy

    def copy(work: Any) -> None:
        if threading.current_thread().name == "stepkeeper-copy":
            assert event.wait(20)
        real(work)

    monkeypatch.setattr(snapshots.copier, "copy", copy)
    yield event
    event.set()


def test_a_save_beside_training_is_of_the_step_it_was_asked_after(folder: JobFolder, gate: threading.Event) -> None:
    tier, state = make_tier(folder), {"w": np.ones(LARGE), "small": np.ones(3)}
    tier.save(1, state, lazy=True)
    assert held(folder) == []
    state["small"][:] = 2  # what is small was copied at once
    gate.set()
    assert tier.settle()
    state["w"][:] = 2
    assert value_of(folder, "e1-s1-r0") == 1.0
    assert read(folder.memory / "e1-s1-r0.json")["small"].tolist() == [1, 1, 1]


def test_a_state_that_is_registered_as_early_is_copied_at_once(folder: JobFolder, gate: threading.Event) -> None:
    tier, state = make_tier(folder), {"average": {"w": np.ones(LARGE)}, "w": np.ones(LARGE)}
    tier.save(1, state, lazy=True, early=Early(names=frozenset({"average"})))
    state["average"]["w"][:] = 2
    gate.set()
    tier.settle()
    seal_all(folder.memory)
    assert read(folder.memory / "e1-s1-r0.json")["average"]["w"][0] == 1.0


def test_the_check_finds_a_state_that_changed_while_it_was_copied_and_the_save_does_not_count(
    folder: JobFolder, gate: threading.Event
) -> None:
    tier, state = make_tier(folder, check=True), {"w": np.ones(LARGE)}
    tier.save(1, state)
    tier.save(2, state, lazy=True)
    state["w"][LARGE // 2] = 7
    gate.set()
    with pytest.raises(stepkeeper.TrainerError, match=r"state\['w'\] changed while it was copied"):
        tier.settle()
    assert held(folder) == ["e1-s1-r0"]
    assert (tier.taken, tier.failed) == (1, 1)
    tier.save(3, state)
    assert held(folder) == ["e1-s1-r0", "e1-s3-r0"]


@pytest.mark.parametrize("lazy", [True, False])
def test_every_save_is_kept_when_one_is_asked_at_every_step(folder: JobFolder, lazy: bool) -> None:
    tier, state = make_tier(folder, threads=2), {"w": np.zeros(5_000_000)}
    for step in range(1, 21):
        state["w"] += 1
        tier.save(step, state, lazy=lazy)
        tier.settle()
    assert (tier.taken, tier.failed) == (20, 0)
    assert held(folder) == ["e1-s19-r0", "e1-s20-r0"]
    assert value_of(folder, "e1-s20-r0") == 20.0


def test_a_slot_that_is_read_is_left_alone_and_the_newest_takes_the_other(folder: JobFolder) -> None:
    tier, state = make_tier(folder), {"w": np.zeros(LARGE)}
    tier.save(1, state)
    with (folder.memory / "e1-s1-r0.snap").open("rb") as reader:
        fcntl.flock(reader, fcntl.LOCK_SH)
        for step in range(2, 6):
            tier.save(step, state)
            assert held(folder) == ["e1-s1-r0", f"e1-s{step}-r0"]
    tier.save(6, state)
    assert held(folder) == ["e1-s5-r0", "e1-s6-r0"]


def test_with_every_slot_read_a_save_is_left_out_counted_and_named(
    folder: JobFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("reliability.trainer.pool.WAIT_S", 0.01)
    tier, state = make_tier(folder), {"w": np.zeros(LARGE)}
    tier.save(1, state)
    tier.save(2, state)
    with (folder.memory / "e1-s1-r0.snap").open() as one, (folder.memory / "e1-s2-r0.snap").open() as two:
        fcntl.flock(one, fcntl.LOCK_SH)
        fcntl.flock(two, fcntl.LOCK_SH)
        with pytest.raises(SlotsBusy):
            tier.save(3, state)
    assert tier.failed == 1
    assert held(folder) == ["e1-s1-r0", "e1-s2-r0"]


def test_a_third_slot_is_there_when_memory_allows(folder: JobFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    tier, state = make_tier(folder, slots=3), {"w": np.zeros(LARGE)}
    for step in range(1, 5):
        tier.save(step, state)
    assert held(folder) == ["e1-s2-r0", "e1-s3-r0", "e1-s4-r0"]
    other, left = JobFolder(folder.root / "other"), [2]
    other.make()

    def check(_folder: Path, _needed: int) -> None:
        left[0] -= 1
        if left[0] < 0:
            raise SlotMemory("full")

    monkeypatch.setattr(room, "check", check)
    tier = make_tier(other, slots=3)
    for step in range(1, 5):
        tier.save(step, state)
    assert held(other) == ["e1-s3-r0", "e1-s4-r0"]


def test_ranks_of_a_node_reserve_one_after_the_other(folder: JobFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    """Together they would each find room for one, and then take room for all."""
    inside, most, real = [0], [0], slots.room.check

    def check(place: Path, needed: int) -> None:
        inside[0] += 1
        most[0] = max(most[0], inside[0])
        real(place, needed)
        threading.Event().wait(0.05)
        inside[0] -= 1

    monkeypatch.setattr(slots.room, "check", check)
    ranks = [
        threading.Thread(target=slots.Slot.reserved, args=(folder.memory / f"slot-{rank}-x-1", 4096))
        for rank in range(6)
    ]
    for each in ranks:
        each.start()
    for each in ranks:
        each.join(20)
    assert (most[0], len(list(folder.memory.glob("slot-*")))) == (1, 6)


def test_a_state_that_grows_moves_to_larger_slots_and_one_is_whole_all_the_time(
    folder: JobFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    tier = make_tier(folder)

    def full(_folder: Path, needed: int) -> None:
        assert held(folder) == [newest], "there is one while slots are made"
        raise SlotMemory(f"{needed} bytes are too many")

    for step in (10, 20, 30):
        state = {"w": np.full(LARGE * step, float(step))}
        if step > 10:
            newest = f"e1-s{step - 9}-r0"
            with monkeypatch.context() as patch:
                patch.setattr(room, "check", full)
                with pytest.raises(SlotMemory):
                    tier.save(step - 1, state)
        tier.save(step, state)
        assert value_of(folder, f"e1-s{step}-r0") == step
        tier.save(step + 1, state)
        assert held(folder) == [f"e1-s{step}-r0", f"e1-s{step + 1}-r0"]


def test_what_is_not_arrays_may_outgrow_its_room_once(folder: JobFolder) -> None:
    tier, state = make_tier(folder), {"w": np.zeros(LARGE), "log": ["x"]}
    tier.save(1, state)
    state["log"] = ["x" * 100_000]
    tier.save(2, state, lazy=True)
    with pytest.raises(HeaderGrew):
        tier.settle()
    tier.save(3, state, lazy=True)
    tier.settle()
    assert held(folder) == ["e1-s1-r0", "e1-s3-r0"]


def test_slots_are_taken_over_by_the_next_attempt_and_by_nobody_else(folder: JobFolder) -> None:
    first, state = make_tier(folder), {"w": np.zeros(LARGE)}
    first.save(1, state)
    first.save(2, state)
    files = {path.stat().st_ino for path in folder.memory.glob("*.snap")}
    beside = make_tier(folder, epoch=2)
    beside.follow(Shard(1, 1, 0))
    beside.save(2, state)  # the first process lives: nothing of its memory is touched
    assert {path.stat().st_ino for path in folder.memory.glob("e1-*.snap")} == files
    beside.close(1.0)
    first.close(1.0)
    third = make_tier(folder, epoch=3)
    third.follow(Shard(2, 2, 0))
    third.save(3, state)
    third.save(4, state)
    assert held(folder) == ["e3-s3-r0", "e3-s4-r0"]
    assert len(list(folder.memory.glob("slot-*"))) == 0


def test_a_file_of_a_newer_attempt_is_never_taken(folder: JobFolder) -> None:
    newer, state = make_tier(folder, epoch=5), {"w": np.zeros(LARGE)}
    newer.save(1, state)
    newer.close(1.0)
    older = SlotPool(folder, rank=0, epoch=4)
    older.reserve(4096)
    assert held(folder) == ["e5-s1-r0"]
    assert all(slot.shard is None for slot in older.slots)


class Optimizer:
    """Has the hook of torch's optimizers."""

    def __init__(self) -> None:
        self.moments = np.zeros(LARGE)
        self.hooks: list[Callable[..., None]] = []

    def register_step_pre_hook(self, hook: Callable[..., None]) -> None:
        self.hooks.append(hook)

    def step(self) -> None:
        for hook in self.hooks:
            hook(self, (), {})
        self.moments += 1

    def state_dict(self) -> dict[str, Any]:
        return {"w": self.moments}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.moments = state["w"]


def attach(folder: JobFolder, **environment: str) -> Any:
    named = {"STEPKEEPER_DIR": str(folder.root), "STEPKEEPER_JOB": "job", "STEPKEEPER_EPOCH": "1"}
    return stepkeeper.attach({**named, **environment})


def test_an_optimizer_says_itself_when_its_state_changes_and_other_states_are_copied_at_once(
    folder: JobFolder, gate: threading.Event
) -> None:
    run, optimizer, order = attach(folder), Optimizer(), np.zeros(LARGE)
    run.register("optimizer", optimizer)
    run.register("data", get=lambda: {"order": order}, set=lambda state: None)
    run.restore()
    optimizer.step()
    run.step(1)
    assert run.snapshots_taken == 0
    order += 5  # nobody said that this must wait
    threading.Timer(0.05, gate.set).start()
    optimizer.step()
    assert run.snapshots_taken == 1
    run.close()
    seal_all(folder.memory)
    found = read(folder.memory / "e1-s1-r0.json")
    assert found["optimizer"]["w"][0] == 1.0
    assert found["data"]["order"][0] == 0.0


def stalls(folder: JobFolder) -> list[float]:
    seal_all(folder.memory)
    records = [json.loads(path.read_bytes()) for path in sorted(folder.memory.glob("e1-*.json"))]
    return [record["stall_s"] for record in records]


def test_waiting_for_a_save_beside_training_is_part_of_its_stall_and_of_no_step(
    folder: JobFolder, gate: threading.Event
) -> None:
    run, optimizer = attach(folder), Optimizer()
    run.register("optimizer", optimizer)
    run.restore()
    optimizer.step()
    run.step(1)
    run._telling.clock.step_s = math.nan  # the next step alone
    began = time.monotonic()
    time.sleep(0.3)  # training goes on meanwhile: no stall
    threading.Timer(0.5, gate.set).start()
    optimizer.step()
    folder.period.write_text('{"version": 2, "plan": [{"from_step": 0, "every_steps": 1000}]}')
    run.step(2)
    took_s = time.monotonic() - began
    (stall_s,) = stalls(folder)
    assert 0.5 <= stall_s < took_s - 0.15, "without the 0.3 s of training"
    assert 0.3 <= run._telling.clock.step_s < took_s - 0.35, "the step itself, without the 0.5 s"
    run.close()


def test_what_training_waits_for_after_the_stall_was_told_is_told_with_the_next_save(
    folder: JobFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    tier, state = make_tier(folder), {"w": np.ones(LARGE)}
    monkeypatch.setattr(tier._pool, "retire", lambda: time.sleep(0.5))
    tier.save(1, state, lazy=True)
    tier.settle()
    monkeypatch.undo()
    tier.save(2, state, lazy=True)
    tier.settle()
    tier.save(3, state)
    tier.settle()
    second, third = stalls(folder)
    assert second >= 0.45
    assert third < 0.4, "each wait is told once"


def test_without_a_word_about_updates_training_waits_for_the_copy(folder: JobFolder) -> None:
    run, state = attach(folder), {"w": np.zeros(LARGE)}
    run.register("state", get=lambda: state, set=state.update)
    run.restore()
    run.step(1)
    assert run.snapshots_taken == 1


def test_a_torn_save_is_reported_and_training_goes_on(folder: JobFolder, gate: threading.Event) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as agent:
        agent.bind(str(folder.agent_socket))
        agent.settimeout(5)
        run = attach(folder, STEPKEEPER_SAVE_MODE="lazy", STEPKEEPER_SAVE_CHECK="1")
        state = {"w": np.zeros(LARGE)}
        run.register("state", get=lambda: state, set=state.update)
        run.restore()
        run.step(1)
        state["w"] += 1
        gate.set()
        run.before_update()
        run.step(2)
        run.close()
        hints = [json.loads(agent.recv(4096)) for _ in range(3)]
    assert [hint["t"] for hint in hints] == ["first_step", "snapshot_problem", "snapshot"]
    assert hints[1]["code"] == "snapshot_torn"
    assert hints[2]["step"] == 2


@pytest.mark.parametrize(("name", "text"), [("STEPKEEPER_SLOTS", "1"), ("STEPKEEPER_SAVE_MODE", "soon")])
def test_a_setting_that_is_none_is_refused_by_name(folder: JobFolder, name: str, text: str) -> None:
    with pytest.raises(stepkeeper.ConfigurationError, match=name):
        attach(folder, **{name: text})


ENDS_AT_ONCE = """
import numpy as np, sys
import reliability.trainer as stepkeeper
run = stepkeeper.attach()
state = {"w": np.ones(4_000_000)}
run.register("state", get=lambda: state, set=state.update)
run.restore()
run.step(1)
"""


def test_the_last_save_of_a_program_that_ends_is_kept(folder: JobFolder) -> None:
    named = {"STEPKEEPER_DIR": str(folder.root), "STEPKEEPER_JOB": "job", "STEPKEEPER_EPOCH": "1"}
    env = {**os.environ, **named, "STEPKEEPER_SAVE_MODE": "lazy", "PYTHONPATH": str(REPO)}
    subprocess.run([sys.executable, "-c", ENDS_AT_ONCE], env=env, check=True, timeout=60)
    assert held(folder) == ["e1-s1-r0"]
    seal_all(folder.memory)
    assert read(folder.memory / "e1-s1-r0.json")["state"]["w"].sum() == 4_000_000
