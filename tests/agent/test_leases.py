"""Who ends the ranks when the agent cannot, and does a lease outlive the agent that had it?"""

import signal
import sqlite3
from pathlib import Path

from tests.agent.conftest import AgentProcess
from tests.agent.ingest import Ingest, until
from tests.agent.test_outages import JOB, runs, start


def test_a_frozen_agent_is_replaced_by_the_launcher_when_the_lease_runs_out(
    ingest: Ingest, agent: AgentProcess
) -> None:
    pid = start(ingest, agent, "stop")
    assert agent.process is not None
    agent.process.send_signal(signal.SIGSTOP)
    until(lambda: not runs(pid), 10)
    agent.process.send_signal(signal.SIGCONT)
    ended = until(lambda: ingest.of_kind("rank_exit"))[0]
    assert ended["exit_code"] == 137
    assert "lease" in ended["tail"]


def test_what_ended_with_an_earlier_life_is_found_although_the_server_is_away(
    ingest: Ingest, agent: AgentProcess
) -> None:
    start(ingest, agent, "keep")
    ingest.close()
    agent.kill()
    agent.start()

    def kinds() -> set[str]:
        with sqlite3.connect(agent.data / "spool.sqlite3") as spool:
            return {row[0] for row in spool.execute("SELECT kind FROM reports")}

    until(lambda: "container" in kinds(), 15)
    until(lambda: "server away" in agent.output())


def test_an_agent_that_gives_its_name_up_ends_its_ranks_first(ingest: Ingest, agent: AgentProcess) -> None:
    pid = start(ingest, agent, "keep")
    ingest.give_way = False
    ingest.replaced = ingest.registrations[0]["incarnation"]
    assert agent.process is not None
    assert agent.process.wait(timeout=25) == 1
    assert not runs(pid)
    assert "ranks stopped" in agent.output()


def test_a_server_that_cannot_take_a_node_back_at_once_does_not_end_its_agent(
    ingest: Ingest, agent: AgentProcess
) -> None:
    pid = start(ingest, agent, "keep")
    register, failures = ingest._register, [0]

    def away(body: dict, token: str) -> tuple[int, dict]:
        if failures[0] < 3:
            failures[0] += 1
            return 503, {"error": {"code": "database_away", "message": "The database is away."}}
        return register(body, token)

    ingest._register = away  # type: ignore[method-assign]
    ingest.replaced = ingest.registrations[0]["incarnation"]
    until(lambda: len(ingest.registrations) == 2)
    beats = len(ingest.beats)
    until(lambda: len(ingest.beats) > beats + 2)
    assert failures == [3]
    assert runs(pid)
    assert (Path(agent.memory(JOB)) / "ctl" / "lease.json").exists()
