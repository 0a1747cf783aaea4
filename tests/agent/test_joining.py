"""How a node joins, comes back, and says what is wrong when it may not."""

import os
import stat
from pathlib import Path

import pytest

from reliability.agent import config
from reliability.agent.collectors import host
from reliability.errors import InvalidInput
from tests.agent.conftest import AgentProcess
from tests.agent.ingest import NODE_TOKEN, Ingest, until


@pytest.fixture
def fresh(folder: Path, ingest: Ingest) -> AgentProcess:
    """An agent that was not started yet."""
    return AgentProcess(folder, ingest.url, ingest.node)


def test_a_registration_tells_what_machine_it_is(ingest: Ingest, agent: AgentProcess) -> None:
    told = ingest.registrations[0]
    assert told["name"] == "node-a"
    assert told["hardware_ids"]["cpu_model"] == host.cpu_model()
    assert told["host"]["cpus"] == os.cpu_count()
    assert told["host"]["memory_bytes"] > 2**20
    assert told["runtime"] == "process"


def test_identity_is_kept_for_the_agents_user_alone(ingest: Ingest, agent: AgentProcess) -> None:
    kept = agent.data / "identity.json"
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    assert NODE_TOKEN in kept.read_text()


def test_an_agent_comes_back_as_itself_without_the_join_token(ingest: Ingest, agent: AgentProcess) -> None:
    agent.end()
    agent.token_file.write_text("no longer valid")
    agent.start()
    until(lambda: len(ingest.registrations) == 2)
    assert ingest.registrations[1]["token_used"] == NODE_TOKEN
    assert ingest.registrations[1]["incarnation"] != ingest.registrations[0]["incarnation"]


def test_a_wrong_join_token_ends_the_agent_with_a_sentence(ingest: Ingest, fresh: AgentProcess) -> None:
    fresh.token_file.write_text("wrong")
    assert fresh.start().process is not None
    assert fresh.process is not None
    assert fresh.process.wait(timeout=20) == 1
    assert "refused the join token" in fresh.output()
    assert "Traceback" not in fresh.output()


def test_an_agent_waits_for_a_server_that_is_away(ingest: Ingest, fresh: AgentProcess) -> None:
    ingest.close()
    fresh.start()
    until(lambda: "server away" in fresh.output(), 20)
    ingest.open()
    until(lambda: ingest.beats, 10)
    assert fresh.end() == 0


def test_two_agents_never_share_a_data_folder(ingest: Ingest, agent: AgentProcess) -> None:
    first = agent.process
    agent.start()
    assert agent.process is not None
    assert agent.process.wait(timeout=20) == 2
    assert "in use by another agent" in agent.output()
    agent.process = first


def options(tmp_path: Path, **changed: str) -> list[str]:
    given = {
        "server": "http://10.0.0.5:8000",
        "name": "node-a",
        "address": "10.0.0.7",
        "runtime": "process",
        "data-dir": str(tmp_path / "data"),
        "memory-dir": str(tmp_path / "memory"),
        "ssd-dir": str(tmp_path / "ssd"),
        **changed,
    }
    return [f"--{name}={value}" for name, value in given.items()]


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("server", "10.0.0.5"),
        ("name", "no spaces please"),
        ("address", "10.0.0.7/24"),
        ("runtime", "podman"),
        ("tier", "0"),
        ("tier", "9" * 5000),
        ("tier", "\u0663"),
        ("role", "leader"),
        ("join-token-file", "/nowhere/token"),
        ("data-dir", "/proc/nowhere"),
        ("preemptible", "perhaps"),
        ("storage-bytes-per-s", "fast"),
        ("storage-bytes-per-s", "-1"),
    ],
)
def test_a_wrong_option_is_named(tmp_path: Path, option: str, value: str) -> None:
    with pytest.raises(InvalidInput, match=f"--{option}") as caught:
        config.parse(options(tmp_path, **{option: value}), {})
    assert caught.value.hint


def test_options_may_come_from_the_environment(tmp_path: Path) -> None:
    parsed = config.parse(options(tmp_path), {"STEPKEEPER_AGENT_TIER": "3", "STEPKEEPER_AGENT_PREEMPTIBLE": "yes"})
    assert (parsed.tier, parsed.preemptible, parsed.role) == (3, True, "standby")


def test_a_missing_option_names_its_variable_too(tmp_path: Path) -> None:
    argv = [option for option in options(tmp_path) if not option.startswith("--server")]
    with pytest.raises(InvalidInput, match="--server") as caught:
        config.parse(argv, {})
    assert "STEPKEEPER_AGENT_SERVER" in caught.value.hint
