"""The agent is killed at any moment, with its movers, while training goes on: what was told of copies is true.

STEPKEEPER_KILLS=200 for the long form.
"""

import os
import random
import threading
from typing import Any

import pytest

from reliability.tiers import copying
from reliability.tiers.directory import DirectoryTier
from tests.agent.conftest import AgentProcess
from tests.agent.ingest import Ingest, until

KILLS = int(os.environ.get("STEPKEEPER_KILLS", "4"))
JOB = "lm"
LONGEST_S = 1.6
"""An agent has begun, and has told of copies, within that on a quiet machine."""

pytestmark = [pytest.mark.slow, pytest.mark.timeout(60 + 20 * KILLS)]


def newest_told(ingest: Ingest, tier: str) -> dict[str, Any]:
    """Return the newest copy on a tier that was ever reported."""
    told = [body for body in ingest.of_kind("snapshot_copy") if body["tier"] == tier]
    return max(told, key=lambda body: body["step"])


def good_steps(tier: DirectoryTier) -> list[int]:
    """Return the steps that are committed there, each read and compared with its digest."""
    steps = []
    for key in tier.keys(""):
        record = tier.record(key)
        assert copying.verify(tier.data_path(key), digest=record["digest"]) == record["size_bytes"]
        steps.append(record["step"])
    return steps


def begin(ingest: Ingest, agent: AgentProcess, epoch: int, source: dict[str, Any] | None) -> None:
    """Start an attempt, from a copy that was told of once there is one."""
    restore = None
    if source is not None:
        place = {name: source[name] for name in ("tier", "path", "digest", "size_bytes")}
        ranks = [{"rank": 0, "sources": [{**place, "node": agent.node}]}]
        restore = {"step": source["step"], "snapshot_epoch": source["snapshot_epoch"]}
        brought = ingest.done("restore", job=JOB, epoch=epoch, payload={**restore, "ranks": ranks}, limit_s=30)
        assert brought["ranks"] == [{"rank": 0, "tier": source["tier"], "skipped": []}]
    payload = agent.start_payload(env={"STEP_S": "0.01"}, restore=restore)
    ingest.done("start", job=JOB, epoch=epoch, payload=payload, limit_s=30)


def test_what_was_told_of_copies_is_there_and_loads_whenever_the_agent_is_killed(
    ingest: Ingest, agent: AgentProcess
) -> None:
    """With it end its movers and, without an engine, the ranks: each attempt goes on from what was told before."""
    begin(ingest, agent, 1, None)
    until(lambda: any(body["tier"] == "storage" for body in ingest.of_kind("snapshot_copy")), 30)
    tiers = {"ssd": DirectoryTier(agent.folder / "ssd" / JOB), "storage": DirectoryTier(agent.storage / JOB)}
    chance, pause = random.Random(seed := random.randrange(10**6)), threading.Event()
    for kill in range(KILLS):
        pause.wait(chance.uniform(0.0, LONGEST_S))
        agent.kill()
        for name, tier in tiers.items():
            told = newest_told(ingest, name)["step"]
            assert max(good_steps(tier), default=0) >= told, (seed, kill, name)
        agent.start()
        begin(ingest, agent, kill + 2, newest_told(ingest, chance.choice(("ssd", "storage"))))
    first = until(lambda: [body for body in ingest.of_kind("first_step") if body["_epoch"] == KILLS + 1], 30)[0]
    assert first["step"] > first["restored_step"] > 0
    assert ingest.of_kind("snapshot_problem") == []
