"""Nodes are sent the fault-code table when theirs is another one, and the page names those that still have it."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from reliability.api import ingest
from reliability.domain.fault_tables import MOST_CHANGED, shipped, unseal_table
from reliability.errors import InvalidInput
from reliability.models import FaultCodeChange
from reliability.selectors import fault_codes as reads
from reliability.services import beats, clock, fault_codes, fault_tables
from tests.services.world import Agent, World

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _fresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(ingest.flusher, "ensure", lambda: None)
    monkeypatch.setattr(fault_tables, "FRESH_S", 0.0)
    fault_tables.current.forget()
    yield
    fault_tables.current.forget()


def _beat(agent: Agent, table: Any) -> dict[str, Any]:
    beat = {"jobs": [], "spooled": 0, "disks": {}, "fault_table": table}
    batch = {"node": agent.name, "incarnation": agent.incarnation, "sent_at": 1.0, "heartbeat": beat, "reports": []}
    status, answer = ingest.answer(ingest.ROUTES["/ingest/batch"], json.dumps(batch).encode(), agent.token)
    assert status == 200, answer
    beats.flush(clock.now())
    return answer


def _table(changes: int, refused: int = 0) -> dict[str, Any]:
    return {"shipped": shipped(), "changes": changes, "refused": refused}


def test_a_change_goes_to_each_node_once_with_its_next_heartbeat(world: World) -> None:
    agent = world.agents["s1"]
    assert "fault_table" not in _beat(agent, _table(0))
    fault_codes.switch("xid-79", on=False, by="ada", reason="a test")
    answer = _beat(agent, _table(0))
    sent = unseal_table(answer["fault_table"], node="s1", key=agent.key)
    assert sent.changes == {"xid-79": {"enabled": False}}
    assert "fault_table" not in _beat(agent, _table(sent.changes_to))
    assert "fault_table" not in _beat(agent, _table(0, refused=sent.changes_to))
    assert "fault_table" not in _beat(agent, None)
    fault_codes.reset("xid-79", by="ada", reason="a test")
    back = unseal_table(_beat(agent, _table(sent.changes_to))["fault_table"], node="s1", key=agent.key)
    assert back.changes == {}
    assert back.changes_to > sent.changes_to


def test_the_page_names_the_nodes_that_judge_by_another_table(world: World) -> None:
    fault_codes.switch("xid-79", on=False, by="ada", reason="a test")
    number = reads.last_change()
    _beat(world.agents["s1"], _table(0))
    _beat(world.agents["s2"], _table(number))
    _beat(world.agents["n1"], {**_table(number), "shipped": "0ther"})
    assert [node.name for node in reads.matching_otherwise()] == ["n1", "s1"]


@pytest.mark.parametrize("table", [5, "x", {"changes": -1}, {"changes": "x"}, {"shipped": "x" * 70}])
def test_a_heartbeat_that_tells_nonsense_of_its_table_names_the_field(world: World, table: Any) -> None:
    agent = world.agents["s1"]
    beat = {"jobs": [], "fault_table": table}
    batch = {"node": agent.name, "incarnation": agent.incarnation, "heartbeat": beat, "reports": []}
    status, answer = ingest.answer(ingest.ROUTES["/ingest/batch"], json.dumps(batch).encode(), agent.token)
    assert status == 400
    assert answer["error"]["field"].startswith("heartbeat.fault_table")


def test_no_more_codes_are_changed_than_are_sent(world: World) -> None:
    FaultCodeChange.objects.bulk_create(
        FaultCodeChange(code=f"own-{n}", version=1, kind="add", values={}, reason="x", changed_by="ada",
                        changed_at=clock.now())
        for n in range(MOST_CHANGED)
    )  # fmt: skip
    with pytest.raises(InvalidInput, match="no more can"):
        fault_codes.switch("xid-79", on=False, by="ada", reason="a test")


def test_one_piece_of_work_sees_one_table_and_the_next_one_the_change(world: World) -> None:
    with reads.held():
        assert reads.table().lookup("xid-79").enabled
        with reads.held():
            fault_codes.switch("xid-79", on=False, by="ada", reason="a test")
            assert reads.table().lookup("xid-79").enabled
        assert reads.table().lookup("xid-79").enabled
    assert not reads.table().lookup("xid-79").enabled
