"""Copies to the next tier: durable, verified, newest first, and never half a file that counts."""

import argparse
import json
import os
import signal
import sqlite3
import stat
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from reliability.agent import config, jobrecord
from reliability.agent.jobrecord import JobRecord
from reliability.agent.movers import Movers
from reliability.agent.ssd_mover import KEEP_ON_SSD, SsdMover
from reliability.tiers import copying
from reliability.tiers.directory import DirectoryTier
from reliability.tiers.shards import Shard
from tests.agent.ingest import until
from tests.agent.moverprocess import JOB, MoverProcess
from tests.agent.shardfiles import commit, damage


@pytest.fixture
def to_ssd(tmp_path: Path) -> Iterator[MoverProcess]:
    mover = MoverProcess(tmp_path, "ssd_mover")
    yield mover
    mover.kill()


@pytest.fixture
def to_storage(tmp_path: Path) -> Iterator[MoverProcess]:
    mover = MoverProcess(tmp_path, "storage_mover")
    yield mover
    mover.kill()


def test_the_newest_snapshot_is_copied_first_and_only_as_many_as_are_kept(to_ssd: MoverProcess) -> None:
    for step in range(10, 80, 10):
        commit(to_ssd.memory, Shard(1, step, 0), b"x" * step)
    to_ssd.start()
    until(lambda: len(to_ssd.steps()) == KEEP_ON_SSD)
    assert to_ssd.steps() == [70, 60, 50, 40]


def test_a_drain_counts_from_the_end_of_the_stall_until_the_copy_is_durable(to_ssd: MoverProcess) -> None:
    commit(to_ssd.memory, Shard(1, 10, 0), b"x")
    path = to_ssd.memory / "e1-s10-r0.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "taken_at": time.time() - 10.0, "stall_s": 4.0}))
    to_ssd.start()
    until(to_ssd.steps)
    assert 6.0 <= to_ssd.said[0]["body"]["drain_s"] < 9.0


def test_the_time_of_the_copying_itself_is_part_of_the_drain(tmp_path: Path) -> None:
    source, tier = tmp_path / "shard", DirectoryTier(tmp_path / "ssd")
    source.write_bytes(b"x")
    seen = []

    def record() -> dict[str, Any]:
        seen.append(tier.data_path("e1-s10-r0").exists())
        return {"drain_s": 1.0}

    tier.put(source, "e1-s10-r0", digest=copying.digest_of(source)[0], record=record)
    assert (seen, tier.record("e1-s10-r0")["drain_s"]) == ([True], 1.0)


def test_a_drain_of_a_shard_that_nobody_saw_being_saved_is_not_known(to_ssd: MoverProcess) -> None:
    commit(to_ssd.memory, Shard(1, 10, 0), b"x")
    path = to_ssd.memory / "e1-s10-r0.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "taken_at": 0.0}))
    to_ssd.start()
    until(to_ssd.steps)
    assert to_ssd.said[0]["body"]["drain_s"] is None


def test_what_was_copied_before_is_told_again_after_a_restart(to_ssd: MoverProcess) -> None:
    commit(to_ssd.memory, Shard(1, 10, 0), b"x")
    to_ssd.start()
    first = until(lambda: to_ssd.steps() and to_ssd.said[0])
    to_ssd.kill()
    to_ssd.said.clear()
    to_ssd.start()
    assert until(lambda: to_ssd.steps() and to_ssd.said[0]) == first


def test_a_mover_killed_in_the_middle_of_a_copy_leaves_nothing_that_counts(to_ssd: MoverProcess) -> None:
    content = os.urandom(2**20) * 64
    commit(to_ssd.memory, Shard(1, 10, 0), content)
    target = DirectoryTier(to_ssd.ssd / JOB)
    part = to_ssd.ssd / JOB / "e1-s10-r0.snap.n.part"
    for _ in range(3):
        to_ssd.start()
        until(part.exists)
        os.kill(to_ssd.process.pid, signal.SIGKILL)
        to_ssd.kill()
        assert target.keys("") == []
        assert part.exists()
    to_ssd.start()
    until(lambda: to_ssd.steps() == [10])
    record = target.record("e1-s10-r0")
    assert copying.verify(target.data_path("e1-s10-r0"), digest=record["digest"]) == len(content)
    assert list((to_ssd.ssd / JOB).glob("*.part")) == []


def test_a_damaged_shard_is_never_copied_and_is_reported(to_ssd: MoverProcess) -> None:
    damage(commit(to_ssd.memory, Shard(1, 10, 0), b"x" * 1000)["path"])
    to_ssd.start()
    problem = until(to_ssd.problems)[0]
    assert (problem["code"], problem["tier"], problem["step"]) == ("digest_mismatch", "ssd", 10)
    assert list((to_ssd.ssd / JOB).glob("*")) == []


