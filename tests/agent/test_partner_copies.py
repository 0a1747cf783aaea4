"""A node keeps its neighbour's newest shards in memory: whole or not at all, within its room, and only the newest."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from reliability.agent import payloads, peer_keeper, peer_wire, restoring, sealing
from reliability.agent.desk import OrderFailed
from reliability.agent.folder import JobFolder as AgentFolder
from reliability.agent.peer_keeper import Keeper
from reliability.agent.peer_serving import PARTNERS
from reliability.tiers import copying
from reliability.tiers.directory import DirectoryTier
from reliability.tiers.shards import Shard
from reliability.trainer.folder import JobFolder
from reliability.trainer.parts import NOTHING, Named
from reliability.trainer.reading import load
from reliability.trainer.snapshots import MemoryTier
from tests.agent.conftest import CHECKOUT
from tests.agent.ingest import until
from tests.agent.shardfiles import commit, damage
from tests.agent.test_peers import EPOCH, TOKEN, Serving
from tests.trainer.shards import JOB

CODES_OF_DAMAGE = {"flipped": "digest_mismatch", "cut": "digest_mismatch", "record": "copy_missing"}
KILLS = int(os.environ.get("STEPKEEPER_KILLS", "8"))


class Neighbours:
    """A node that trains and serves, and the folder in which another one keeps its newest shards."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("tests.agent.test_peers.JOB", JOB)
        monkeypatch.setattr(peer_keeper, "say", lambda kind, _job, body: self.said.append((kind, body)))
        self.said: list[tuple[str, dict[str, Any]]] = []
        self.owner = Serving(root / "owner")
        self.folder = root / "keeper" / PARTNERS / JOB
        self.folder.parent.parent.mkdir()
        job = JobFolder(self.owner.memory / JOB)
        job.make()
        self.memory = job.memory
        self.trainer = MemoryTier(job, job=JOB, epoch=EPOCH, rank=0)
        self.port = self.serve_ranks(0)

    def serve_ranks(self, *ranks: int) -> int:
        """Serve the newest shards of these ranks; return the port."""
        payload = {"token": TOKEN, "limit_s": 60, "hold": False, "shards": [], "ranks": list(ranks)}
        return int(self.owner.peers.serve(payload, job=JOB, epoch=EPOCH)["port"])

    @property
    def wanted(self) -> dict[str, Any]:
        peer = {"node": "owner", "address": "127.0.0.1", "port": self.port, "token": TOKEN, "ranks": [0]}
        return {
            "job": JOB, "epoch": EPOCH, "peer": peer, "folder": str(self.folder), "bytes_per_s": 0.0, "limit_s": 60.0,
        }  # fmt: skip

    def save(self, step: int, *, named: Named = NOTHING, words: int = 300_000) -> None:
        self.trainer.save(step, {"model": np.full(words, step, dtype="f8")}, named=named)
        sealing.seal_all(self.memory, job=JOB)

    def keeper(self, **given: Any) -> Keeper:
        keeper = Keeper({**self.wanted, **given})
        keeper.begin()
        return keeper

    @property
    def kept(self) -> list[str]:
        return list(DirectoryTier(self.folder).keys(""))

    def of_kind(self, kind: str) -> list[dict[str, Any]]:
        return [body for said, body in self.said if said == kind]


@pytest.fixture
def neighbours(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Neighbours]:
    neighbours = Neighbours(folder, monkeypatch)
    yield neighbours
    neighbours.trainer.close(5.0)
    neighbours.owner.peers.stop()


def test_the_newest_shard_is_kept_and_what_two_newer_ones_replace_is_let_go(neighbours: Neighbours) -> None:
    keeper = neighbours.keeper()
    for step in (10, 20, 30):
        neighbours.save(step)
        assert keeper.look()
    assert neighbours.kept == [f"e{EPOCH}-s20-r0", f"e{EPOCH}-s30-r0"]
    told = neighbours.of_kind("snapshot_copy")
    assert [(body["step"], body["tier"]) for body in told] == [(10, "partner"), (20, "partner"), (30, "partner")]
    assert [body["step"] for body in neighbours.of_kind("snapshot_removed")] == [10]
    newest = neighbours.memory / f"e{EPOCH}-s30-r0.snap"
    assert (neighbours.folder / newest.name).read_bytes() == newest.read_bytes()


