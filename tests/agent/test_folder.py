"""What a container can do to the folder it shares with the agent, and what the agent makes of it."""

import json
import os
import stat
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from reliability.agent.folder import JobFolder
from reliability.agent.hints import HintSocket
from reliability.agent.jobrecord import JobRecord
from reliability.agent.rankfiles import RankFiles
from reliability.errors import TierError
from reliability.tiers import copying
from reliability.tiers.directory import DirectoryTier
from reliability.tiers.shards import Shard
from tests.agent.shardfiles import commit, digest

Told = list[tuple[str, Mapping[str, Any]]]


@pytest.fixture
def folder(tmp_path: Path) -> JobFolder:
    folder = JobFolder(tmp_path / "memory" / "lm")
    folder.make()
    return folder


@pytest.fixture
def told() -> Told:
    return []


@pytest.fixture
def record() -> JobRecord:
    record = JobRecord(job="lm")
    record.begin(1, [0, 1], None)
    return record


@pytest.fixture
def files(folder: JobFolder, record: JobRecord, told: Told) -> RankFiles:
    return RankFiles(folder, record, lambda kind, body: told.append((kind, body)))


@pytest.fixture
def outside(tmp_path: Path) -> Iterator[Path]:
    """A folder of the host that nothing may be written to."""
    outside = tmp_path / "host"
    outside.mkdir()
    yield outside
    assert sorted(path.name for path in outside.iterdir()) == ["epoch-1.json"]
    assert (outside / "epoch-1.json").read_text() == "precious"


def in_time(action: Callable[[], Any]) -> None:
    """Run something that must not wait for ever."""
    thread = threading.Thread(target=action, daemon=True)
    thread.start()
    thread.join(timeout=5)
    assert not thread.is_alive(), "it waits for something that never comes"


def end(folder: JobFolder, rank: int, content: Any = None) -> None:
    ended = content or {"epoch": 1, "rank": rank, "exit_code": 3, "signal": None, "at": 0, "tail": "bye"}
    (folder.root / "ctl" / f"exit-1-{rank}.json").write_text(json.dumps(ended))


def of(told: Told, kind: str) -> list[Mapping[str, Any]]:
    return [body for each, body in told if each == kind]


def bad_empty(path: Path) -> None:
    path.write_text("{}")


def bad_pipe(path: Path) -> None:
    os.mkfifo(path)


def bad_link(path: Path) -> None:
    path.symlink_to("/etc/passwd")