@pytest.fixture
def small_disk() -> Iterator[Path]:
    """A file system of 1 MiB."""
    folder = Path(tempfile.mkdtemp(prefix="sk-small-"))
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)], check=True)
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)
    folder.rmdir()


def test_a_full_storage_is_reported_leaves_no_part_and_is_used_again_when_there_is_room(
    to_storage: MoverProcess, small_disk: Path
) -> None:
    ballast = small_disk / "ballast"
    ballast.write_bytes(bytes(700 * 1024))
    to_storage.record.storage_dir = str(small_disk)
    to_storage.save()
    commit(to_storage.ssd / JOB, Shard(1, 10, 0), os.urandom(600 * 1024))
    to_storage.start()
    problem = until(to_storage.problems)[0]
    assert (problem["code"], problem["tier"]) == ("tier_full", "storage")
    assert problem["hint"]
    assert [path for path in small_disk.rglob("*") if path.is_file()] == [ballast]
    ballast.unlink()
    until(lambda: to_storage.steps() == [10])
    assert len(to_storage.problems()) == 1, "the same trouble is not told at every try"


def test_a_storage_folder_that_is_not_there_is_reported_and_not_made(to_storage: MoverProcess) -> None:
    missing = to_storage.folder / "not-mounted"
    to_storage.record.storage_dir = str(missing)
    to_storage.save()
    commit(to_storage.ssd / JOB, Shard(1, 10, 0), b"x")
    to_storage.start()
    problem = until(to_storage.problems)[0]
    assert problem["code"] == "tier_unreachable"
    assert str(missing) in problem["message"]
    assert not missing.exists()
    missing.mkdir()
    until(lambda: to_storage.steps() == [10])


def test_shards_of_an_abandoned_line_go_only_after_the_new_line_has_committed(to_ssd: MoverProcess) -> None:
    for step in (10, 20, 30):
        commit(to_ssd.memory, Shard(1, step, 0), b"x")
    to_ssd.start()
    until(lambda: sorted(to_ssd.steps()) == [10, 20, 30])
    to_ssd.record.begin(2, [0], (1, 20))
    to_ssd.save()
    to_ssd.safe(epoch=2, ssd=20)
    target = DirectoryTier(to_ssd.ssd / JOB)
    begun = time.monotonic()
    until(lambda: time.monotonic() - begun > 1.2)
    assert target.keys("") == ["e1-s10-r0", "e1-s20-r0", "e1-s30-r0"]
    commit(to_ssd.memory, Shard(2, 25, 0), b"y")
    until(lambda: target.keys("") == ["e1-s10-r0", "e1-s20-r0", "e2-s25-r0"])


def test_storage_keeps_what_is_not_yet_complete_there(to_storage: MoverProcess) -> None:
    target = DirectoryTier(to_storage.storage / JOB)
    for step in range(10, 130, 10):
        commit(to_storage.storage / JOB, Shard(1, step, 0), b"x", stored=True)
        commit(to_storage.storage / JOB, Shard(1, step, 7), b"x", stored=True)
    to_storage.safe(storage=20)
    to_storage.start()
    until(lambda: "e1/s10-r0" not in target.keys("e1/"))
    assert "e1/s20-r0" in target.keys("e1/")
    to_storage.safe(storage=120)
    until(lambda: sum(key.endswith("-r0") for key in target.keys("")) == 8)
    assert sum(key.endswith("-r7") for key in target.keys("")) == 12, "another node's rank is not ours to tidy"


def held_on_ssd(mover: MoverProcess) -> list[int]:
    return sorted(int(key.split("-s")[1].split("-")[0]) for key in DirectoryTier(mover.ssd / JOB).keys(""))


def commit_and_wait(mover: MoverProcess, steps: range) -> None:
    for step in steps:
        commit(mover.memory, Shard(1, step, 0), b"x")
        until(lambda step=step: step in mover.steps())


def test_the_ssd_keeps_the_last_step_that_all_ranks_have_however_far_one_rank_is_ahead(to_ssd: MoverProcess) -> None:
    to_ssd.start()
    commit_and_wait(to_ssd, range(10, 60, 10))
    assert held_on_ssd(to_ssd) == [10, 20, 30, 40, 50], "no step is known to be safe yet"
    to_ssd.safe(ssd=20)
    until(lambda: held_on_ssd(to_ssd) == [20, 30, 40, 50])
    commit_and_wait(to_ssd, range(60, 100, 10))
    assert held_on_ssd(to_ssd) == list(range(20, 100, 10))
    to_ssd.safe(ssd=90)
    until(lambda: held_on_ssd(to_ssd) == [60, 70, 80, 90])


