"""A job on one agent from its start to its end, with real processes, launcher and trainer."""

import json
import os
import signal
import time
from pathlib import Path

import pytest

from reliability.tiers import copying
from tests.agent.conftest import AgentProcess
from tests.agent.ingest import Ingest, until

JOB = "lm"


def begin(ingest: Ingest, agent: AgentProcess, *, epoch: int = 1, **given: object) -> dict:
    return ingest.done("start", job=JOB, epoch=epoch, payload=agent.start_payload(**given))


def first_steps(ingest: Ingest, epoch: int) -> list[dict]:
    return [body for body in ingest.of_kind("first_step") if body["_epoch"] == epoch]


def are_training(ranks: list[dict]) -> bool:
    """Whether a heartbeat tells of both ranks, each with a step: one may be ahead of the other."""
    return len(ranks) == 2 and all(rank["step"] and rank["phase"] == "training" for rank in ranks)


def test_a_started_job_reports_first_steps_progress_and_copies_on_all_tiers(
    ingest: Ingest, agent: AgentProcess
) -> None:
    prepared = ingest.done("prepare", job=JOB, epoch=1, payload={"container": agent.container()})
    assert prepared["ready"] is True
    started = begin(ingest, agent, ranks=2)
    assert set(started["pids"]) == {"0", "1"}
    until(lambda: len(first_steps(ingest, 1)) == 2)
    until(lambda: {body["tier"] for body in ingest.of_kind("snapshot_copy")} == {"memory", "ssd", "storage"})
    job = until(lambda: next((j for b in ingest.beats for j in b["jobs"] if are_training(j["ranks"])), None))
    assert (job["job"], job["epoch"], job["slot"], job["container"]) == (JOB, 1, 0, "running")
    assert [rank["plan_version"] for rank in job["ranks"]] == [1, 1]
    stored = next(body for body in ingest.of_kind("snapshot_copy") if body["tier"] == "storage")
    assert copying.verify(Path(stored["path"]), digest=stored["digest"]) == stored["size_bytes"]
    record = json.loads(Path(stored["path"]).with_suffix(".json").read_bytes())
    assert (record["step"], record["digest"]) == (stored["step"], stored["digest"])


def test_a_killed_rank_is_reported_within_a_moment(ingest: Ingest, agent: AgentProcess) -> None:
    pids = begin(ingest, agent)["pids"]
    until(lambda: first_steps(ingest, 1))
    killed_at = time.monotonic()
    os.kill(pids["0"], signal.SIGKILL)
    report = until(lambda: ingest.of_kind("rank_exit"))[0]
    index = next(i for i, report in enumerate(ingest.reports) if report["kind"] == "rank_exit")
    assert (report["exit_code"], report["signal"], report["rank"]) == (137, 9, 0)
    assert report["last_step"] >= 1
    assert ingest.received_at[index] - killed_at < 5


def test_a_stop_ends_the_ranks_and_keeps_the_launcher_warm_for_the_next_attempt(
    ingest: Ingest, agent: AgentProcess
) -> None:
    first = begin(ingest, agent)["pids"]["0"]
    copy = until(lambda: [copy for copy in ingest.of_kind("snapshot_copy") if copy["tier"] == "memory"])[0]
    stopped = ingest.done("stop", job=JOB, epoch=2, payload={"grace_s": 0})
    assert stopped["stopped"] == [0]
    assert not Path(f"/proc/{first}").exists()
    source = {"tier": "memory", "path": copy["path"], "digest": copy["digest"], "size_bytes": 1, "node": "node-a"}
    wanted = {"step": copy["step"], "snapshot_epoch": 1, "ranks": [{"rank": 0, "sources": [source]}]}
    newest = max((c for c in ingest.of_kind("snapshot_copy") if c["tier"] == "memory"), key=lambda c: c["step"])
    source.update(path=newest["path"], digest=newest["digest"])
    wanted["step"] = newest["step"]
    restored = ingest.done("restore", job=JOB, epoch=2, payload=wanted)
    assert restored["ranks"] == [{"rank": 0, "tier": "memory", "skipped": []}]
    began = time.monotonic()
    begin(ingest, agent, epoch=2, restore={"step": newest["step"], "snapshot_epoch": 1})
    first_step = until(lambda: first_steps(ingest, 2))[0]
    assert first_step["restored_step"] == newest["step"]
    assert first_step["step"] == newest["step"] + 1
    assert time.monotonic() - began < 15
    assert ingest.of_kind("rank_exit") == [], "ranks that were stopped on order are no fault"


