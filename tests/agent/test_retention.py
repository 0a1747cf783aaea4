"""What the server names goes, its record first, and is told; nothing else goes, and nothing in an older attempt."""

import json
import os
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reliability.agent import floors
from reliability.agent.clock import steady
from reliability.agent.floors import Floors
from reliability.agent.retention import named
from reliability.domain.snapshots import Tier
from reliability.tiers import choosing
from reliability.tiers.directory import DirectoryTier
from reliability.tiers.shards import Shard
from tests.agent.conftest import AgentProcess
from tests.agent.ingest import Ingest, until
from tests.agent.moverprocess import JOB, MoverProcess
from tests.agent.shardfiles import commit
from tests.stores.s3 import S3Server, Trouble, forbidden, slow


@pytest.fixture(params=["ssd", "storage folder", "object store"])
def mover(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[MoverProcess]:
    """A mover into each kind of tier that has a rule."""
    mover = MoverProcess(tmp_path, "ssd_mover" if request.param == "ssd" else "storage_mover")
    if request.param == "object store":
        mover.record.storage_dir = request.getfixturevalue("s3_url")
        mover.save()
    yield mover
    mover.kill()


def source(mover: MoverProcess) -> Path:
    return mover.memory if mover.module == "ssd_mover" else mover.ssd / JOB


def tier(mover: MoverProcess) -> Tier:
    return Tier.SSD if mover.module == "ssd_mover" else Tier.STORAGE


def target(mover: MoverProcess) -> list[int]:
    if tier(mover) is Tier.SSD:
        keys = DirectoryTier(mover.ssd / JOB).keys("")
    else:
        keys = choosing.job_tier(mover.record.storage_dir, JOB).keys("")
    return sorted(int(key.partition("-r")[0].rpartition("s")[2]) for key in keys)


def name(mover: MoverProcess, *steps: int, epoch: int = 1, floor: int = 40, rank: int = 0, age_s: float = 0.0) -> None:
    """Have the server name copies to be removed, as the agent keeps it."""
    may_go = {tier(mover).value: [[1, step, rank] for step in steps]}
    floors.save(mover.jobs, JOB, Floors(epoch=epoch, ssd=floor, storage=floor, may_go=may_go, said_at=steady() - age_s))
    mover.wake()


def removed(mover: MoverProcess) -> list[int]:
    return [line["body"]["step"] for line in mover.listen() if line["kind"] == "snapshot_removed"]


def filled(mover: MoverProcess) -> None:
    for step in (10, 20, 30, 40):
        commit(source(mover), Shard(1, step, 0), b"x" * step)
    mover.start()
    until(lambda: target(mover) == [10, 20, 30, 40], 20)


def test_what_the_server_names_is_removed_and_told_once_and_all_else_stays(mover: MoverProcess) -> None:
    filled(mover)
    name(mover, 20, 10)
    until(lambda: removed(mover) == [20, 10], 20)
    assert target(mover) == [30, 40]
    name(mover, 10, 30)
    until(lambda: removed(mover) == [20, 10, 30], 20)
    assert target(mover) == [40]
    assert mover.said[-1]["body"] == {"snapshot_epoch": 1, "step": 30, "rank": 0, "tier": tier(mover).value}


def test_a_server_that_names_nothing_has_nothing_removed_however_much_there_is(mover: MoverProcess) -> None:
    for step in range(10, 40, 10):
        commit(source(mover), Shard(1, step, 0), b"x")
    name(mover)
    mover.start()
    until(lambda: target(mover) == [10, 20, 30], 20)
    for step in range(40, 130, 10):
        commit(source(mover), Shard(1, step, 0), b"x")
        mover.wake()
        until(lambda step=step: step in target(mover), 20)
    assert len(target(mover)) == 12
    assert removed(mover) == []


def test_what_was_named_a_while_ago_stays_for_the_server_may_have_taken_it_back(mover: MoverProcess) -> None:
    filled(mover)
    name(mover, 10, age_s=floors.FRESH_S + 1)
    commit(source(mover), Shard(1, 50, 0), b"x")
    mover.wake()
    until(lambda: 50 in target(mover), 20)
    assert removed(mover) == []
    assert 10 in target(mover)


def test_what_is_named_for_long_is_kept_as_named_and_all_else_is_written_once() -> None:
    first = Floors(epoch=1, ssd=40, may_go={"ssd": [[1, 10, 0]]}, said_at=100.0)
    assert first.stands(replace(first, said_at=101.0))
    assert not first.stands(replace(first, said_at=100.0 + floors.RENEW_S))
    assert not first.stands(replace(first, ssd=50, said_at=101.0))
    nothing = replace(first, may_go={"ssd": []})
    assert nothing.stands(replace(nothing, said_at=10**6))


def test_what_is_gone_already_is_told_too_so_that_a_kill_before_the_report_loses_nothing(mover: MoverProcess) -> None:
    filled(mover)
    mover.kill()
    mover.said.clear()
    for folder in (mover.ssd / JOB, mover.storage / JOB):
        for data in folder.rglob("*s10-r0.json") if folder != source(mover) else ():
            data.unlink()  # as a kill between record and data leaves it
    DirectoryTier(source(mover)).delete("e1-s10-r0")
    name(mover, 10)
    mover.start()
    until(lambda: removed(mover) == [10], 20)
    assert target(mover) == [20, 30, 40]
    leftovers = [path for path in (mover.ssd / JOB, mover.storage / JOB) for path in path.rglob("*s10-r0.snap")]
    assert leftovers == []


def test_what_was_removed_here_is_not_brought_here_again_though_the_tier_before_has_it(mover: MoverProcess) -> None:
    filled(mover)
    mover.kill()
    mover.said.clear()
    name(mover, 10)
    mover.start()
    until(lambda: removed(mover) == [10], 20)
    name(mover)
    commit(source(mover), Shard(1, 50, 0), b"x")
    mover.wake()
    until(lambda: target(mover) == [20, 30, 40, 50], 20)
    assert 10 not in mover.steps()[3:], "told after the start, and then no more"


def test_shards_of_other_ranks_go_too_when_the_server_names_them(mover: MoverProcess, tmp_path: Path) -> None:
    filled(mover)
    theirs = commit(tmp_path / "theirs", Shard(1, 10, 5), b"y")
    if tier(mover) is Tier.SSD:
        commit(mover.ssd / JOB, Shard(1, 10, 5), b"y")
    else:
        other = choosing.job_tier(mover.record.storage_dir, JOB, owner="a-node-that-is-gone")
        other.put(Path(theirs["path"]), "e1/s10-r5", digest=theirs["digest"])
    name(mover, 10, rank=5)
    until(lambda: removed(mover) == [10], 20)
    assert target(mover) == [10, 20, 30, 40]


def test_a_job_that_was_released_is_tidied_all_the_same(mover: MoverProcess) -> None:
    filled(mover)
    mover.record.released = True
    mover.save()
    until(lambda: mover.listen() is not None and not list(source(mover).glob("*.part")), 5)
    name(mover, 10, epoch=2)
    until(lambda: removed(mover) == [10], 20)
    assert target(mover) == [20, 30, 40]


def test_an_object_store_that_dies_in_mid_removal_leaves_nothing_that_looks_whole(
    tmp_path: Path, s3: S3Server, s3_url: str
) -> None:
    mover = MoverProcess(tmp_path, "storage_mover")
    mover.record.storage_dir = s3_url
    mover.save()
    filled(mover)
    with s3.troubled(slow(0.2)):
        begun = len([1 for method, _ in s3.requests if method in {"PUT", "DELETE", "POST"}])
        name(mover, 10, 20)
        until(lambda: len([1 for method, _ in s3.requests if method in {"PUT", "DELETE", "POST"}]) > begun, 20)
        assert mover.process is not None
        os.kill(mover.process.pid, signal.SIGKILL)
        mover.kill()
    store = choosing.job_tier(s3_url, JOB)
    for key in store.keys(""):
        assert b"".join(store.pieces(key)), "what is listed can be read whole"
    mover.said.clear()
    mover.start()
    until(lambda: sorted(set(removed(mover))) == [10, 20], 20)
    until(lambda: target(mover) == [30, 40], 20)
    until(lambda: not [path for path in s3.paths("team/lm/parts/") if "/s10-r0/" in path or "/s20-r0/" in path], 20)
    mover.kill()


def test_a_full_tier_is_emptied_of_what_is_named_before_anything_is_copied_there(
    tmp_path: Path, small_disk: Path
) -> None:
    mover = MoverProcess(tmp_path, "storage_mover")
    mover.record.storage_dir = str(small_disk)
    mover.save()
    try:
        commit(source(mover), Shard(1, 10, 0), os.urandom(600 * 1024))
        mover.start()
        until(lambda: target(mover) == [10], 20)
        commit(source(mover), Shard(1, 20, 0), os.urandom(600 * 1024))
        until(lambda: [problem["code"] for problem in mover.problems()] == ["tier_full"], 20)
        name(mover, 10)
        until(lambda: target(mover) == [20], 30)
        assert removed(mover) == [10]
    finally:
        mover.kill()


def _no_deletes(environ: Mapping[str, Any]) -> tuple[str, bytes] | None:
    deletes = environ["REQUEST_METHOD"] == "DELETE" or "delete" in environ.get("QUERY_STRING", "")
    return forbidden(environ) if deletes else None


@pytest.mark.parametrize("trouble", [_no_deletes, slow(0.1)], ids=["deletes are refused", "all is slow"])
def test_a_store_that_removes_nothing_or_slowly_still_gets_every_newest_snapshot_first(
    tmp_path: Path, s3: S3Server, s3_url: str, trouble: Trouble
) -> None:
    mover = MoverProcess(tmp_path, "storage_mover")
    mover.record.storage_dir = s3_url
    mover.save()
    filled(mover)
    try:
        with s3.troubled(trouble):
            name(mover, *range(10, 40, 10), *range(1000, 1200), floor=40)
            commit(source(mover), Shard(1, 50, 0), b"x")
            mover.wake()
            until(lambda: 50 in mover.steps(), 10)
            commit(source(mover), Shard(1, 60, 0), b"x")
            mover.wake()
            until(lambda: 60 in mover.steps(), 10)
            told = until(lambda: mover.problems() or removed(mover), 10)
        assert told[0] in removed(mover) or told[0]["message"].startswith("A copy that shall go cannot be removed.")
        assert len(mover.problems()) <= 1, "said once, not once for each"
        assert {problem["step"] for problem in mover.problems()} <= {None}, "no copy is the worse for it"
        assert {50, 60} <= set(target(mover))
    finally:
        mover.kill()


@pytest.fixture
def small_disk() -> Iterator[Path]:
    """A file system of 1 MiB."""
    folder = Path(tempfile.mkdtemp(prefix="sk-small-"))
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)], check=True)
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)
    folder.rmdir()


