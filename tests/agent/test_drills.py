"""A drill breaks something for real."""

import time
from pathlib import Path

from tests.agent.conftest import AgentProcess
from tests.agent.ingest import Ingest, until

JOB = "lm"


def start(ingest: Ingest, agent: AgentProcess, ranks: int = 1) -> dict[str, int]:
    payload = agent.start_payload(ranks, lease_rule="keep")
    pids = ingest.done("start", job=JOB, epoch=1, payload=payload)["pids"]
    until(lambda: len(ingest.of_kind("first_step")) == ranks)
    return dict(pids)


def drill(ingest: Ingest, what: str, **given: object) -> dict:
    return ingest.done("drill", job=JOB, epoch=1, payload={"what": what, "rank": None, "seconds": 1.5, **given})


def test_a_rank_is_killed_and_only_that_one(ingest: Ingest, agent: AgentProcess) -> None:
    pids = start(ingest, agent, ranks=2)
    done = drill(ingest, "kill_rank", rank=1)
    assert abs(done["done_at"] - time.time()) < 10
    ended = until(lambda: ingest.of_kind("rank_exit"))
    assert [(body["rank"], body["exit_code"]) for body in ended] == [(1, 137)]
    assert Path(f"/proc/{pids['0']}").exists()


def test_a_rank_that_does_not_run_here_cannot_be_killed(ingest: Ingest, agent: AgentProcess) -> None:
    start(ingest, agent)
    order = ingest.order("drill", job=JOB, epoch=1, payload={"what": "kill_rank", "rank": 5, "seconds": 1})
    outcome = ingest.result(order)
    assert outcome["status"] == "failed"
    assert "rank 5 does not run here" in outcome["error"]["message"]


def test_a_killed_node_answers_and_then_is_silent_and_deaf_for_a_while(ingest: Ingest, agent: AgentProcess) -> None:
    pids = start(ingest, agent)
    drill(ingest, "kill_node")
    until(lambda: not Path(f"/proc/{pids['0']}").exists())
    heard = (len(ingest.beats), len(ingest.reports))
    silent_since = time.monotonic()
    until(lambda: time.monotonic() - silent_since > 1.0)
    assert (len(ingest.beats), len(ingest.reports)) == heard
    until(lambda: len(ingest.beats) > heard[0], 5)
    died = until(lambda: ingest.of_kind("container"))
    assert [(body["event"], body["ordered"]) for body in died] == [("die", False)]
    assert len(ingest.of_kind("order_result")) == 2, "the drill is answered once"


def test_heartbeats_stop_while_training_and_reports_go_on(ingest: Ingest, agent: AgentProcess) -> None:
    pids = start(ingest, agent)
    drill(ingest, "stop_heartbeats")
    until(lambda: ingest.of_kind("order_result"))
    beats, copies = len(ingest.beats), len(ingest.of_kind("snapshot_copy"))
    until(lambda: len(ingest.of_kind("snapshot_copy")) > copies + 2, 10)
    assert len(ingest.beats) <= beats + 1
    assert Path(f"/proc/{pids['0']}").exists()
    until(lambda: len(ingest.beats) > beats + 3, 10)
