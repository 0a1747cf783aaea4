"""A shard of a lost node comes from the nodes that live on, whole or put together, or from the next source."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from reliability.agent import heads, payloads, restoring
from reliability.agent.desk import OrderFailed
from reliability.agent.folder import JobFolder
from reliability.trainer.reading import load
from tests.agent.shardfiles import damage
from tests.agent.test_peers import EPOCH, TOKEN, Serving
from tests.trainer.shards import JOB as TRAINED
from tests.trainer.test_parts import saved, state_of

STEP = 2
LOST, SURVIVOR = 1, 0


class Cluster:
    """A survivor that serves, a node whose shard is known and gone, and a standby that restores."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("tests.agent.test_peers.JOB", TRAINED)
        self.survivor = Serving(root / "survivor")
        self.theirs = self._save(self.survivor.memory, SURVIVOR)
        gone = self._save(root / "lost", LOST)
        self.record = json.loads(gone.read_text())
        self.content = gone.with_suffix(".snap").read_bytes()
        self.head = heads.told(gone.with_suffix(".snap"))
        shutil.rmtree(root / "lost")
        standby = JobFolder(root / "standby" / TRAINED)
        standby.root.parent.mkdir(parents=True)
        standby.make()
        self.memory = standby.memory

    def _save(self, memory: Path, rank: int) -> Path:
        return saved(memory / TRAINED, rank, steps=(1, STEP))

    @property
    def their_record(self) -> dict[str, Any]:
        return json.loads(self.theirs.read_text())

    def peer(self, tier: str = "memory") -> dict[str, Any]:
        port = self.survivor.serve((tier, self.theirs.stem))
        return {"address": "127.0.0.1", "port": port, "token": TOKEN}

    def replica(self, tier: str = "memory", **given: Any) -> dict[str, Any]:
        """Return the source that puts the lost shard together."""
        lender = {
            "rank": SURVIVOR,
            "digest": self.their_record["digest"],
            "lender_shared_at": self.their_record["parts"]["shared_at"],
            "shared_at": self.record["parts"]["shared_at"],
            "shared_bytes": self.record["parts"]["shared_bytes"],
            "head": self.head,
        }
        place = {"path": str(self.theirs.with_suffix(".snap")), "node": "survivor", "tier": tier}
        mine = {"digest": self.record["digest"], "size_bytes": self.record["size_bytes"]}
        return {**place, **mine, "peer": self.peer(tier), "replica": lender, **given}

    def restore(self, *sources: dict[str, Any], rank: int = LOST, node: str = "standby") -> dict[str, Any]:
        wanted = {"step": STEP, "snapshot_epoch": 1, "ranks": [{"rank": rank, "sources": list(sources)}]}
        ranks = payloads.restore(wanted)
        return restoring.restore(self.memory, ranks, node=node, job=TRAINED, epoch=EPOCH, limit_s=20)[0]

    @property
    def brought(self) -> Path:
        return self.memory.data_path(f"e1-s{STEP}-r{LOST}")


