"""Parts of a state: what ranks have in common is the same bytes in all their shards, and the rest stands apart."""

import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from reliability.agent import heads, sealing
from reliability.trainer import client, layout
from reliability.trainer.errors import ConfigurationError
from reliability.trainer.folder import JobFolder
from reliability.trainer.parts import NOTHING, Named
from reliability.trainer.reading import load
from reliability.trainer.snapshots import MemoryTier

DATA_PARALLEL = Named({"model": "replicated", "optimizer": "replicated", "data": "local"})


def state_of(rank: int, step: int) -> dict[str, Any]:
    """What a data-parallel rank keeps: the same model everywhere, and a position of its own."""
    rng = np.random.default_rng(step)
    return {
        "data": {"position": rank * 1000 + step, "order": np.full(5 + 40 * rank, rank)},
        "model": {"w": rng.standard_normal((300, 70)), "odd": rng.standard_normal(7), "empty": np.zeros(0)},
        "optimizer": [rng.standard_normal(33).astype("f4"), {"t": step}],
    }


def saved(folder: Path, rank: int, *, steps: tuple[int, ...] = (1,), named: Named = DATA_PARALLEL, **how: Any) -> Path:
    """Save states one after the other; return the path of the last record, sealed."""
    job = JobFolder(folder)
    job.make()
    tier = MemoryTier(job, job="job", epoch=1, rank=rank)
    for step in steps:
        shard = tier.save(step, state_of(rank, step), named=named, **how)
    tier.close(5.0)
    sealing.seal_all(job.memory, job="job")
    return job.memory / f"{shard.stem}.json"


def parts_of(record: Path) -> dict[str, Any]:
    return json.loads(record.read_text())["parts"]


@pytest.mark.parametrize("lazy", [False, True])
def test_what_ranks_have_in_common_is_the_same_bytes_in_every_shard(tmp_path: Path, lazy: bool) -> None:
    records = [saved(tmp_path / str(rank), rank, lazy=lazy) for rank in (0, 1)]
    first, second = (parts_of(record) for record in records)
    assert first["shared_digest"] == second["shared_digest"]
    assert first["shared_bytes"] == second["shared_bytes"] > 300 * 70 * 8
    common = [
        record.with_suffix(".snap").read_bytes()[told["shared_at"] : told["shared_at"] + told["shared_bytes"]]
        for record, told in zip(records, (first, second), strict=True)
    ]
    assert common[0] == common[1]


def test_a_shard_is_its_head_and_the_common_part_of_any_other_rank(tmp_path: Path) -> None:
    mine, other = (saved(tmp_path / str(rank), rank) for rank in (0, 1))
    content, told, theirs = mine.with_suffix(".snap").read_bytes(), parts_of(mine), parts_of(other)
    head = heads.unpacked(heads.told(mine.with_suffix(".snap")) or "", told["shared_at"])
    common = other.with_suffix(".snap").read_bytes()[theirs["shared_at"] :][: theirs["shared_bytes"]]
    assert (head + common).ljust(len(content), b"\0") == content


def test_a_slot_that_held_another_state_before_leaves_nothing_of_it_between_the_buffers(tmp_path: Path) -> None:
    """Two shards of the same state are compared, one of them in a slot that was full of ones."""
    job = JobFolder(tmp_path / "used")
    job.make()
    tier = MemoryTier(job, job="job", epoch=1, rank=0)
    for step in (1, 2):
        tier.save(step, {"model": np.full(40_000, np.nan)})
    for step in (3, 4):
        tier.save(step, state_of(0, 9), named=DATA_PARALLEL)
    tier.close(5.0)
    sealing.seal_all(job.memory, job="job")
    fresh = saved(tmp_path / "fresh", 1, steps=(9,))
    assert parts_of(job.memory / "e1-s4-r0.json")["shared_digest"] == parts_of(fresh)["shared_digest"]


