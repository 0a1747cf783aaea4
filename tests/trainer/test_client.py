"""Does a program that uses the client train on, restore what it saved, and keep what it must?"""

import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import reliability.trainer as stepkeeper
from reliability.trainer import progress
from tests.trainer.node import REPO, write_whole
from tests.trainer.shards import seal_all


class Model:
    """A state as programs have it."""

    def __init__(self) -> None:
        self.weights = np.zeros(1000)

    def state_dict(self) -> dict[str, Any]:
        return {"weights": self.weights}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.weights[...] = state["weights"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for part in ("ctl", "mem", "run", "log"):
        (tmp_path / part).mkdir()
    write_period(tmp_path, 1)
    return tmp_path


def write_period(folder: Path, every_steps: int, version: int = 1) -> None:
    write_whole(
        folder / "ctl/period.json", {"version": version, "plan": [{"from_step": 0, "every_steps": every_steps}]}
    )


def attach(folder: Path, *, epoch: int = 1, rank: int = 0, restore: str = "", seal: bool = True) -> tuple[Any, Model]:
    environment = {
        "STEPKEEPER_DIR": str(folder),
        "STEPKEEPER_JOB": "job",
        "STEPKEEPER_EPOCH": str(epoch),
        "RANK": str(rank),
        "WORLD_SIZE": "2",
    }
    if restore:
        if seal:
            seal_all(folder / "mem")
        environment["STEPKEEPER_RESTORE"] = str(folder / "mem" / restore)
    run = stepkeeper.attach(environment)
    model = Model()
    run.register("model", model)
    return run, model


def train(run: Any, model: Model, until: int) -> None:
    for step in range(run.restore() + 1, until + 1):
        model.weights += step
        run.step(step, loss=1.0 / step)
    run.close()


def shards(folder: Path, rank: int = 0) -> list[str]:
    """Shards of a rank by name; once sealed each must have both of its files and nothing else may lie there."""
    seal_all(folder / "mem")
    names = {path.name for path in (folder / "mem").glob(f"*-r{rank}.*")}
    stems = {name.split(".")[0] for name in names}
    assert names == {stem + ending for stem in stems for ending in (".snap", ".json")}
    return sorted(stems, key=lambda stem: tuple(int(part[1:]) for part in stem.split("-")))


def test_outside_a_guarded_run_the_same_program_runs_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    run = stepkeeper.attach({"RANK": "1", "WORLD_SIZE": "3"})
    model = Model()
    run.register("model", model)
    train(run, model, 5)
    assert (run.guarded, run.rank, run.world_size, run.epoch) == (False, 1, 3, 0)
    assert list(tmp_path.iterdir()) == []


def test_a_restored_state_is_the_saved_one_and_the_step_goes_on(folder: Path):
    run, model = attach(folder)
    train(run, model, 4)
    again, restored = attach(folder, epoch=2, restore="e1-s3-r0.json")
    assert again.restore() == 3
    assert restored.weights.tolist() == [6.0] * 1000
    restored.weights += 4
    again.step(4)
    assert restored.weights.tolist() == model.weights.tolist()


def test_the_commit_record_names_exactly_what_the_protocol_says(folder: Path):
    run, model = attach(folder, rank=1)
    train(run, model, 1)
    seal_all(folder / "mem")
    record = json.loads((folder / "mem/e1-s1-r1.json").read_text())
    assert set(record) == {
        "job", "epoch", "step", "rank", "size_bytes", "digest", "taken_at", "stall_s", "format", "generation", "moment",
        "taken", "failed", "chunks", "sums", "check",
    }  # fmt: skip
    assert record["size_bytes"] == (folder / "mem/e1-s1-r1.snap").stat().st_size
    assert (record["epoch"], record["step"], record["rank"], record["generation"]) == (1, 1, 1, 1)
    assert record["digest"].startswith("xxh3:")
    assert len(record["digest"]) == len("xxh3:") + 32


def test_the_stall_counts_from_gathering_the_state_on_and_holds_what_follows_the_record(
    folder: Path, monkeypatch: pytest.MonkeyPatch
):
    run, model = attach(folder)
    run.register("slow", get=lambda: time.sleep(0.05), set=lambda value: None)
    monkeypatch.setattr(run._tier._pool, "retire", lambda: time.sleep(0.5))
    before = time.time()
    train(run, model, 2)
    seal_all(folder / "mem")
    first, second = (json.loads((folder / f"mem/e1-s{step}-r0.json").read_text()) for step in (1, 2))
    assert 0.05 <= first["stall_s"] < 0.5
    assert second["stall_s"] >= 0.55  # with the clearing away after the first, which its own record could not know
    assert before <= first["taken_at"] < before + 0.5
    assert run._telling.clock.step_s < 0.5


def test_snapshots_are_taken_when_due_and_the_newest_two_are_kept(folder: Path):
    write_period(folder, 2)
    run, model = attach(folder)
    train(run, model, 11)
    assert shards(folder) == ["e1-s8-r0", "e1-s10-r0"]
    assert run.snapshots_taken == 5


def test_other_ranks_shards_are_left_alone(folder: Path):
    for rank in (0, 1):
        run, model = attach(folder, rank=rank)
        train(run, model, 4)
    assert len(shards(folder, 0)) == len(shards(folder, 1)) == 2


def test_the_restored_shard_stays_until_a_newer_one_is_committed(folder: Path):
    run, model = attach(folder)
    train(run, model, 2)
    write_period(folder, 1000)
    again, model = attach(folder, epoch=2, restore="e1-s1-r0.json")
    train(again, model, 9)
    assert "e1-s1-r0" in shards(folder)


def test_shards_of_an_abandoned_history_do_not_push_out_those_of_the_line_that_goes_on(folder: Path):
    run, model = attach(folder)
    train(run, model, 2)
    again, model = attach(folder, epoch=2, restore="e1-s1-r0.json")
    again.restore()
    again.step(2)
    assert shards(folder) == ["e1-s1-r0", "e2-s2-r0"]


def test_leftovers_of_a_killed_save_are_swept_and_never_count(folder: Path):
    run, model = attach(folder)
    train(run, model, 1)
    for name in ("e1-s2-r0.snap.part", "e1-s3-r0.snap", "e1-s4-r0.json.77.part", "e1-s2-r1.snap.part"):
        (folder / "mem" / name).write_bytes(b"half")
    again, _model = attach(folder, epoch=2, restore="e1-s1-r0.json")
    again.restore()
    assert shards(folder) == ["e1-s1-r0"]
    assert (folder / "mem/e1-s2-r1.snap.part").exists()


def test_progress_and_the_first_step_are_told(folder: Path):
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as agent:
        agent.bind(str(folder / "run/agent.sock"))
        agent.settimeout(5)
        write_period(folder, 2, version=4)
        run, model = attach(folder)
        train(run, model, 2)
        first, snapshot = json.loads(agent.recv(4096)), json.loads(agent.recv(4096))
    assert first == {"t": "first_step", "epoch": 1, "rank": 0, "step": 1, "restored_step": 0, "plan_version": 4}
    assert snapshot == {"t": "snapshot", "epoch": 1, "rank": 0, "step": 2}
    seen = progress.read(folder / "run/progress-0")
    assert seen is not None
    assert (seen.epoch, seen.step, seen.loss, seen.plan_version) == (1, 2, 0.5, 4)


def test_an_agent_that_does_not_listen_any_more_costs_nothing(folder: Path):
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as agent:
        agent.bind(str(folder / "run/agent.sock"))
        run, model = attach(folder)
        train(run, model, 1500)  # far more hints than its queue takes
    assert run.problem == ""
    assert run.snapshots_taken == 1500


@pytest.mark.parametrize("damage", ["flip", "cut", "empty", "no shard", "no record", "bad record", "other format"])
def test_a_shard_that_does_not_verify_ends_the_rank_with_86_before_it_trains(
    folder: Path, damage: str, capsys: pytest.CaptureFixture[str]
):
    run, model = attach(folder)
    train(run, model, 1)
    seal_all(folder / "mem")
    shard, record = folder / "mem/e1-s1-r0.snap", folder / "mem/e1-s1-r0.json"
    whole = bytearray(shard.read_bytes())
    whole[-5] ^= 1
    fields = json.loads(record.read_text())
    {
        "flip": lambda: shard.write_bytes(whole),
        "cut": lambda: shard.write_bytes(whole[:-9]),
        "empty": lambda: shard.write_bytes(b""),
        "no shard": shard.unlink,
        "no record": record.unlink,
        "bad record": lambda: record.write_text(json.dumps({**fields, "step": "1"})),
        "other format": lambda: record.write_text(json.dumps({**fields, "format": "else"})),
    }[damage]()
    again, _model = attach(folder, epoch=2, restore="e1-s1-r0.json", seal=False)
    with pytest.raises(SystemExit) as ended:
        again.restore()
    assert ended.value.code == 86
    assert "cannot restore" in capsys.readouterr().err


def test_the_shard_of_another_rank_is_not_restored(folder: Path):
    run, model = attach(folder, rank=1)
    train(run, model, 1)
    again, _model = attach(folder, epoch=2, rank=0, restore="e1-s1-r1.json")
    with pytest.raises(SystemExit):
        again.restore()


def test_states_that_differ_from_the_snapshot_are_named(folder: Path):
    run, model = attach(folder)
    train(run, model, 1)
    again, _model = attach(folder, epoch=2, restore="e1-s1-r0.json")
    again.register("optimizer", Model())
    with pytest.raises(stepkeeper.StateMismatch, match=r"not in the snapshot: \['optimizer'\]"):
        again.restore()


def test_a_state_that_cannot_be_stored_is_reported_and_training_goes_on(
    folder: Path, capsys: pytest.CaptureFixture[str]
):
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as agent:
        agent.bind(str(folder / "run/agent.sock"))
        agent.settimeout(5)
        run, model = attach(folder)
        run.register("odd", get=lambda: {"x": object()}, set=lambda state: None)
        train(run, model, 2)
        hints = [json.loads(agent.recv(4096)) for _ in range(3)]
    problem = next(hint for hint in hints if hint["t"] == "snapshot_problem")
    assert problem["code"] == "state_unsupported"
    assert "['odd']['x']" in problem["message"]
    assert shards(folder) == []
    assert capsys.readouterr().err.count("training goes on") == 1


def test_a_program_error_while_saving_does_not_stop_training(folder: Path):
    def broken() -> None:
        raise RuntimeError("not now")

    run, model = attach(folder)
    run.register("broken", get=broken, set=lambda state: None)
    train(run, model, 2)
    assert run.problem == "RuntimeError: not now"


ON_A_SMALL_DISK = """
import os, sys
import numpy as np
folder = sys.argv[1]
import reliability.trainer as stepkeeper
run = stepkeeper.attach()
state = {"w": np.ones(60_000)}
run.register("state", get=lambda: state, set=state.update)
run.restore()
print("start", run.problem)
filler = folder + "/mem/filler"
with open(filler, "wb") as file:
    try:
        while True:
            file.write(b"x" * 65536)
            file.flush()
    except OSError:
        pass
run.step(1)
print("full", run.snapshots_taken, sorted(name for name in os.listdir(folder + "/mem") if name.endswith(".snap")))
"""


@pytest.mark.parametrize(
    ("size", "start", "full"),
    [("2m", "start ", "full 1 ['e1-s1-r0.snap']"), ("700k", "start the slots for snapshots need", "full 0 []")],
)
def test_memory_for_snapshots_is_there_from_the_start_or_its_lack_is_told_and_training_goes_on(
    tmp_path: Path, size: str, start: str, full: str
):
    """On a real file system of that size, mounted in a name space of its own."""
    script = tmp_path / "program.py"
    script.write_text(ON_A_SMALL_DISK)
    job = tmp_path / "job"
    job.mkdir()
    mount = f"mount -t tmpfs -o size={size} tmpfs {job} && mkdir -p {job}/ctl {job}/mem {job}/run {job}/log"
    plan = '{"version": 1, "plan": [{"from_step": 0, "every_steps": 1}]}'
    shell = f"{mount} && echo '{plan}' > {job}/ctl/period.json && exec {sys.executable} {script} {job}"
    names = ["unshare", "--mount"] if os.geteuid() == 0 else ["unshare", "--user", "--map-root-user", "--mount"]
    env = {**os.environ, "PYTHONPATH": str(REPO), "STEPKEEPER_DIR": str(job), "STEPKEEPER_JOB": "j"}
    done = subprocess.run(
        [*names, "sh", "-c", shell],
        env={**env, "STEPKEEPER_EPOCH": "1"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    began, filled = done.stdout.splitlines()
    assert began.startswith(start)
    assert filled == full


@pytest.mark.parametrize("step", [3, 2, 0])
def test_a_step_counter_that_does_not_rise_is_an_error_of_the_program(step: int):
    run = stepkeeper.attach({})
    run.step(3)
    with pytest.raises(stepkeeper.ConfigurationError, match="must rise"):
        run.step(step)


def test_what_cannot_be_registered_is_refused():
    run = stepkeeper.attach({})
    run.register("a", Model())
    with pytest.raises(stepkeeper.ConfigurationError, match="already"):
        run.register("a", Model())
    with pytest.raises(stepkeeper.ConfigurationError, match="no way out and in"):
        run.register("b", object())
    with pytest.raises(stepkeeper.ConfigurationError, match="no way out and in"):
        run.register("c", get=dict)


@pytest.mark.parametrize(
    ("environment", "message"),
    [
        ({"RANK": "first"}, "RANK must be a whole number"),
        ({"WORLD_SIZE": "-1"}, "WORLD_SIZE"),
        ({"STEPKEEPER_DIR": "/nowhere/at/all", "STEPKEEPER_JOB": "j", "STEPKEEPER_EPOCH": "1"}, "not a folder"),
        ({"STEPKEEPER_DIR": "/"}, "STEPKEEPER_JOB"),
    ],
)
def test_a_contradictory_environment_is_refused_by_name(environment: dict[str, str], message: str):
    with pytest.raises(stepkeeper.ConfigurationError, match=message):
        stepkeeper.attach(environment)
