"""A shard on an object store is restored whole and verified, from the job's own place alone, or named and passed by."""

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from reliability.agent import restoring
from reliability.agent.desk import OrderFailed
from reliability.agent.folder import JobFolder
from reliability.agent.lane import with_drain
from reliability.agent.payloads import RankRestore, Source
from reliability.tiers import bucket, choosing, copying
from reliability.tiers.directory import DirectoryTier
from reliability.tiers.shards import Shard
from tests.agent.shardfiles import commit, digest
from tests.stores.s3 import S3Server

JOB = "lm"
SHARD = Shard(1, 40, 0)
CONTENT = os.urandom(100_000)


@pytest.fixture
def memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> DirectoryTier:
    monkeypatch.setitem(bucket.RETRIES, "max_retries", 0)
    folder = JobFolder(tmp_path / "memory" / JOB)
    folder.make()
    return folder.memory


@pytest.fixture
def source(tmp_path: Path, s3_url: str) -> Source:
    """The shard on the store, as a restore order names it."""
    given = commit(tmp_path / "ssd" / JOB, SHARD, CONTENT)
    record = DirectoryTier(tmp_path / "ssd" / JOB).record(SHARD.flat_key)
    tier = choosing.job_tier(s3_url, JOB, owner="node-a")
    tier.put(Path(given["path"]), SHARD.stored_key, digest=given["digest"], record=record)
    return Source(tier="storage", path=tier.place(SHARD.stored_key), digest=given["digest"], node="")


def restore(memory: DirectoryTier, *sources: Source) -> dict[str, object]:
    return restoring.restore(memory, [RankRestore(shard=SHARD, sources=sources)], node="n", job=JOB)[0]


def test_it_lies_in_memory_afterwards_with_its_record(memory: DirectoryTier, source: Source) -> None:
    assert restore(memory, source) == {"rank": 0, "tier": "storage", "skipped": []}
    path = memory.data_path(SHARD.flat_key)
    assert path.read_bytes() == CONTENT
    assert copying.verify(path, digest=source.digest) == len(CONTENT)
    record = json.loads(path.with_suffix(".json").read_bytes())
    assert (record["job"], record["epoch"], record["step"], record["stall_s"]) == (JOB, 1, 40, 0.001)
    assert with_drain(record)["drain_s"] is None, "it was not seen being saved: its next copy is not a slow one"


@pytest.mark.parametrize(
    "harm",
    [lambda content: content[:-1], lambda content: b"\0" * len(content), lambda content: b"x" + content[1:], None],
    ids=["truncate", "zero", "flip", "delete"],
)
def test_a_harmed_object_is_named_and_the_next_source_is_used(
    memory: DirectoryTier, source: Source, s3: S3Server, tmp_path: Path, harm: Callable[[bytes], bytes] | None
) -> None:
    good = Source(
        tier="ssd", path=str(tmp_path / "ssd" / JOB / f"{SHARD.flat_key}.snap"), digest=source.digest, node="n"
    )
    for path in s3.paths("team/lm/"):
        content = s3.read(path)
        s3.remove(path) if harm is None else s3.write(path, harm(content))
        with pytest.raises(OrderFailed) as failed:
            restore(memory, source)
        [bad] = failed.value.result["bad"]
        assert bad["code"] in {"digest_mismatch", "copy_missing", "corrupt"}
        assert bad["path"] == source.path
        assert memory.keys("") == []
        rank = restore(memory, source, good)
        assert rank["tier"] == "ssd"
        memory.delete(SHARD.flat_key)
        s3.write(path, content)


@pytest.mark.parametrize(
    "path",
    [
        "s3://snapshots/team/other/e1/s40-r0.snap",
        "s3://snapshots/team/lm/e1/s41-r0.snap",
        "s3://snapshots/team/lm/e1/s40-r0.snap?x",
        "http://127.0.0.1/lm/e1/s40-r0.snap",
        "s3:///lm/e1/s40-r0.snap",
    ],
)
def test_an_address_that_is_not_the_place_of_the_shard_is_not_asked(
    memory: DirectoryTier, source: Source, s3: S3Server, path: str
) -> None:
    s3.requests.clear()
    elsewhere = Source(tier="storage", path=path, digest=digest(CONTENT), node="")
    with pytest.raises(OrderFailed) as refused:
        restore(memory, elsewhere)
    assert [bad["code"] for bad in refused.value.result["bad"]] == ["copy_missing"]
    assert s3.requests == []


def test_a_store_that_is_away_is_no_fault_of_the_copy(memory: DirectoryTier, source: Source, s3: S3Server) -> None:
    s3.stop()
    try:
        with pytest.raises(OrderFailed) as failed:
            restore(memory, source)
    finally:
        s3.start()
    assert [bad["code"] for bad in failed.value.result["bad"]] == ["tier_unreachable"]