def test_a_shard_with_parts_comes_back_as_it_was(tmp_path: Path) -> None:
    for lazy in (False, True):
        record = saved(tmp_path / str(lazy), 1, steps=(1, 2, 3), lazy=lazy)
        _shard, state = load(record, rank=1, live=state_of(1, 0))
        expected = state_of(1, 3)
        assert state["data"]["position"] == expected["data"]["position"]
        for name in ("w", "odd", "empty"):
            np.testing.assert_array_equal(state["model"][name], expected["model"][name])
        np.testing.assert_array_equal(state["data"]["order"], expected["data"]["order"])
        np.testing.assert_array_equal(state["optimizer"][0], expected["optimizer"][0])


def test_a_state_without_named_parts_looks_as_it_always_did(tmp_path: Path) -> None:
    record = saved(tmp_path, 0, named=NOTHING)
    assert "parts" not in json.loads(record.read_text())
    assert not record.with_suffix(".head").exists()


def test_what_is_sharded_too_has_no_head_that_travels(tmp_path: Path) -> None:
    record = saved(tmp_path, 0, named=Named({"model": "replicated", "data": "local"}))
    assert parts_of(record)["sharded_bytes"] == 33 * 4
    assert heads.told(record.with_suffix(".snap")) is None


def test_a_local_part_that_is_too_large_is_told_and_does_not_travel(tmp_path: Path) -> None:
    job = JobFolder(tmp_path)
    job.make()
    tier = MemoryTier(job, job="job", epoch=1, rank=0)
    noise = np.random.default_rng(1).standard_normal(20_000)
    shard = tier.save(1, {"model": np.ones(10), "data": noise}, named=DATA_PARALLEL)
    tier.close(5.0)
    sealing.seal_all(job.memory, job="job")
    path = job.memory / f"{shard.stem}.snap"
    assert heads.told(path) is None
    assert heads.is_too_large(path, parts_of(path.with_suffix(".json")))
    assert "160000 bytes" in heads.too_large(parts_of(path.with_suffix(".json")))


@pytest.mark.parametrize("text", ["", "!!", "AAAA", "eJwDAAAAAAE="])
def test_a_head_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(heads.CopyMissing):
        heads.unpacked(text, 10)


def test_a_head_never_unpacks_to_more_than_it_should(tmp_path: Path) -> None:
    record = saved(tmp_path, 0)
    text = heads.told(record.with_suffix(".snap")) or ""
    with pytest.raises(heads.CopyMissing, match="has not the 4096 bytes"):
        heads.unpacked(text, 4096)


def test_heads_of_shards_that_were_written_over_are_swept(tmp_path: Path) -> None:
    record = saved(tmp_path, 0)
    orphan = record.with_name("e1-s0-r0.head")
    orphan.write_bytes(b"x")
    heads.sweep(record.parent)
    assert not orphan.exists()
    assert record.with_suffix(".head").exists()


def test_a_part_that_does_not_exist_is_refused_by_name() -> None:
    run = client.attach({})
    with pytest.raises(ConfigurationError, match="'model' cannot be 'shared'") as refused:
        run.register("model", get=dict, set=dict, part="shared")
    assert "replicated" in refused.value.hint


def test_gaps_are_all_that_no_buffer_takes() -> None:
    sizes = [100, 0, 64, 5000]
    laid = layout.plan(sizes, 4096, "rlsr")
    taken = [(laid.offsets[number], laid.offsets[number] + size) for number, size in enumerate(sizes) if size]
    free = layout.gaps(laid, sizes, 20480)
    covered = sorted(taken + free)
    assert covered[0][0] == 4096
    assert covered[-1][1] == 20480
    assert all(end == start for (_, end), (start, _) in itertools.pairwise(covered))
    assert laid.shared_at % layout.PAGE == 0
    assert {laid.offsets[0], laid.offsets[3]} == {number for number in laid.offsets if number >= laid.shared_at}


def test_what_is_sealed_in_passing_leaves_no_handle_that_keeps_its_memory(tmp_path: Path) -> None:
    saved(tmp_path / "first", 0)
    before = len(list(Path("/proc/self/fd").iterdir()))
    for number in range(5):
        saved(tmp_path / str(number), 0)
    assert len(list(Path("/proc/self/fd").iterdir())) == before
