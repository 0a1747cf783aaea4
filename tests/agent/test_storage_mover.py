"""The third process of a snapshot's way, to an object store: away, full, slow, cut off, shared, and never wrong."""

import os
import signal
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from reliability.agent.passed_over import PassedOver
from reliability.tiers import choosing
from reliability.tiers.directory import DirectoryTier
from reliability.tiers.shards import Shard
from tests.agent.ingest import until
from tests.agent.moverprocess import JOB, MoverProcess
from tests.agent.shardfiles import commit, damage
from tests.stores.s3 import S3Server, forbidden, full, slow

MODULE = "storage_mover"


@pytest.fixture
def mover(tmp_path: Path, s3_url: str) -> Iterator[MoverProcess]:
    mover = MoverProcess(tmp_path, MODULE)
    mover.record.storage_dir = s3_url
    mover.save()
    yield mover
    mover.kill()


def saved(mover: MoverProcess, step: int, content: bytes = b"x", *, rank: int = 0, epoch: int = 1) -> dict[str, str]:
    return commit(mover.ssd / JOB, Shard(epoch, step, rank), content)


def stored(mover: MoverProcess) -> list[str]:
    return list(choosing.job_tier(mover.record.storage_dir, JOB).keys(""))


def findings(mover: MoverProcess, code: str) -> list[dict[str, object]]:
    return [line["body"] for line in mover.listen() if line["kind"] == "finding" and line["body"]["code"] == code]


def test_snapshots_go_to_an_object_store_and_are_named_by_its_address(mover: MoverProcess, s3_url: str) -> None:
    for step in (10, 20):
        saved(mover, step, b"x" * step)
    mover.start()
    until(lambda: sorted(mover.steps()) == [10, 20])
    assert mover.said[0]["body"]["path"] == f"{s3_url}/lm/e1/s20-r0.snap"
    assert stored(mover) == ["e1/s10-r0", "e1/s20-r0"]


def test_a_store_that_is_away_is_told_and_used_when_it_is_back(mover: MoverProcess, s3: S3Server) -> None:
    s3.stop()
    try:
        saved(mover, 10)
        mover.start()
        problem = until(mover.problems)[0]
        assert (problem["code"], problem["tier"]) == ("tier_unreachable", "storage")
        saved(mover, 20)
    finally:
        s3.start()
    until(lambda: mover.steps()[:2] == [20, 10], 30)
    assert len(mover.problems()) == 1


def test_a_full_store_is_told_leaves_no_part_and_is_used_again(mover: MoverProcess, s3: S3Server) -> None:
    with s3.troubled(full):
        saved(mover, 10, os.urandom(2**20))
        mover.start()
        assert until(mover.problems, 40)[0]["code"] == "tier_full"
        assert s3.paths() == []
    until(lambda: mover.steps() == [10], 30)


def test_a_mover_killed_in_mid_upload_goes_on_where_it_was(mover: MoverProcess, s3: S3Server) -> None:
    content = os.urandom(2**20) * 100
    saved(mover, 10, content)
    with s3.troubled(slow(0.3)):
        mover.start()
        until(lambda: len(s3.paths("team/lm/parts/")) >= 2, 30)
        assert mover.process is not None
        os.kill(mover.process.pid, signal.SIGKILL)
        mover.kill()
    assert stored(mover) == []
    first = set(s3.paths("team/lm/parts/"))
    s3.requests.clear()
    mover.start()
    until(lambda: mover.steps() == [10], 40)
    sent = {path.removeprefix("/snapshots/") for method, path in s3.requests if method == "PUT" and "/00" in path}
    assert sent, "there was something left to send"
    assert not first & sent, "what was there already is not sent again"
    assert b"".join(choosing.job_tier(mover.record.storage_dir, JOB).pieces("e1/s10-r0")) == content


def _rests(s3: S3Server) -> bool:
    """Return whether nothing arrives for longer than a slow request takes."""
    before = len(s3.requests)
    threading.Event().wait(0.8)
    return len(s3.requests) == before


def test_parts_of_a_try_that_nobody_takes_up_again_are_swept(mover: MoverProcess, s3: S3Server) -> None:
    saved(mover, 10, os.urandom(2**20) * 40)
    with s3.troubled(slow(0.3)):
        mover.start()
        until(lambda: s3.paths("team/lm/parts/"), 30)
        mover.kill()
        until(lambda: _rests(s3), 30)  # what was under way when it was killed may arrive after that
    DirectoryTier(mover.ssd / JOB).delete("e1-s10-r0")
    saved(mover, 20)
    mover.start()
    until(lambda: mover.steps() == [20], 30)
    assert all("/e1/s20-r0/" in path for path in s3.paths("team/lm/parts/"))


def test_a_try_that_was_given_up_leaves_nothing_though_the_mover_was_never_started_anew(
    mover: MoverProcess, s3: S3Server
) -> None:
    def lose_the_second_part(environ: Mapping[str, Any]) -> tuple[str, bytes] | None:
        return forbidden(environ) if environ["PATH_INFO"].endswith("000001") else None

    saved(mover, 10, os.urandom(2**20) * 20)
    with s3.troubled(lose_the_second_part):
        mover.start()
        until(mover.problems, 20)
        assert [path for path in s3.paths("team/lm/parts/") if "/e1/s10-r0/" in path]
        DirectoryTier(mover.ssd / JOB).delete("e1-s10-r0")
        saved(mover, 20)
        until(lambda: mover.steps() == [20], 30)
    assert all("/e1/s20-r0/" in path for path in s3.paths("team/lm/parts/"))


