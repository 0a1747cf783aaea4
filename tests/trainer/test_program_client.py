"""The client where a program writes its snapshots itself: it tells of steps and of what is due, and saves nothing."""

import errno
import json
import socket
from pathlib import Path

import pytest

from reliability.trainer import ConfigurationError, attach
from reliability.trainer.integrations.steps import Steps
from tests.trainer.node import write_whole


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    for part in ("ctl", "mem", "run", "log", "out"):
        (tmp_path / part).mkdir()
    write_whole(tmp_path / "ctl/period.json", {"version": 3, "plan": [{"from_step": 0, "every_steps": 4}]})
    named = {"STEPKEEPER_DIR": str(tmp_path), "STEPKEEPER_JOB": "j", "STEPKEEPER_EPOCH": "2", "RANK": "0"}
    return {**named, "STEPKEEPER_SNAPSHOT_DIR": str(tmp_path / "out"), "STEPKEEPER_SNAPSHOT_MARKER": "DONE"}


def test_it_tells_steps_from_the_restored_one_on_and_what_is_due_and_saves_nothing(
    environment: dict[str, str], tmp_path: Path
) -> None:
    run = attach({**environment, "STEPKEEPER_RESTORE_STEP": "4"})
    assert run.restore() == 4
    for step in range(5, 10):
        run.step(step, loss=0.5)
        assert run.due(step) == (step == 8)
        run.resumed()
    run.close()
    assert list((tmp_path / "mem").iterdir()) == []
    assert (tmp_path / "run/progress-0").is_file()


def test_states_cannot_be_registered_where_nobody_would_save_them(environment: dict[str, str]) -> None:
    run = attach(environment)
    with pytest.raises(ConfigurationError, match="the files its program writes") as caught:
        run.register("model", get=dict, set=dict)
    assert "snapshot_folder" in caught.value.hint


def test_a_step_is_gathered_out_of_sight_and_has_its_name_and_its_marker_at_once(
    environment: dict[str, str], tmp_path: Path
) -> None:
    steps = Steps(
        {**environment, "STEPKEEPER_RESTORE_STEP": "4", "STEPKEEPER_RESTORE_DIR": str(tmp_path / "out/step-4")}
    )
    assert (steps.start, steps.restored) == (4, tmp_path / "out" / "step-4")
    (steps.gathering(8) / "w").write_bytes(b"left by an earlier try")
    (steps.gathering(8) / "x").write_bytes(b"x")
    assert [path.name for path in (tmp_path / "out").iterdir()] == [".step-8.part"]
    assert sorted(path.name for path in steps.seal(8).iterdir()) == ["DONE", "x"]
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["step-8"]
    assert steps.due(8)
    assert not steps.due(9)
    steps.report(5)
    steps.report(5)  # a framework may call twice after one step
    with pytest.raises(ConfigurationError):
        steps.run.step(5)


def test_without_a_guarded_job_nothing_is_due_and_a_guarded_one_needs_the_folder(environment: dict[str, str]) -> None:
    steps = Steps({})
    assert (steps.start, steps.folder, steps.restored, steps.due(4)) == (0, None, None, False)
    steps.report(1)
    with pytest.raises(ConfigurationError, match="outside a guarded job"):
        steps.gathering(4)
    guarded = {key: value for key, value in environment.items() if not key.startswith("STEPKEEPER_SNAPSHOT")}
    with pytest.raises(ConfigurationError, match="no snapshot folder") as caught:
        Steps(guarded)
    assert "[snapshot_folder]" in caught.value.hint


def test_a_save_that_failed_is_told_to_the_node_and_to_who_reads_the_output(
    environment: dict[str, str], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as agent:
        agent.bind(str(tmp_path / "run/agent.sock"))
        steps = Steps(environment)
        steps.failed(8, OSError(errno.ENOSPC, "No space left on device"))
        told = json.loads(agent.recv(4096))
    assert (told["t"], told["step"], told["tier"], told["code"]) == ("snapshot_problem", 8, "ssd", "tier_full")
    assert "SSD" in told["hint"]
    assert "no snapshot after step 8, training goes on" in capfd.readouterr().err


def test_a_node_that_had_nothing_to_write_still_marks_its_part_of_a_step(
    environment: dict[str, str], tmp_path: Path
) -> None:
    Steps(environment).mark(tmp_path / "out" / "checkpoint-4")
    assert [path.name for path in (tmp_path / "out" / "checkpoint-4").iterdir()] == ["DONE"]


def test_a_step_that_fails_leaves_nothing_and_what_a_killed_one_left_goes_with_the_next(
    environment: dict[str, str], tmp_path: Path
) -> None:
    steps, out = Steps(environment), tmp_path / "out"
    for name in (".step-1.part", ".step-99.part", ".mine.part", "step-3"):
        (out / name / "deep").mkdir(parents=True)
    (out / ".step-2.part").touch()
    (steps.gathering(4) / "w").write_bytes(b"w")
    assert sorted(path.name for path in out.iterdir()) == [".mine.part", ".step-4.part", "step-3"]
    assert steps.gathering(4, own=False) == out / ".step-4.part"
    steps.failed(4, OSError(errno.ENOSPC, "No space left on device"))
    assert sorted(path.name for path in out.iterdir()) == [".mine.part", "step-3"]
    with pytest.raises(FileNotFoundError):
        steps.seal(4)
    assert sorted(path.name for path in out.iterdir()) == [".mine.part", "step-3"]
