"""Only what verifies is restored; what does not is named, and the next copy is tried."""

import json
from pathlib import Path

import pytest

from reliability.agent import restoring
from reliability.agent.desk import OrderFailed
from reliability.agent.folder import JobFolder
from reliability.agent.payloads import RankRestore, Source
from reliability.tiers import copying
from reliability.tiers.shards import Shard
from tests.agent.conftest import AgentProcess
from tests.agent.ingest import Ingest, until
from tests.agent.shardfiles import commit, damage

JOB = "lm"
SHARD = Shard(1, 40, 0)
CONTENT = b"weights" * 50_000


@pytest.fixture
def copies(agent: AgentProcess) -> dict[str, dict]:
    """The same shard on all three tiers of a node."""
    places = {
        "memory": (agent.memory(JOB) / "mem", False),
        "ssd": (agent.folder / "ssd" / JOB, False),
        "storage": (agent.storage / JOB, True),
    }
    return {
        tier: {"tier": tier, "node": "" if stored else "node-a", **commit(folder, SHARD, CONTENT, stored=stored)}
        for tier, (folder, stored) in places.items()
    }


def payload(sources: list[dict]) -> dict:
    return {"step": SHARD.step, "snapshot_epoch": SHARD.epoch, "ranks": [{"rank": SHARD.rank, "sources": sources}]}


def restore(ingest: Ingest, copies: dict[str, dict]) -> dict:
    order = ingest.order("restore", job=JOB, epoch=2, payload=payload(list(copies.values())))
    return ingest.result(order)


def test_a_good_copy_in_memory_is_used_where_it_lies(ingest: Ingest, copies: dict[str, dict]) -> None:
    outcome = restore(ingest, copies)
    assert outcome["result"]["ranks"] == [{"rank": 0, "tier": "memory", "skipped": []}]


@pytest.mark.parametrize(("bad", "used"), [(["memory"], "ssd"), (["memory", "ssd"], "storage")])
def test_damaged_copies_are_skipped_named_and_replaced_by_a_good_one(
    ingest: Ingest, agent: AgentProcess, copies: dict[str, dict], bad: list[str], used: str
) -> None:
    for tier in bad:
        damage(copies[tier]["path"])
    outcome = restore(ingest, copies)
    rank = outcome["result"]["ranks"][0]
    assert rank["tier"] == used
    assert [(entry["tier"], entry["code"]) for entry in rank["skipped"]] == [(tier, "digest_mismatch") for tier in bad]
    in_memory = agent.memory(JOB) / "mem" / f"{SHARD.flat_key}.snap"
    assert copying.verify(in_memory, digest=copies["storage"]["digest"]) == len(CONTENT)
    record = json.loads(in_memory.with_suffix(".json").read_bytes())
    assert (record["job"], record["epoch"], record["step"], record["rank"]) == (JOB, 1, 40, 0)
    problems = until(lambda: ingest.of_kind("snapshot_problem"))
    assert [(p["tier"], p["code"]) for p in problems] == [(tier, "digest_mismatch") for tier in bad]


def test_only_the_restore_itself_says_that_it_brought_a_copy_after_it_named_the_one_that_was_no_good(
    ingest: Ingest, agent: AgentProcess, copies: dict[str, dict]
) -> None:
    damage(copies["memory"]["path"])
    damage(copies["storage"]["path"])
    assert restore(ingest, copies)["result"]["ranks"][0]["tier"] == "ssd"
    until(lambda: [body for body in ingest.of_kind("snapshot_copy") if body.get("restored")])
    kinds = [(each["kind"], bool(each["body"].get("restored"))) for each in ingest.reports if "tier" in each["body"]]
    assert kinds.index(("snapshot_copy", True)) > kinds.index(("snapshot_problem", False))
    ingest.reports.clear()
    agent.kill()
    agent.start()
    again = until(lambda: [body for body in ingest.of_kind("snapshot_copy") if body["tier"] == "memory"])
    assert [body.get("restored") for body in again] == [None]