def test_a_slow_store_gets_the_newest_each_time_and_the_others_are_counted(mover: MoverProcess, s3: S3Server) -> None:
    ssd = DirectoryTier(mover.ssd / JOB)
    with s3.troubled(slow(0.7)):
        saved(mover, 10)
        mover.start()
        until(lambda: any("/parts/e1/s10" in path for _, path in s3.requests), 20)
        for step in range(20, 60, 10):
            saved(mover, step)
        begun = len(s3.requests)
        until(lambda: len(s3.requests) > begun, 20)
        for step in (10, 20, 30, 40):
            ssd.delete(f"e1-s{step}-r0")
        until(lambda: mover.steps()[:2] == [10, 50], 30)
        told = until(lambda: findings(mover, "store-behind"), 20)
    copy = next(line["body"] for line in mover.said if line["kind"] == "snapshot_copy" and line["body"]["step"] == 50)
    assert copy["superseded"] == 3
    assert told[0]["count"] == 3
    assert "longer than until the next" in str(told[0]["evidence"])


def test_what_came_and_went_while_a_copy_was_under_way_is_counted_too(tmp_path: Path) -> None:
    passed = PassedOver(DirectoryTier(tmp_path), 8)
    commit(tmp_path, Shard(1, 10, 0), b"x")
    with passed.watching():
        commit(tmp_path, Shard(1, 20, 0), b"x")
        until(lambda: Shard(1, 20, 0) in passed._seen)
        DirectoryTier(tmp_path).delete("e1-s20-r0")
        commit(tmp_path, Shard(1, 30, 0), b"x")
        until(lambda: Shard(1, 30, 0) in passed._seen)
    passed.stored(Shard(1, 10, 0), 1.0)
    assert passed.take() == 0, "nothing newer is stored yet"
    assert passed.before(Shard(1, 30, 0)) == 1
    assert passed.before(Shard(1, 30, 0)) == 1, "a try that failed keeps the count"
    passed.stored(Shard(1, 30, 0), 1.0)
    assert (passed.take(), passed.take()) == (1, 0)
    assert passed.before(Shard(1, 40, 0)) == 0


def test_a_step_that_other_nodes_have_begun_is_finished_before_a_newer_one_is_begun(
    mover: MoverProcess, tmp_path: Path
) -> None:
    theirs = tmp_path / "theirs"
    theirs.write_bytes(b"y")
    digest = commit(tmp_path / "digest", Shard(1, 20, 1), b"y")["digest"]
    other = choosing.job_tier(mover.record.storage_dir, JOB, owner="node-b")
    for step in (5, 20):
        other.put(theirs, f"e1/s{step}-r1", digest=digest)
    for step in (5, 10, 20, 30):
        saved(mover, step)
    mover.start()
    until(lambda: len(mover.steps()) == 4, 20)
    assert mover.steps() == [20, 30, 10, 5], "the whole step first, then the newest; nobody goes back to older ones"


def test_what_the_mover_stored_before_is_told_again_and_shards_of_other_ranks_are_left(
    mover: MoverProcess, tmp_path: Path
) -> None:
    theirs = tmp_path / "theirs"
    theirs.write_bytes(b"y")
    digest = commit(tmp_path / "digest", Shard(1, 20, 1), b"y")["digest"]
    choosing.job_tier(mover.record.storage_dir, JOB, owner="node-b").put(theirs, "e1/s10-r1", digest=digest)
    for step in range(10, 130, 10):
        saved(mover, step)
    mover.start()
    until(lambda: len(mover.steps()) == 8, 30)
    mover.kill()
    mover.said.clear()
    mover.safe(storage=120)
    saved(mover, 130)
    mover.start()
    until(lambda: len(mover.steps()) >= 9, 30)
    until(lambda: len([key for key in stored(mover) if key.endswith("-r0")]) == 8, 20)
    assert "e1/s10-r1" in stored(mover)


@pytest.mark.parametrize("kind", ["object store", "folder"])
def test_the_place_of_another_job_of_this_name_is_told_and_neither_believed_nor_touched(
    mover: MoverProcess, tmp_path: Path, kind: str
) -> None:
    mover.record.storage_dir = mover.record.storage_dir if kind == "object store" else str(mover.storage)
    mover.record.job_key = "ours"
    mover.save()
    theirs = tmp_path / "theirs"
    theirs.write_bytes(b"y")
    digest = commit(tmp_path / "digest", Shard(1, 10, 0), b"y")["digest"]
    other = choosing.job_tier(mover.record.storage_dir, JOB, owner="a-node-of-another-cluster")
    other.claim("theirs", ranks=1)
    other.put(theirs, "e1/s10-r0", digest=digest)
    saved(mover, 10)
    mover.start()
    assert until(mover.problems, 20)[0]["code"] == "tier_conflict"
    assert mover.steps() == []
    assert b"".join(other.pieces("e1/s10-r0")) == b"y"


def test_a_damaged_shard_on_the_ssd_never_gets_to_the_store(mover: MoverProcess, s3: S3Server) -> None:
    damage(saved(mover, 20, b"x" * 1000)["path"])
    saved(mover, 10)
    mover.start()
    until(lambda: mover.steps() == [10], 20)
    assert [(problem["code"], problem["step"]) for problem in mover.problems()] == [("digest_mismatch", 20)]
    assert all("/e1/s10-r0/" in path for path in s3.paths("team/lm/parts/"))


def test_an_address_that_is_none_is_told_and_does_not_stop_the_mover(mover: MoverProcess) -> None:
    mover.record.storage_dir = "ftp://nobody/here"
    mover.save()
    mover.start()
    assert until(mover.problems)[0]["code"] == "invalid_input"
    assert mover.process is not None
    assert mover.process.poll() is None
