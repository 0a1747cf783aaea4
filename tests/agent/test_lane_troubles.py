"""What a lane tells of a trouble: the shard that it befell, once while it lasts, and no slowness where none is."""

import json
from pathlib import Path
from typing import Any

import pytest

from reliability.agent import lane, storage_mover
from reliability.agent.floors import Floors
from reliability.agent.jobrecord import JobRecord
from reliability.agent.storage_mover import StorageLane
from reliability.errors import TierFull
from reliability.tiers.directory import DirectoryTier
from reliability.tiers.shards import Shard
from tests.agent.shardfiles import commit

DAY_S = 86400.0


class Tight(DirectoryTier):
    """A folder that takes no shard of more than `most` bytes, and no more than `places` shards."""

    most = 100
    places = 1000

    def put(self, source: Path, key: str, **known: Any) -> int:
        if source.stat().st_size > self.most or len(self.keys("")) >= self.places:
            raise TierFull(f"No room for {key}.")
        return super().put(source, key, **known)


class Way:
    """A lane from an SSD to storage, and what it says."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.said: list[tuple[str, dict[str, Any]]] = []
        for module in (lane, storage_mover):
            monkeypatch.setattr(module, "say", lambda kind, _job, body: self.said.append((kind, body)))
        self.ssd, self.storage = DirectoryTier(root / "ssd"), Tight(root / "storage", owner="n")
        for tier in (self.ssd, self.storage):
            tier.root.mkdir()
        self.record = JobRecord(job="lm", epoch=1, started_epoch=1, ranks=[0], job_key="k", world_size=1)
        self.lane = self.new_lane()

    def new_lane(self) -> StorageLane:
        return StorageLane(self.record, self.ssd, self.storage)

    def save(self, step: int, size: int = 10, *, taken_at: float) -> None:
        commit(self.ssd.root, Shard(1, step, 0), b"x" * size)
        path = self.ssd.data_path(f"e1-s{step}-r0").with_suffix(".json")
        path.write_text(json.dumps({**json.loads(path.read_text()), "taken_at": taken_at}))

    def drain(self, now: float) -> None:
        for _ in range(20):
            if not self.lane.run(now):
                return

    def told(self, kind: str) -> list[dict[str, Any]]:
        return [body for said, body in self.said if said == kind]


@pytest.fixture
def way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Way:
    return Way(tmp_path, monkeypatch)


def test_a_trouble_names_the_shard_that_it_befell_not_the_newest(way: Way) -> None:
    way.save(10, 500, taken_at=1.0)
    way.save(20, taken_at=6.0)
    way.drain(0.0)
    assert [body["step"] for body in way.told("snapshot_copy")] == [20]
    assert [(body["step"], body["rank"], body["code"]) for body in way.told("snapshot_problem")] == [
        (10, 0, "tier_full")
    ]


def test_a_trouble_is_told_once_while_it_lasts_and_anew_when_it_comes_back(way: Way) -> None:
    way.save(10, 500, taken_at=1.0)
    for at in range(0, 600, 10):
        way.drain(float(at))
    assert len(way.told("snapshot_problem")) == 1
    way.drain(DAY_S)
    assert len(way.told("snapshot_problem")) == 2, "one that lasts for hours is told again"
    way.storage.most = 1000
    way.drain(DAY_S + 10)
    way.storage.most = 100
    way.save(20, 500, taken_at=2.0)
    way.drain(DAY_S + 20)
    assert [body["step"] for body in way.told("snapshot_problem")] == [10, 10, 20]


def test_a_full_tier_is_tidied_by_its_floor_where_the_server_names_nothing(
    way: Way, monkeypatch: pytest.MonkeyPatch
) -> None:
    way.storage.places = 3
    monkeypatch.setattr(StorageLane, "keep", 2)
    way.record.starts = [[1, None, None]]
    for step in (10, 20, 30):
        way.save(step, taken_at=1.0)
        way.drain(float(step))
    way.lane.follow(way.record, Floors(epoch=1, ssd=30, storage=30))
    way.save(40, taken_at=2.0)
    for at in range(100, 200, 10):
        way.drain(float(at))
    assert way.told("snapshot_copy")[-1]["step"] == 40
    assert "e1/s30-r0" in way.storage.keys("")


def test_a_store_that_takes_less_than_the_time_between_saves_is_not_behind(way: Way) -> None:
    way.save(10, taken_at=0.0)
    way.lane.run(0.0)
    for step in range(20, 80, 10):  # they came and went while the store was away
        way.save(step, taken_at=step / 2)
        way.lane._passed_over.before(Shard(1, step, 1))
    for step in (20, 30, 40):
        way.ssd.delete(f"e1-s{step}-r0")
    way.drain(100.0)
    assert way.told("finding") == []
    assert next(body for body in way.told("snapshot_copy") if body["step"] == 70)["superseded"] == 3, "yet counted"


def test_what_was_stored_before_a_restart_is_not_passed_over(way: Way) -> None:
    for step in (10, 20, 30):
        way.save(step, taken_at=0.0)
    way.drain(0.0)
    way.lane = way.new_lane()
    way.drain(1.0)
    for step in (10, 20):
        way.ssd.delete(f"e1-s{step}-r0")
    way.save(40, taken_at=0.0)
    way.drain(100.0)
    assert way.told("finding") == []
    assert way.told("snapshot_copy")[-1]["superseded"] == 0
