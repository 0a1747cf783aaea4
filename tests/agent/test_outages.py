"""What an agent does while the server is away, and what it tells when the server is back."""

import os
import signal
import sqlite3
import time
from pathlib import Path

import pytest

from reliability.agent.spool import Spool
from tests.agent.conftest import AgentProcess
from tests.agent.ingest import JOIN_TOKEN, NODE_TOKEN, Ingest, until

JOB = "lm"


def start(ingest: Ingest, agent: AgentProcess, rule: str, **given: object) -> int:
    """Start one rank, wait for its first step and return its process id."""
    payload = agent.start_payload(lease_rule=rule, **given)
    pid = ingest.done("start", job=JOB, epoch=1, payload=payload)["pids"]["0"]
    until(lambda: ingest.of_kind("first_step"))
    return int(pid)


def runs(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


def test_reports_of_an_outage_and_of_an_earlier_life_are_replayed_in_order(ingest: Ingest, agent: AgentProcess) -> None:
    start(ingest, agent, "keep")
    first_life = ingest.reports[-1]["incarnation"]
    ingest.close()
    ssd = agent.folder / "ssd" / JOB
    newest = max((int(path.stem.split("-")[1][1:]) for path in ssd.glob("*.json")), default=0)
    until(lambda: any(int(path.stem.split("-")[1][1:]) > newest for path in ssd.glob("*.json")))
    agent.kill()
    agent.start()
    ingest.open()
    until(lambda: {report["incarnation"] for report in ingest.reports} > {first_life})
    old = [report["seq"] for report in ingest.reports if report["incarnation"] == first_life]
    assert old == list(range(1, len(old) + 1)), "in order, none lost, none twice"
    lives = [report["incarnation"] for report in ingest.reports]
    assert lives == sorted(lives, key=lambda life: life != first_life), "the earlier life's reports come first"
    assert [r["token_used"] for r in ingest.registrations] == [JOIN_TOKEN, NODE_TOKEN]


def test_a_refused_report_is_dropped_once_and_kept_for_people(ingest: Ingest, agent: AgentProcess) -> None:
    ingest.refused = lambda item: item["kind"] == "first_step"
    payload = agent.start_payload(lease_rule="keep")
    ingest.done("start", job=JOB, epoch=1, payload=payload)
    until(lambda: ingest.of_kind("snapshot_copy"))
    assert ingest.of_kind("first_step") == []
    spool = sqlite3.connect(agent.data / "spool.sqlite3")
    rows = until(lambda: spool.execute("SELECT kind, code FROM refused").fetchall())
    spool.close()
    assert rows == [("first_step", "stale_epoch")]


def test_an_agent_that_the_server_forgot_registers_again_and_loses_no_report(
    ingest: Ingest, agent: AgentProcess
) -> None:
    start(ingest, agent, "keep")
    ingest.replaced = ingest.registrations[0]["incarnation"]
    until(lambda: len(ingest.registrations) == 2)
    copies = len(ingest.of_kind("snapshot_copy"))
    until(lambda: len(ingest.of_kind("snapshot_copy")) > copies + 3)
    seqs = [report["seq"] for report in ingest.reports]
    assert seqs == list(range(1, len(seqs) + 1))


def test_an_agent_whose_name_another_one_took_for_good_gives_way(ingest: Ingest, agent: AgentProcess) -> None:
    ingest.give_way = False
    ingest.replaced = ingest.registrations[0]["incarnation"]
    assert agent.process is not None
    assert agent.process.wait(timeout=25) == 1
    assert "another agent took the name" in agent.output()


def test_a_report_that_the_server_cannot_read_does_not_hold_up_the_others(ingest: Ingest, agent: AgentProcess) -> None:
    ingest.malformed = lambda item: item["kind"] == "first_step"
    ingest.close()
    until(lambda: "not sent" in agent.output())
    ingest.open()
    ingest.done("start", job=JOB, epoch=1, payload=agent.start_payload(lease_rule="keep"))
    until(lambda: {body["tier"] for body in ingest.of_kind("snapshot_copy")} == {"memory", "ssd", "storage"})
    assert ingest.of_kind("first_step") == []


def test_a_job_that_makes_steps_goes_on_without_the_server(ingest: Ingest, agent: AgentProcess) -> None:
    pid = start(ingest, agent, "stop_when_stuck")
    stored = agent.storage / JOB / "e1"
    ingest.close()
    away_since = time.monotonic()
    until(lambda: time.monotonic() - away_since > 4 * ingest.lease_s)
    assert runs(pid)
    before = len(list(stored.glob("*.json")))
    newest = max(int(path.name.split("-")[0][1:]) for path in stored.glob("*.json"))
    assert before > 0
    until(lambda: max(int(path.name.split("-")[0][1:]) for path in stored.glob("*.json")) > newest)
    ingest.open()
    until(lambda: ingest.beats[-1]["jobs"][0]["container"] == "running")
    assert ingest.of_kind("rank_exit") == []


def test_a_stuck_job_is_stopped_when_the_lease_ran_out_and_that_is_reported(
    ingest: Ingest, agent: AgentProcess
) -> None:
    pid = start(ingest, agent, "stop_when_stuck", env={"STUCK_AT": "20"})
    copies = until(lambda: [c for c in ingest.of_kind("snapshot_copy") if c["tier"] == "memory"])
    until(lambda: ingest.beats[-1]["jobs"][0]["ranks"][0]["step"] == 20)
    stuck_since = time.monotonic()
    until(lambda: time.monotonic() - stuck_since > 2 * ingest.lease_s)
    assert runs(pid), "a stuck job whose lease holds is the server's to judge"
    ingest.close()
    until(lambda: not runs(pid), 10)
    assert Path(copies[-1]["path"]).parent.is_dir()
    ingest.open()
    ended = until(lambda: ingest.of_kind("rank_exit"))[0]
    assert (ended["exit_code"], ended["last_step"]) == (137, 20)
    assert "lease" in ended["tail"]
    assert until(lambda: ingest.of_kind("finding"))[0]["code"] == "agent-silent"


def test_the_rule_stop_ends_a_job_although_it_makes_steps(ingest: Ingest, agent: AgentProcess) -> None:
    pid = start(ingest, agent, "stop")
    closed_at = time.monotonic()
    ingest.close()
    until(lambda: not runs(pid), 10)
    assert time.monotonic() - closed_at > ingest.lease_s * 0.8


def test_the_rule_keep_never_ends_a_job_by_its_lease(ingest: Ingest, agent: AgentProcess) -> None:
    pid = start(ingest, agent, "keep", env={"STUCK_AT": "5"})
    ingest.close()
    away_since = time.monotonic()
    until(lambda: time.monotonic() - away_since > 4 * ingest.lease_s)
    assert runs(pid)


def test_heartbeats_go_on_while_orders_hang(ingest: Ingest, agent: AgentProcess) -> None:
    for _ in range(10):
        ingest.order("probe_sdc", payload={"seed": 1, "rounds": 100, "size": 512, "limit_s": 6})
    until(lambda: "order" in agent.output() or len(ingest.beats) > 3)
    count = len(ingest.beats)
    began = time.monotonic()
    until(lambda: len(ingest.beats) > count + 10)
    assert time.monotonic() - began < 5


def test_a_frozen_agent_judges_its_lease_by_what_the_ranks_did_meanwhile(ingest: Ingest, agent: AgentProcess) -> None:
    pid = start(ingest, agent, "stop_when_stuck")
    assert agent.process is not None
    agent.process.send_signal(signal.SIGSTOP)
    frozen_at = time.monotonic()
    until(lambda: time.monotonic() - frozen_at > 3 * ingest.lease_s)
    agent.process.send_signal(signal.SIGCONT)
    count = len(ingest.beats)
    until(lambda: len(ingest.beats) > count + 5)
    assert runs(pid), "the ranks went on all the time"


@pytest.mark.parametrize("signal_number", [signal.SIGTERM, signal.SIGKILL])
def test_no_process_is_left_when_an_agent_with_the_process_runtime_ends(
    ingest: Ingest, agent: AgentProcess, signal_number: int
) -> None:
    pid = start(ingest, agent, "keep")
    assert agent.process is not None
    children = Path(f"/proc/{agent.process.pid}/task/{agent.process.pid}/children")
    assert children.exists()
    agent.process.send_signal(signal_number)
    agent.process.wait(timeout=25)
    until(lambda: not runs(pid), 10)
    marker = str(agent.folder).encode()
    until(lambda: not _mentioning(marker), 10)


def _mentioning(marker: bytes) -> list[int]:
    """Return live processes, other than this one, whose command line names the agent's folder."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                if marker in (entry / "cmdline").read_bytes():
                    found.append(int(entry.name))
            except OSError:
                continue
    return found


def test_a_full_spool_drops_the_least_important_and_counts_them(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "spool.sqlite3", "life", limit_bytes=100_000)
    spool.add("rank_exit", {"rank": 0}, at=1.0, job=JOB, epoch=1)
    for step in range(400):
        spool.add("snapshot_copy", {"tier": "memory", "step": step, "pad": "x" * 100}, at=1.0, job=JOB, epoch=1)
        spool.add("snapshot_copy", {"tier": "storage", "step": step}, at=1.0, job=JOB, epoch=1)
    waiting = spool.next(2000)
    kinds = [(report.kind, report.body.get("tier")) for report in waiting]
    assert kinds[0] == ("rank_exit", None)
    assert kinds.count(("snapshot_copy", "storage")) > kinds.count(("snapshot_copy", "memory"))
    dropped = spool.dropped()
    assert sum(dropped.values()) + len(waiting) == 801
    assert spool.dropped() == dropped, "they count as told only when that was kept"
    for kind, count in dropped.items():
        spool.forget_dropped(kind, count)
    assert spool.dropped() == {}
    spool.close()