@pytest.mark.parametrize(
    ("safe", "epoch"),
    [
        (Floors(epoch=1, ssd=40, may_go={"ssd": [[1, 10, 0]]}), 2),
        (Floors(epoch=1, ssd=None, may_go={"ssd": [[1, 10, 0]]}), 1),
        (Floors(epoch=1, ssd=40, may_go={"ssd": [[1, 40, 0], [1, 50, 0]]}), 1),
        (Floors(epoch=1, ssd=40, may_go={"storage": [[1, 10, 0]]}), 1),
        (Floors(epoch=1, ssd=40), 1),
        (Floors(epoch=1, ssd=40, may_go={"ssd": [[1, 10, 0]]}, said_at=-61), 1),
        (Floors(epoch=1, ssd=40, may_go={"ssd": [[1, 10, 0]]}, said_at=1), 1),
    ],
    ids=[
        "said in an older attempt",
        "no safe step",
        "at or above the floor",
        "of another tier",
        "nothing named",
        "a while ago",
        "before the machine was started anew",
    ],
)
def test_nothing_goes_that_the_server_cannot_mean(safe: Floors, epoch: int) -> None:
    assert named(safe, Tier.SSD, epoch=epoch, now=0.0) == []


def test_a_newer_step_of_an_abandoned_attempt_may_go() -> None:
    safe = Floors(epoch=2, ssd=40, may_go={"ssd": [[1, 90, 0]]})
    assert named(safe, Tier.SSD, epoch=2, now=0.0) == [Shard(1, 90, 0)]


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.floats(allow_nan=False) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=12,
)