def test_what_one_rank_got_is_told_as_brought_also_when_another_got_nothing(
    ingest: Ingest, agent: AgentProcess, copies: dict[str, dict]
) -> None:
    given = payload(list(copies.values()))
    given["ranks"].append({"rank": 1, "sources": [copies["storage"] | {"path": "/nowhere/s40-r1.snap"}]})
    assert ingest.result(ingest.order("restore", job=JOB, epoch=2, payload=given))["status"] == "failed"
    told = until(lambda: [body for body in ingest.of_kind("snapshot_copy") if body.get("restored")])
    assert [(body["tier"], body["rank"]) for body in told] == [("memory", 0)]


def test_a_restore_without_any_good_copy_fails_and_names_them_all(ingest: Ingest, copies: dict[str, dict]) -> None:
    damage(copies["memory"]["path"])
    Path(copies["ssd"]["path"]).write_bytes(b"")
    Path(copies["storage"]["path"]).unlink()
    outcome = restore(ingest, copies)
    assert outcome["status"] == "failed"
    assert {(bad["tier"], bad["code"]) for bad in outcome["result"]["bad"]} == {
        ("memory", "digest_mismatch"),
        ("ssd", "digest_mismatch"),
        ("storage", "copy_missing"),
    }
    assert outcome["error"]["code"] in {"digest_mismatch", "copy_missing"}


@pytest.mark.parametrize("tier", ["ssd", "storage"])
def test_a_path_that_is_not_the_place_of_the_shard_is_not_opened(tmp_path: Path, tier: str) -> None:
    memory = JobFolder(tmp_path / "memory" / JOB)
    memory.make()
    elsewhere = commit(tmp_path / "other-job", SHARD, CONTENT, stored=tier == "storage")
    secret = tmp_path / "secret"
    secret.write_bytes(CONTENT)
    linked = tmp_path / tier / JOB / f"{SHARD.stored_key if tier == 'storage' else SHARD.flat_key}.snap"
    linked.parent.mkdir(parents=True)
    linked.symlink_to(secret)
    for path in (secret, Path(elsewhere["path"]), linked):
        source = Source(tier=tier, path=str(path), digest=elsewhere["digest"], node="")
        with pytest.raises(OrderFailed) as refused:
            restoring.restore(memory.memory, [RankRestore(shard=SHARD, sources=[source])], node="n", job=JOB)
        assert [bad["code"] for bad in refused.value.result["bad"]] == ["copy_missing"]
    assert memory.memory.keys("") == []


def test_a_copy_on_another_node_is_never_looked_for_here(ingest: Ingest, copies: dict[str, dict]) -> None:
    copies["memory"]["node"] = "node-b"
    rank = restore(ingest, copies)["result"]["ranks"][0]
    assert rank["tier"] == "ssd"
    assert rank["skipped"][0]["code"] == "copy_missing"


def test_what_a_program_restores_is_what_was_brought_from_storage(ingest: Ingest, agent: AgentProcess) -> None:
    start = agent.start_payload()
    ingest.done("start", job=JOB, epoch=1, payload=start)
    stored = until(lambda: [c for c in ingest.of_kind("snapshot_copy") if c["tier"] == "storage"])[0]
    ingest.done("stop", job=JOB, epoch=2, payload={"grace_s": 0})
    ingest.done("release", job=JOB, epoch=2)
    source = {key: stored[key] for key in ("tier", "path", "digest", "size_bytes")} | {"node": ""}
    wanted = {"step": stored["step"], "snapshot_epoch": 1, "ranks": [{"rank": 0, "sources": [source]}]}
    assert ingest.done("restore", job=JOB, epoch=2, payload=wanted)["ranks"][0]["tier"] == "storage"
    again = agent.start_payload(restore={"step": stored["step"], "snapshot_epoch": 1})
    ingest.done("start", job=JOB, epoch=2, payload=again)
    first = until(lambda: [b for b in ingest.of_kind("first_step") if b["_epoch"] == 2])[0]
    assert (first["restored_step"], first["step"]) == (stored["step"], stored["step"] + 1)