def test_a_floor_told_for_an_older_attempt_removes_nothing(to_ssd: MoverProcess) -> None:
    to_ssd.start()
    commit_and_wait(to_ssd, range(10, 60, 10))
    to_ssd.record.begin(2, [0], (1, 50))
    to_ssd.save()
    to_ssd.safe(epoch=1, ssd=50)
    commit(to_ssd.memory, Shard(2, 60, 0), b"x")
    until(lambda: 60 in to_ssd.steps())
    assert held_on_ssd(to_ssd) == [10, 20, 30, 40, 50, 60]


def test_one_damaged_shard_and_one_bad_record_do_not_hold_up_the_others_and_are_told_once(
    to_ssd: MoverProcess,
) -> None:
    damage(commit(to_ssd.memory, Shard(1, 30, 0), b"x" * 1000)["path"])
    (to_ssd.memory / "e1-s40-r0.snap").write_bytes(b"x")
    (to_ssd.memory / "e1-s40-r0.json").write_text("{}")
    commit(to_ssd.memory, Shard(1, 20, 0), b"x")
    to_ssd.start()
    until(lambda: to_ssd.steps() == [20])
    commit(to_ssd.memory, Shard(1, 50, 0), b"x")
    until(lambda: to_ssd.steps() == [20, 50])
    found = [(problem["step"], problem["code"]) for problem in to_ssd.problems()]
    assert sorted(found) == [(30, "digest_mismatch"), (40, "corrupt")]
    commit(to_ssd.memory, Shard(1, 30, 0), b"good again")
    until(lambda: 30 in to_ssd.steps())


def test_a_copy_on_the_ssd_whose_record_was_torn_does_not_stop_the_mover(to_storage: MoverProcess) -> None:
    for step in (10, 20):
        commit(to_storage.ssd / JOB, Shard(1, step, 0), b"x")
    (to_storage.ssd / JOB / "e1-s20-r0.json").write_text('{"digest"')
    to_storage.start()
    until(lambda: to_storage.steps() == [10])
    assert [problem["step"] for problem in to_storage.problems()] == [20]


def options(mover: MoverProcess) -> argparse.Namespace:
    folders = {"jobs_dir": mover.jobs, "memory_dir": mover.folder / "memory", "ssd_dir": mover.ssd}
    return argparse.Namespace(node="n", parent=os.getpid(), **folders)


