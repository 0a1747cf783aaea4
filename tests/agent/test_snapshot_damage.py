"""Any damage to any file of a snapshot, on either tier: never restored, always named, always the next good one."""

import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from reliability.agent import restoring
from reliability.agent.desk import OrderFailed
from reliability.agent.payloads import RankRestore, Source
from reliability.errors import TierError, TierFull
from reliability.tiers import copying, direct, records
from reliability.tiers.directory import DirectoryTier
from reliability.tiers.shards import Shard
from reliability.tiers.slotmaps import SlotMaps
from reliability.trainer.errors import CorruptSnapshot
from reliability.trainer.folder import JobFolder
from reliability.trainer.reading import load
from reliability.trainer.snapshots import MemoryTier, Saving
from tests.trainer.shards import seal_all

JOB = "lm"
STEPS = (10, 20)
SHARDS = [Shard(1, step, 0) for step in STEPS]


class Node:
    """Two steps of one rank, each in memory, on the SSD and in a storage folder."""

    def __init__(self, folder: Path) -> None:
        job = JobFolder(folder / "memory" / JOB)
        job.make()
        self.memory = DirectoryTier(job.memory, owner="agent")
        self.ssd = DirectoryTier(folder / "ssd" / JOB, owner="n")
        for name in ("ssd", "storage"):
            (folder / name).mkdir()
        saver = MemoryTier(job, job=JOB, epoch=1, rank=0, saving=Saving())
        for step in STEPS:
            saver.save(step, {"w": np.full(300, float(step)), "step": step})
        saver.close(5.0)
        seal_all(job.memory, JOB)
        self.records = {shard: self.memory.record(shard.flat_key) for shard in SHARDS}
        maps = SlotMaps()
        for shard in SHARDS:
            with direct.held(self.memory.data_path(shard.flat_key), maps) as content:
                self.ssd.put_from_memory(content, shard.flat_key, lambda shard=shard: self.records[shard])
        maps.close()
        self.storage = DirectoryTier(folder / "storage" / JOB, owner="n")
        for shard in SHARDS:
            path = self.ssd.data_path(shard.flat_key)
            record = self.records[shard]
            self.storage.put(path, shard.stored_key, digest=str(record["digest"]), record=record)
        self._kept = folder / "kept"
        for name, tier in self.tiers.items():
            shutil.copytree(tier.root, self._kept / name)

    @property
    def tiers(self) -> dict[str, DirectoryTier]:
        """The tiers, in the order in which a restore asks them."""
        return {"memory": self.memory, "ssd": self.ssd, "storage": self.storage}

    def place(self, tier: str, shard: Shard) -> Path:
        """Return where the content of a shard lies on a tier."""
        return self.tiers[tier].data_path(shard.stored_key if tier == "storage" else shard.flat_key)

    def lose(self, tier: str, shard: Shard) -> None:
        """Have a shard gone from a tier."""
        self.tiers[tier].delete(shard.stored_key if tier == "storage" else shard.flat_key)

    def mend(self) -> None:
        """Have all files as they were."""
        for name, tier in self.tiers.items():
            for path in tier.root.iterdir():
                shutil.rmtree(path) if path.is_dir() else path.unlink()
            shutil.copytree(self._kept / name, tier.root, dirs_exist_ok=True)

    def restore(self) -> tuple[int, list[str]]:
        """Restore the newest step that any tier has, as the server would ask for it; what was passed over is named."""
        passed: list[str] = []
        for shard in reversed(SHARDS):
            places = [(name, str(self.place(name, shard))) for name in self.tiers]
            digest = str(self.records[shard]["digest"])
            sources = [Source(tier=name, path=path, digest=digest, node="n") for name, path in places]
            try:
                ranks = restoring.restore(self.memory, [RankRestore(shard=shard, sources=sources)], node="n", job=JOB)
            except OrderFailed as error:
                passed += [f"{bad['tier']}:{shard.step}" for bad in error.result["bad"]]
                continue
            passed += [f"{skipped['tier']}:{shard.step}" for skipped in ranks[0]["skipped"]]
            found, state = load(self.memory.root / f"{shard.flat_key}.json", rank=0)
            assert found.step == shard.step == state["step"]
            assert (state["w"] == shard.step).all()
            return shard.step, passed
        return 0, passed


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Node:
    return Node(tmp_path_factory.mktemp("node"))