@pytest.fixture
def cluster(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    cluster = Cluster(folder, monkeypatch)
    yield cluster
    cluster.survivor.peers.stop()


def test_a_lost_shard_is_put_together_from_a_survivors_memory_bit_by_bit(cluster: Cluster) -> None:
    outcome = cluster.restore(cluster.replica())
    assert outcome == {
        "rank": LOST, "tier": "memory", "skipped": [], "from": {"node": "survivor", "rank": SURVIVOR},
    }  # fmt: skip
    assert cluster.brought.read_bytes() == cluster.content
    _shard, state = load(cluster.brought.with_suffix(".json"), rank=LOST)
    expected = state_of(LOST, STEP)
    np.testing.assert_array_equal(state["model"]["w"], expected["model"]["w"])
    assert state["data"]["position"] == expected["data"]["position"]


def test_a_rank_of_the_same_node_lends_without_any_network(cluster: Cluster) -> None:
    cluster.memory = JobFolder(cluster.survivor.memory / TRAINED).memory
    source = {**cluster.replica(node="standby"), "peer": None}
    assert cluster.restore(source)["tier"] == "memory"
    assert cluster.brought.read_bytes() == cluster.content


def test_a_survivor_whose_memory_changed_lends_nothing_and_is_named(cluster: Cluster) -> None:
    source = cluster.replica()
    damage(str(cluster.theirs.with_suffix(".snap")))
    with pytest.raises(OrderFailed) as failed:
        cluster.restore(source)
    assert [(bad["code"], bad["from"]) for bad in failed.value.result["bad"]] == [
        ("digest_mismatch", {"node": "survivor", "rank": SURVIVOR})
    ]
    assert cluster.memory.keys("") == []


def test_a_wrong_head_makes_no_shard_and_the_lender_is_not_blamed(cluster: Cluster) -> None:
    other = saved(cluster.survivor.memory / "other", LOST, steps=(STEP,))
    head = heads.told(other.with_suffix(".snap"))
    source = cluster.replica()
    assert source["replica"]["head"] != head
    source["replica"]["head"] = head
    with pytest.raises(OrderFailed) as failed:
        cluster.restore(source)
    assert [bad["code"] for bad in failed.value.result["bad"]] == ["replica_mismatch"]
    assert list(cluster.memory.root.iterdir()) == []


@pytest.mark.parametrize("name", ["lender_shared_at", "shared_bytes"])
def test_parts_that_are_told_wrongly_make_no_shard(cluster: Cluster, name: str) -> None:
    source = cluster.replica()
    source["replica"][name] -= 4096
    with pytest.raises(OrderFailed) as failed:
        cluster.restore(source)
    assert [bad["code"] for bad in failed.value.result["bad"]] == ["replica_mismatch"]
    assert cluster.memory.keys("") == []


def test_what_cannot_be_read_from_a_peer_comes_from_the_next_source(cluster: Cluster) -> None:
    away = cluster.replica(peer={"address": "127.0.0.1", "port": 1, "token": TOKEN})
    outcome = cluster.restore(away, cluster.replica())
    assert [(skip["code"], skip["from"]["node"]) for skip in outcome["skipped"]] == [("tier_unreachable", "survivor")]
    assert cluster.brought.read_bytes() == cluster.content


@pytest.mark.parametrize("tier", ["memory", "ssd"])
def test_a_whole_shard_comes_from_another_nodes_memory_or_ssd(cluster: Cluster, tier: str) -> None:
    if tier == "ssd":
        cluster.survivor.folder("ssd").mkdir(parents=True)
        for path in cluster.theirs.parent.glob(f"{cluster.theirs.stem}.*"):
            shutil.copy(path, cluster.survivor.folder("ssd"))
    source = {
        "tier": tier,
        "path": str(cluster.theirs.with_suffix(".snap")),
        "digest": cluster.their_record["digest"],
        "size_bytes": cluster.their_record["size_bytes"],
        "node": "survivor",
        "peer": cluster.peer(tier),
    }
    assert cluster.restore(source, rank=SURVIVOR)["from"] == {"node": "survivor", "rank": SURVIVOR}
    brought = cluster.memory.data_path(cluster.theirs.stem)
    assert brought.read_bytes() == cluster.theirs.with_suffix(".snap").read_bytes()
    assert load(brought.with_suffix(".json"), rank=SURVIVOR)[0].step == STEP


def test_brought_twice_it_is_read_once(cluster: Cluster) -> None:
    cluster.restore(cluster.replica())
    before = cluster.brought.stat().st_ino
    away = cluster.replica(peer={"address": "127.0.0.1", "port": 1, "token": TOKEN})
    assert cluster.restore(away)["skipped"] == []
    assert cluster.brought.stat().st_ino == before