def bad_huge(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(2**30)


def bad_time(path: Path) -> None:
    path.write_text(json.dumps({"size_bytes": 1, "digest": digest(b"x"), "stall_s": "long"}))


def bad_folder(path: Path) -> None:
    path.mkdir()


@pytest.mark.parametrize("spoil", [bad_empty, bad_pipe, bad_link, bad_huge, bad_time, bad_folder])
def test_one_bad_commit_record_hides_neither_other_snapshots_nor_ends_and_is_told_once(
    folder: JobFolder, files: RankFiles, told: Told, spoil: Callable[[Path], None]
) -> None:
    memory = folder.root / "mem"
    commit(memory, Shard(1, 10, 0), b"a")
    (memory / "e1-s20-r0.snap").write_bytes(b"b")
    spoil(memory / "e1-s20-r0.json")
    commit(memory, Shard(1, 30, 0), b"c")
    end(folder, 1)
    for _ in range(3):
        in_time(files.look)
    assert [body["step"] for body in of(told, "snapshot_copy")] == [10, 30]
    assert [body["step"] for body in of(told, "snapshot_problem")] == [20]
    assert of(told, "snapshot_problem")[0]["code"] == "corrupt"
    assert [body["rank"] for body in of(told, "rank_exit")] == [1]


def test_a_record_removed_after_the_listing_is_passed_over(
    folder: JobFolder, files: RankFiles, told: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit(folder.root / "mem", Shard(1, 20, 0), b"a")
    monkeypatch.setattr(DirectoryTier, "keys", lambda *_: ["e1-s10-r0", "e1-s20-r0"])
    files.look()
    assert [body["step"] for body in of(told, "snapshot_copy")] == [20]
    assert of(told, "snapshot_problem") == []


def test_a_pipe_in_the_place_of_any_file_is_not_waited_for(folder: JobFolder, files: RankFiles) -> None:
    for name in ("ctl/exit-1-0.json", "ctl/run-1.json", "ctl/ready.json", "ctl/epoch-1.json", "run/progress-0"):
        os.mkfifo(folder.root / name)
    in_time(files.look)
    in_time(lambda: (folder.ready(), folder.pids(1), folder.epoch_order(1), folder.progress(0)))


def test_an_end_that_the_program_scribbled_over_is_told_as_an_end(
    folder: JobFolder, files: RankFiles, told: Told
) -> None:
    end(folder, 0, {"exit_code": "fine", "signal": 10**9, "tail": 7})
    files.look()
    assert [(body["exit_code"], body["signal"]) for body in of(told, "rank_exit")] == [(255, None)]


def test_a_report_that_could_not_be_kept_is_made_again(folder: JobFolder, record: JobRecord, told: Told) -> None:
    full = [True]

    def report(kind: str, body: Mapping[str, Any]) -> None:
        if full[0]:
            raise OSError("database or disk is full")
        told.append((kind, body))

    files = RankFiles(folder, record, report)
    end(folder, 0)
    with pytest.raises(OSError, match="full"):
        files.look()
    assert record.exits_reported == []
    full[0] = False
    assert files.look()
    assert [body["rank"] for body in of(told, "rank_exit")] == [0]
    assert record.exits_reported == [0]
    assert not files.look()


@pytest.mark.parametrize("part", ["ctl", "mem", "run"])
def test_nothing_is_written_through_a_folder_that_the_container_turned_into_a_link(
    folder: JobFolder, outside: Path, part: str
) -> None:
    (outside / "epoch-1.json").write_text("precious")
    (folder.root / part).rmdir()
    (folder.root / part).symlink_to(outside)
    source = outside.parent / "source"
    source.write_bytes(b"x")
    actions: dict[str, list[Callable[[], Any]]] = {
        "ctl": [
            lambda: folder.write_epoch(1, {}),
            lambda: folder.write_period(version=1, plan=[]),
            folder.forget_ready,
        ],
        "mem": [lambda: folder.memory.put(source, "e1-s1-r0", digest=digest(b"x"))],
        "run": [lambda: HintSocket(folder.socket_path)],
    }
    for action in actions[part]:
        with pytest.raises((OSError, TierError)):
            action()
    folder.forget_epochs_below(9)
    with pytest.raises(TierError, match=part):
        folder.make()


def test_a_link_in_the_place_of_a_file_is_replaced_and_not_followed(folder: JobFolder, outside: Path) -> None:
    target = outside / "epoch-1.json"
    target.write_text("precious")
    before = stat.S_IMODE(target.stat().st_mode)
    for name in ("ctl/epoch-2.json", "ctl/epoch-2.json.agent.part", "run/agent.sock", "mem/e1-s1-r0.snap.agent.part"):
        (folder.root / name).symlink_to(target)
    source = outside.parent / "source"
    source.write_bytes(b"x")
    folder.write_epoch(2, {"stop": True})
    folder.memory.put(source, "e1-s1-r0", digest=digest(b"x"))
    HintSocket(folder.socket_path).close()
    assert folder.epoch_order(2) == {"epoch": 2, "stop": True}
    assert stat.S_IMODE(target.stat().st_mode) == before


def test_a_shard_that_is_a_link_is_not_copied(folder: JobFolder, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_bytes(b"x")
    (folder.root / "mem" / "e1-s1-r0.snap").symlink_to(secret)
    with pytest.raises(TierError):
        copying.copy_verified(folder.memory.data_path("e1-s1-r0"), tmp_path / "copy", digest=digest(b"x"))
    assert not (tmp_path / "copy").exists()


def test_only_the_agents_user_may_look_into_a_job_and_its_secrets(folder: JobFolder) -> None:
    folder.root.chmod(0o755)  # as an older release made it
    folder.make()
    folder.write_epoch(1, {"ranks": [{"env": {"TOKEN": "secret"}}]})
    assert stat.S_IMODE(folder.root.stat().st_mode) == 0o700
    assert stat.S_IMODE((folder.root / "ctl" / "epoch-1.json").stat().st_mode) == 0o600


def test_writers_of_the_same_file_at_the_same_time_never_leave_half_of_one(folder: JobFolder) -> None:
    plan = [{"from_step": step, "every_steps": 5} for step in range(2000)]
    failures: list[BaseException] = []

    def write() -> None:
        try:
            for _ in range(30):
                folder.write_period(version=1, plan=plan)
                copying.write_json(folder.root / "record.json", {"plan": plan})
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=write) for _ in range(4)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        for path in (folder.root / "ctl" / "period.json", folder.root / "record.json"):
            if path.exists():
                assert len(json.loads(path.read_bytes())["plan"]) == 2000
    assert failures == []
    assert list(folder.root.rglob("*.part")) == []