def test_what_any_rank_can_give_back_is_not_kept_twice(neighbours: Neighbours) -> None:
    neighbours.save(10, named=Named({"model": "replicated"}))
    assert neighbours.keeper().look()
    assert neighbours.kept == []


def test_without_room_in_memory_it_is_refused_with_the_figures_and_told_once(
    neighbours: Neighbours, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(peer_keeper, "LEAST_FREE", 1.0)
    neighbours.save(10)
    keeper = neighbours.keeper()
    assert [keeper.look(), keeper.look()] == [False, False]
    (problem,) = neighbours.of_kind("snapshot_problem")
    assert (problem["code"], problem["tier"]) == ("tier_full", "partner")
    assert "of node owner: it takes" in problem["message"]
    assert neighbours.kept == []
    assert list(neighbours.folder.iterdir()) == []


def test_the_rate_is_kept(neighbours: Neighbours) -> None:
    neighbours.save(10, words=3_000_000)
    began = time.monotonic()
    neighbours.keeper(bytes_per_s=40e6).look()
    assert time.monotonic() - began > 0.15  # 24 MB, the first chunk of which waits for nothing
    assert neighbours.kept == [f"e{EPOCH}-s10-r0"]


@pytest.mark.parametrize("what", ["flipped", "cut", "record"])
def test_what_is_damaged_in_a_neighbours_memory_is_told_once_and_the_others_go_on(
    neighbours: Neighbours, what: str
) -> None:
    """It is not fetched again and again, and a newer step is taken as ever."""
    port = neighbours.serve_ranks(0, 1)
    neighbours.save(10)
    commit(neighbours.memory, Shard(EPOCH, 10, 1), b"rank 1" * 1000, job=JOB)
    spoiled = neighbours.memory / f"e{EPOCH}-s10-r0.snap"
    if what == "record":
        spoiled.with_suffix(".json").write_text("{}")
    else:
        break_it(spoiled, what)
    peer = {**neighbours.wanted["peer"], "port": port, "ranks": [0, 1]}
    keeper = neighbours.keeper(peer=peer)
    assert [keeper.look() for _ in range(3)] == [True, True, True]
    assert neighbours.kept == [f"e{EPOCH}-s10-r1"]
    (problem,) = neighbours.of_kind("snapshot_problem")
    assert (problem["code"], problem["step"], problem["rank"]) == (CODES_OF_DAMAGE[what], 10, 0)
    assert "owner" in problem["message"]
    neighbours.save(20)
    assert keeper.look()
    assert f"e{EPOCH}-s20-r0" in neighbours.kept


def test_a_slot_that_is_written_over_while_it_is_read_is_no_trouble(neighbours: Neighbours) -> None:
    """The owner ends the connection then: that says nothing of the owner or of its network."""
    neighbours.save(10, words=6_000_000)
    keeper = neighbours.keeper()
    real, saved = keeper._pace.take, []

    def overwritten(count: int) -> None:
        if not saved:
            saved.extend((20, 30, 40))
            for step in saved:
                neighbours.save(step, words=6_000_000)
        real(count)

    keeper._pace.take = overwritten  # type: ignore[method-assign]
    assert keeper.look()
    assert saved
    until(lambda: keeper.look() and f"e{EPOCH}-s40-r0" in neighbours.kept, 10)
    assert neighbours.of_kind("snapshot_problem") == []


def test_a_shard_may_take_as_long_as_its_pieces_go_on_coming(
    neighbours: Neighbours, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither how long the whole takes nor the limit of one wait ends it: each piece has its own."""
    monkeypatch.setattr(peer_wire, "IDLE_S", 0.3)
    neighbours.save(10, words=3_000_000)
    began = time.monotonic()
    assert neighbours.keeper(bytes_per_s=24e6).look()
    assert time.monotonic() - began > 0.8
    assert neighbours.kept == [f"e{EPOCH}-s10-r0"]


def test_shards_of_ranks_that_no_pair_names_any_more_are_let_go_and_told(neighbours: Neighbours) -> None:
    for rank in (0, 5, 7):
        commit(neighbours.folder, Shard(EPOCH - 1, 10, rank), b"x" * 100, job=JOB)
    neighbours.keeper(kept_ranks=[0, 7])
    assert neighbours.kept == [f"e{EPOCH - 1}-s10-r0", f"e{EPOCH - 1}-s10-r7"]
    assert [body["rank"] for body in neighbours.of_kind("snapshot_removed")] == [5]
    assert [body["rank"] for body in neighbours.of_kind("snapshot_copy")] == [0]


def test_what_another_neighbour_s_keeper_has_begun_stays_and_what_nobody_goes_on_with_goes(
    neighbours: Neighbours,
) -> None:
    neighbours.folder.mkdir(parents=True, mode=0o700)
    own, others, nobodys = (
        neighbours.folder / f"e1-s1-r{rank}.snap.partner-{name}.part"
        for rank, name in ((0, "owner"), (5, "other"), (7, "gone"))
    )
    for part in (own, others, nobodys):
        part.write_bytes(b"begun")
    neighbours.keeper(kept_ranks=[0, 5])
    assert list(neighbours.folder.iterdir()) == [others]


def test_an_order_that_names_no_other_ranks_lets_nothing_go(neighbours: Neighbours) -> None:
    commit(neighbours.folder, Shard(EPOCH - 1, 10, 5), b"x" * 100, job=JOB)
    neighbours.keeper()
    assert neighbours.kept == [f"e{EPOCH - 1}-s10-r5"]


def test_a_neighbour_that_is_gone_is_told_of_and_what_is_kept_stays(neighbours: Neighbours) -> None:
    keeper = neighbours.keeper()
    neighbours.save(10)
    keeper.look()
    neighbours.owner.peers.stop()
    until(lambda: not keeper.look(), 5)
    assert [body["code"] for body in neighbours.of_kind("snapshot_problem")] == ["tier_unreachable"]
    assert neighbours.kept == [f"e{EPOCH}-s10-r0"]


def test_a_save_never_waits_for_a_partner_that_reads(neighbours: Neighbours) -> None:
    """The slot that is read may be written over; the copy then fails its digest and a newer one is taken."""
    neighbours.save(10, words=3_000_000)
    keeper = neighbours.keeper(bytes_per_s=0.0)
    real = keeper._pace.take
    saved = []

    def overwritten(count: int) -> None:
        if not saved:
            saved.extend((20, 30, 40))
            for step in (20, 30, 40):
                neighbours.save(step, words=3_000_000)
        real(count)

    keeper._pace.take = overwritten  # type: ignore[method-assign]
    keeper.look()
    until(lambda: keeper.look() and neighbours.kept, 10)
    assert neighbours.trainer.taken == 4
    assert neighbours.kept[-1] == f"e{EPOCH}-s40-r0"
    for key in neighbours.kept:
        copying.verify(neighbours.folder / f"{key}.snap", digest=DirectoryTier(neighbours.folder).record(key)["digest"])


def test_a_killed_keeper_leaves_nothing_that_looks_whole_and_is_not(neighbours: Neighbours) -> None:
    store = DirectoryTier(neighbours.folder)
    for number in range(KILLS):
        neighbours.save(10 * (number + 1), words=1_000_000)
        child = subprocess.Popen(
            [sys.executable, "-m", "reliability.agent.peer_keeper", "keep", f"--parent={os.getpid()}"],
            stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, cwd=CHECKOUT,
        )  # fmt: skip
        assert child.stdin is not None
        child.stdin.write(json.dumps(neighbours.wanted).encode())
        child.stdin.close()
        until(lambda: (neighbours.folder / ".").exists(), 10)
        time.sleep(random.uniform(0.0, 0.06))  # another moment each time
        child.send_signal(signal.SIGKILL)
        child.wait(10)
        for key in store.keys(""):
            copying.verify(store.data_path(key), digest=store.record(key)["digest"])
    keeper = neighbours.keeper()
    assert keeper.look()
    assert neighbours.kept[-1] == f"e{EPOCH}-s{10 * KILLS}-r0"
    assert not list(neighbours.folder.glob("*.part"))


@pytest.mark.parametrize("here", [True, False], ids=["on the keeper", "on a standby"])
def test_the_shard_of_a_lost_node_comes_from_its_partner_bit_by_bit(neighbours: Neighbours, here: bool) -> None:
    neighbours.save(10)
    neighbours.keeper().look()
    original = (neighbours.memory / f"e{EPOCH}-s10-r0.snap").read_bytes()
    record = DirectoryTier(neighbours.folder).record(f"e{EPOCH}-s10-r0")
    standby = AgentFolder(neighbours.folder.parents[2] / "standby" / JOB)
    standby.root.parent.mkdir()
    standby.make()
    source = {
        "tier": "partner",
        "path": str(neighbours.folder / f"e{EPOCH}-s10-r0.snap"),
        "digest": record["digest"],
        "size_bytes": record["size_bytes"],
        "node": "keeper",
    }
    if not here:
        port = serve_from(neighbours, f"e{EPOCH}-s10-r0")
        source["peer"] = {"address": "127.0.0.1", "port": port, "token": TOKEN}
    wanted = {"step": 10, "snapshot_epoch": EPOCH, "ranks": [{"rank": 0, "sources": [source]}]}
    node = "keeper" if here else "standby"
    (outcome,) = restoring.restore(
        standby.memory, payloads.restore(wanted), node=node, job=JOB, epoch=EPOCH + 1, limit_s=20
    )
    assert outcome["tier"] == "partner"
    brought = standby.memory.data_path(f"e{EPOCH}-s10-r0")
    assert brought.read_bytes() == original
    assert load(brought.with_suffix(".json"), rank=0)[1]["model"][0] == 10


@pytest.mark.parametrize("here", [True, False], ids=["on the keeper", "on a standby"])
@pytest.mark.parametrize("what", ["flipped", "cut", "empty", "gone", "no record"])
def test_a_damaged_partner_copy_is_never_restored_and_is_named(neighbours: Neighbours, what: str, here: bool) -> None:
    neighbours.save(10)
    neighbours.keeper().look()
    copy = neighbours.folder / f"e{EPOCH}-s10-r0.snap"
    record = DirectoryTier(neighbours.folder).record(copy.stem)
    break_it(copy, what)
    source = {
        "tier": "partner",
        "path": str(copy),
        "node": "keeper",
        **{k: record[k] for k in ("digest", "size_bytes")},
    }
    if not here:
        port = serve_from(neighbours, copy.stem)
        source["peer"] = {"address": "127.0.0.1", "port": port, "token": TOKEN}
    memory = DirectoryTier(neighbours.folder.parents[2] / "standby")
    memory.root.mkdir()
    wanted = payloads.restore({"step": 10, "snapshot_epoch": EPOCH, "ranks": [{"rank": 0, "sources": [source]}]})
    node = "keeper" if here else "standby"
    with pytest.raises(OrderFailed) as failed:
        restoring.restore(memory, wanted, node=node, job=JOB, epoch=EPOCH + 1, limit_s=20)
    (bad,) = failed.value.result["bad"]
    expected = {"flipped": "digest_mismatch", "cut": "digest_mismatch", "empty": "digest_mismatch"}
    assert bad["code"] == expected.get(what, "copy_missing") or (not here and bad["code"] == "tier_unreachable")
    assert memory.keys("") == []


def break_it(copy: Path, what: str) -> None:
    if what == "flipped":
        damage(str(copy))
    elif what in ("cut", "empty"):
        os.truncate(copy, copy.stat().st_size - 4096 if what == "cut" else 0)
    else:
        (copy if what == "gone" else copy.with_suffix(".json")).unlink()


def serve_from(neighbours: Neighbours, key: str) -> int:
    """Have the keeper serve what it keeps."""
    keeper = Serving(neighbours.folder.parents[2] / "keeper-serves")
    keeper.memory.symlink_to(neighbours.folder.parents[1])
    return keeper.serve(("partner", key), epoch=EPOCH + 1, limit_s=10)