def damages(size: int, used: int) -> Iterator[tuple[str, Callable[[bytes], bytes | None]]]:
    """Yield damages to a file: a bit of every third byte that is used and of some others, cuts, zeros, nothing."""
    chance = random.Random(7)
    for place in [*range(0, used, 3), *range(used, size, 331)]:
        bit = 1 << chance.randrange(8)
        yield f"bit of byte {place}", lambda raw, at=place, bit=bit: flipped(raw, at, bit)
    for length in [0, 1, *range(17, size, 211), size - 1]:
        yield f"cut to {length}", lambda raw, length=length: raw[:length]
    yield "zeros", lambda raw: bytes(len(raw))
    yield "longer", lambda raw: raw + b"\0"
    yield "deleted", lambda _raw: None


def flipped(raw: bytes, at: int, bit: int) -> bytes:
    changed = bytearray(raw)
    changed[at] ^= bit
    return bytes(changed)


def damage(path: Path, how: Callable[[bytes], bytes | None]) -> None:
    after = how(path.read_bytes())
    if after is None:
        path.unlink()
    else:
        path.write_bytes(after)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("tier", ["memory", "ssd", "storage"])
@pytest.mark.parametrize("ending", [".snap", ".json"])
def test_no_damage_to_any_file_is_ever_restored(node: Node, tier: str, ending: str) -> None:
    """The newest step is damaged on one tier, and gone from the others: the older one is restored, and that is said."""
    node.mend()
    newest = SHARDS[-1]
    path = node.place(tier, newest).with_suffix(ending)
    raw = path.read_bytes()
    used = len(raw.rstrip(b"\0")) + 8
    for what, how in damages(len(raw), min(used, len(raw))):
        node.mend()
        for other in node.tiers.keys() - {tier}:
            node.lose(other, newest)
        damage(path, how)
        step, passed = node.restore()
        assert step == STEPS[0], what
        assert f"{tier}:{STEPS[-1]}" in passed, what


@pytest.mark.parametrize("ending", [".snap", ".json"])
def test_a_copy_that_is_damaged_in_memory_is_named_and_the_one_on_the_ssd_is_used(node: Node, ending: str) -> None:
    path = node.memory.root / f"{SHARDS[-1].flat_key}{ending}"
    for how in (lambda raw: flipped(raw, 100, 4), lambda raw: raw[:50], lambda raw: bytes(len(raw)), lambda _raw: None):
        node.mend()
        damage(path, how)
        assert node.restore() == (STEPS[-1], [f"memory:{STEPS[-1]}"])


def test_a_slot_that_was_damaged_after_it_was_sealed_does_not_get_to_the_ssd(node: Node) -> None:
    node.mend()
    shard, maps = SHARDS[-1], SlotMaps()
    node.ssd.delete(shard.flat_key)
    damage(node.memory.data_path(shard.flat_key), lambda raw: flipped(raw, len(raw) // 2, 1))
    with direct.held(node.memory.data_path(shard.flat_key), maps) as content, pytest.raises(TierError):
        node.ssd.put_from_memory(content, shard.flat_key, lambda: node.records[shard])
    assert list(node.ssd.root.glob(f"{shard.flat_key}*")) == []
    maps.close()


def test_a_shard_under_the_name_of_another_is_not_taken_for_it(node: Node) -> None:
    node.mend()
    older, newest = (node.memory.root / shard.flat_key for shard in SHARDS)
    for ending in (".snap", ".json"):
        shutil.copy(older.with_suffix(ending), newest.with_suffix(ending))
    with pytest.raises(CorruptSnapshot, match="another shard"):
        load(newest.with_suffix(".json"), rank=0)
    assert records.read(older.with_suffix(".json"))["step"] == STEPS[0]


def test_a_full_memory_tier_gives_up_empty_slots_for_the_shard_that_is_wanted(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    node.mend()
    newest = SHARDS[-1].flat_key
    node.memory.delete(newest)
    empty = node.memory.root / "slot-0-1-0"
    empty.write_bytes(bytes(4096))
    real = copying.copy_verified

    def copy_verified(*args: Any, **known: Any) -> int:
        if empty.exists():
            raise TierFull("no room")
        return real(*args, **known)

    monkeypatch.setattr(copying, "copy_verified", copy_verified)
    assert node.restore() == (STEPS[-1], [f"memory:{STEPS[-1]}"])
    assert not empty.exists()