def test_a_higher_epoch_in_an_answer_ends_the_ranks_of_the_older_attempt(ingest: Ingest, agent: AgentProcess) -> None:
    pid = begin(ingest, agent)["pids"]["0"]
    until(lambda: first_steps(ingest, 1))
    ingest.epochs = {JOB: 2}
    until(lambda: not Path(f"/proc/{pid}").exists(), 5)
    beat = until(lambda: next((b for b in ingest.beats if b["jobs"] and b["jobs"][0]["epoch"] == 2), None))
    assert beat["jobs"][0]["container"] == "warm"


def test_a_standby_gets_warm_although_the_attempt_rises_meanwhile(ingest: Ingest, agent: AgentProcess) -> None:
    container = agent.container(preload=["asyncio", "xml.dom.minidom"])
    order = ingest.order("prepare", job=JOB, epoch=1, payload={"container": container})
    until(lambda: agent.memory(JOB).exists())
    ingest.epochs = {JOB: 2}
    assert ingest.result(order)["status"] == "done"
    until(lambda: ingest.beats[-1]["jobs"] and ingest.beats[-1]["jobs"][0]["epoch"] == 2)
    assert ingest.beats[-1]["jobs"][0]["container"] == "warm"


def test_a_good_end_is_reported_with_code_0_and_release_keeps_the_last_snapshot(
    ingest: Ingest, agent: AgentProcess
) -> None:
    begin(ingest, agent, env={"LAST_STEP": "10"})
    ended = until(lambda: ingest.of_kind("rank_exit"))[0]
    assert (ended["exit_code"], ended["signal"], ended["last_step"]) == (0, 0, 10)
    ingest.done("release", job=JOB, epoch=1)
    assert not agent.memory(JOB).exists()
    until(lambda: any(c["tier"] == "storage" and c["step"] == 10 for c in ingest.of_kind("snapshot_copy")))


def test_a_lost_container_is_reported_once_and_not_as_ordered(ingest: Ingest, agent: AgentProcess) -> None:
    begin(ingest, agent)
    until(lambda: first_steps(ingest, 1))
    launcher = json.loads((agent.memory(JOB) / "ctl" / "ready.json").read_bytes())["pid"]
    os.kill(launcher, signal.SIGKILL)
    died = until(lambda: ingest.of_kind("container"))
    assert [(body["event"], body["ordered"]) for body in died] == [("die", False)]
    again = begin(ingest, agent, epoch=2)["pids"]
    assert set(again) == {"0"}


def test_a_new_period_reaches_the_trainer(ingest: Ingest, agent: AgentProcess) -> None:
    begin(ingest, agent)
    until(lambda: first_steps(ingest, 1))
    ingest.done(
        "set_period", job=JOB, epoch=1, payload={"period_plan": [{"from_step": 0, "every_steps": 7}], "plan_version": 4}
    )
    until(lambda: ingest.beats[-1]["jobs"][0]["ranks"][0]["plan_version"] == 4)


@pytest.mark.parametrize("what", ["ranks", "container"])
def test_a_bad_start_payload_fails_with_the_name_of_the_field(ingest: Ingest, agent: AgentProcess, what: str) -> None:
    payload = agent.start_payload()
    del payload[what]
    outcome = ingest.result(ingest.order("start", job=JOB, epoch=1, payload=payload))
    assert outcome["status"] == "failed"
    assert outcome["error"]["code"] == "invalid_input"
    assert f"payload.{what}" in outcome["error"]["message"]