def test_a_job_that_is_over_and_copied_costs_nothing_until_it_begins_again(
    to_ssd: MoverProcess, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    commit(to_ssd.memory, Shard(1, 10, 0), b"x")
    to_ssd.record.released = True
    to_ssd.save()
    mover = SsdMover(options(to_ssd))
    assert mover.pass_once(), "what is not copied yet is copied after the release too"
    assert not mover.pass_once()
    looks: list[str] = []
    real = DirectoryTier.keys
    monkeypatch.setattr(DirectoryTier, "keys", lambda tier, prefix: looks.append(prefix) or real(tier, prefix))
    monkeypatch.setattr(jobrecord, "load_all", None)
    assert not mover.pass_once()
    assert looks == []
    monkeypatch.undo()
    to_ssd.record.released = False
    to_ssd.save()
    commit(to_ssd.memory, Shard(1, 20, 0), b"x")
    assert mover.pass_once()
    assert sorted(held_on_ssd(to_ssd)) == [10, 20]


def test_what_cannot_be_said_is_not_taken_for_said(to_ssd: MoverProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    commit(to_ssd.memory, Shard(1, 10, 0), b"x")
    said: list[tuple[Any, ...]] = []
    tries = [OSError("the pipe is full")]

    def say(*words: Any) -> None:
        if tries:
            raise tries.pop()
        said.append(words)

    monkeypatch.setattr("reliability.agent.lane.say", say)
    mover = SsdMover(options(to_ssd))
    with pytest.raises(OSError, match="full"):
        mover.pass_once()
    assert mover.pass_once()
    assert [word[0] for word in said] == ["snapshot_copy"]


def test_what_another_job_of_this_name_left_on_the_ssd_is_set_aside_and_not_told(to_ssd: MoverProcess) -> None:
    """As after an installation was lost with its database, and the job was submitted to a new one."""
    theirs = DirectoryTier(to_ssd.ssd / JOB)
    theirs.claim("theirs", ranks=1)
    commit(to_ssd.ssd / JOB, Shard(1, 1000, 0), b"theirs")
    commit(to_ssd.memory, Shard(1, 10, 0), b"ours")
    to_ssd.record.job_key = "ours"
    to_ssd.save()
    to_ssd.start()
    until(lambda: to_ssd.steps() == [10])
    assert [problem["code"] for problem in to_ssd.problems()] == ["tier_conflict"]
    [aside] = [path for path in to_ssd.ssd.iterdir() if path.is_dir() and path.name != JOB]
    assert (aside / "e1-s1000-r0.snap").read_bytes() == b"theirs"
    to_ssd.kill()
    to_ssd.said.clear()
    to_ssd.start()
    until(lambda: to_ssd.steps() == [10])
    assert to_ssd.problems() == []


def test_an_ssd_whose_owner_file_was_emptied_keeps_its_copies(to_ssd: MoverProcess) -> None:
    ours = DirectoryTier(to_ssd.ssd / JOB)
    ours.claim("ours", ranks=1)
    commit(to_ssd.ssd / JOB, Shard(1, 10, 0), b"ours")
    (to_ssd.ssd / JOB / "owner.json").write_bytes(b"")
    to_ssd.record.job_key = "ours"
    to_ssd.save()
    to_ssd.start()
    until(lambda: to_ssd.steps() == [10])
    assert to_ssd.problems() == []
    assert [path.name for path in to_ssd.ssd.iterdir() if path.is_dir()] == [JOB]
    assert (to_ssd.ssd / JOB / "owner.json").read_bytes() == (to_ssd.ssd / JOB / "owner-again.json").read_bytes() != b""


def test_copies_on_the_ssd_are_for_the_agents_user_alone(to_ssd: MoverProcess) -> None:
    to_ssd.start()
    commit_and_wait(to_ssd, range(10, 20, 10))
    assert stat.S_IMODE((to_ssd.ssd / JOB).stat().st_mode) == 0o700


def test_movers_go_on_after_any_failure_and_it_is_told_when_there_is_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("data/jobs", "memory", "ssd"):
        (tmp_path / name).mkdir(parents=True)
    argv = ["--server=http://127.0.0.1:9", "--name=n", "--address=127.0.0.1", "--runtime=process"]
    argv += [f"--{name}-dir={tmp_path / name}" for name in ("data", "memory", "ssd")]
    told: list[dict[str, Any]] = []
    full = [True]

    def report(_kind: str, body: dict[str, Any], **_about: Any) -> None:
        if full[0]:
            raise sqlite3.OperationalError("database or disk is full")
        told.append(body)

    real, failing = subprocess.Popen, [True]

    def popen(*args: Any, **given: Any) -> Any:
        if failing[0]:
            raise OSError(11, "Resource temporarily unavailable")
        return real(*args, **given)

    monkeypatch.setattr("reliability.agent.movers.subprocess.Popen", popen)
    movers = Movers(config.parse(argv, {}), SimpleNamespace(epoch=lambda _job: 1), report)
    movers.start()
    try:
        begun = time.monotonic()
        until(lambda: time.monotonic() - begun > 0.5)
        full[0] = failing[0] = False
        until(lambda: len(movers.pids()) == 2)
        until(lambda: {body["code"] for body in told} == {"mover-failed"})
        assert "Resource temporarily unavailable" in told[0]["evidence"]
    finally:
        movers.stop()


def test_a_mover_ends_with_the_agent(to_ssd: MoverProcess) -> None:
    to_ssd.start()
    assert to_ssd.process is not None
    assert to_ssd.process.stdin is not None
    to_ssd.process.stdin.close()
    assert to_ssd.process.wait(timeout=5) == 0


def test_what_was_brought_to_begin_from_is_not_copied_before_it_is_known_whose_it_is(to_ssd: MoverProcess) -> None:
    """Else the job's own shards would lie on the SSD without an owner, and be set aside once it begins."""
    to_ssd.record.started_epoch = 0
    to_ssd.save()
    commit(to_ssd.memory, Shard(1, 10, 0), b"restored")
    to_ssd.start()
    other = JobRecord(job="other", epoch=1, started_epoch=1, ranks=[0], job_key="other")
    jobrecord.save(to_ssd.jobs, other)
    memory = to_ssd.folder / "memory" / "other" / "mem"
    memory.mkdir(parents=True)
    commit(memory, Shard(1, 5, 0), b"x", job="other")
    until(lambda: to_ssd.steps() == [5])  # it has looked at both
    assert not list((to_ssd.ssd / JOB).glob("*.snap"))
    to_ssd.record.started_epoch, to_ssd.record.job_key = 2, "ours"
    to_ssd.save()
    until(lambda: to_ssd.steps() == [5, 10])
    assert not to_ssd.problems()
    assert [path.name for path in to_ssd.ssd.iterdir() if path.is_dir() and "aside" in path.name] == []