@given(json_values | st.fixed_dictionaries({"ssd": json_values, "storage": json_values}))
def test_an_answer_that_makes_no_sense_names_nothing(value: object) -> None:
    found = floors.listed(json.loads(json.dumps(value)))
    for entries in (found or {}).values():
        assert all(len(entry) == 3 and min(entry) >= 0 for entry in entries)
    safe = Floors(epoch=1, ssd=10**6, storage=10**6, may_go=found)
    assert all(isinstance(shard, Shard) for shard in named(safe, Tier.SSD, epoch=1, now=0.0))


def test_an_agent_removes_what_an_answer_names_and_reports_it(ingest: Ingest, agent: AgentProcess) -> None:
    ingest.epochs["lm"] = 1
    ingest.done(
        "start", job="lm", epoch=1, payload=agent.start_payload(period_plan=[{"from_step": 0, "every_steps": 3}])
    )
    ssd = DirectoryTier(agent.folder / "ssd" / "lm")
    until(lambda: len(ssd.keys("")) >= 2, 20)
    first = min(Shard(*(int(part[1:]) for part in key.split("-"))) for key in ssd.keys(""))
    ingest.floors["lm"] = ingest.ssd_floors["lm"] = 10**9
    ingest.may_go["lm"] = {"ssd": [[first.epoch, first.step, first.rank]], "storage": []}
    told = until(lambda: ingest.of_kind("snapshot_removed"), 20)[0]
    assert (told["step"], told["rank"], told["tier"]) == (first.step, first.rank, "ssd")
    assert first.flat_key not in ssd.keys("")
    assert not (agent.folder / "ssd" / "lm" / f"{first.flat_key}.snap").exists()
