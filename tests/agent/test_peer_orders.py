"""A real agent lets others read, and keeps for others, what signed orders of the newest attempt say, no more."""

import json
import os
from pathlib import Path

import pytest

from reliability.agent.peer_serving import PARTNERS
from reliability.errors import TierUnreachable
from reliability.tiers.directory import DirectoryTier
from tests.agent.conftest import AgentProcess
from tests.agent.ingest import Ingest, until
from tests.agent.shardfiles import commit
from tests.agent.test_peers import CONTENT, SHARD, TOKEN, fetch
from tests.trainer.test_parts import DATA_PARALLEL, saved

JOB = "lm"


def serve(ingest: Ingest, *, epoch: int, **given: object) -> int:
    shards = [{"tier": "ssd", "key": SHARD.flat_key}]
    payload = {"token": TOKEN, "limit_s": 30, "hold": True, "shards": shards, **given}
    return int(ingest.done("peer_serve", job=JOB, epoch=epoch, payload=payload)["port"])


def test_what_an_order_names_is_served_until_a_newer_attempt_is_heard_of(ingest: Ingest, agent: AgentProcess) -> None:
    copy = commit(agent.folder / "ssd" / JOB, SHARD, CONTENT)
    port = serve(ingest, epoch=2)
    assert fetch(port, copy["digest"], job=JOB, epoch=2) == CONTENT
    ingest.done("stop", job=JOB, epoch=3, payload={"grace_s": 0})
    with pytest.raises(TierUnreachable):
        fetch(port, copy["digest"], job=JOB, epoch=2)
    refused = ingest.result(ingest.order("peer_serve", job=JOB, epoch=2, payload={}))
    assert refused["status"] == "refused"


def test_what_is_served_ends_with_the_agent(ingest: Ingest, agent: AgentProcess) -> None:
    copy = commit(agent.folder / "ssd" / JOB, SHARD, CONTENT)
    port = serve(ingest, epoch=2)
    agent.kill()

    def gone() -> bool:
        try:
            fetch(port, copy["digest"], job=JOB, epoch=2)
        except TierUnreachable:
            return True
        return False

    until(gone, 5)


def test_a_neighbours_newest_shard_is_kept_reported_and_given_up_with_the_release(
    ingest: Ingest, agent: AgentProcess
) -> None:
    """The agent is its own neighbour here: it keeps in one place what it serves from another."""
    ingest.done("start", job=JOB, epoch=1, payload=agent.start_payload())
    port = serve(ingest, epoch=1, shards=[], ranks=[0], hold=False)
    peer = {"node": "node-b", "address": "127.0.0.1", "port": port, "token": TOKEN, "ranks": [0]}
    ingest.done("partner_keep", job=JOB, epoch=1, payload={"peer": peer, "limit_s": 30, "bytes_per_s": 0})
    told = until(lambda: [body for body in ingest.of_kind("snapshot_copy") if body["tier"] == "partner"])[0]
    assert Path(told["path"]).parent == agent.folder / "memory" / PARTNERS / JOB
    until(lambda: [body for body in ingest.of_kind("snapshot_removed") if body["tier"] == "partner"])
    ingest.done("release", job=JOB, epoch=2)
    assert not Path(told["path"]).parent.exists()


def test_a_commit_is_reported_with_its_parts_and_the_head_once(ingest: Ingest, agent: AgentProcess) -> None:
    ingest.done("start", job=JOB, epoch=1, payload=agent.start_payload(env={"STEP_S": "1000"}))
    record = saved(agent.memory(JOB), 7)
    told = until(lambda: [b for b in ingest.of_kind("snapshot_copy") if b["rank"] == 7 and b["tier"] == "memory"])[0]
    assert told["parts"] == json.loads(record.read_text())["parts"]
    assert told["head"]
    until(lambda: not record.with_suffix(".head").exists(), 5)


def test_a_local_part_that_is_too_large_to_travel_is_told_once_an_attempt(
    ingest: Ingest, agent: AgentProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    ingest.done("start", job=JOB, epoch=1, payload=agent.start_payload(env={"STEP_S": "1000"}))
    noise = "tests.trainer.test_parts.state_of"
    monkeypatch.setattr(noise, lambda rank, step: {"data": os.urandom(200_000), "model": [1, b"w" * 100]})
    for rank in (7, 8):
        saved(agent.memory(JOB), rank, named=DATA_PARALLEL)
    until(lambda: {body["rank"] for body in ingest.of_kind("snapshot_copy") if body["tier"] == "memory"} >= {7, 8})
    problems = [body for body in ingest.of_kind("snapshot_problem") if body["code"] == "local_too_large"]
    assert len(problems) == 1
    assert "travel with a commit" in problems[0]["message"]
    assert DirectoryTier(agent.memory(JOB) / "mem").keys("e1-s1-r7")
