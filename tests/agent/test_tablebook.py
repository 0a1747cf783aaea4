"""The agent judges lines by the table that the control plane holds."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from reliability.agent.tablebook import FILE, UNREAD, TableBook
from reliability.domain.fault_tables import SentTable, seal_table, shipped
from reliability.domain.orders import derive_key
from tests.agent.conftest import AgentProcess
from tests.agent.ingest import Ingest, until
from tests.domain.test_fault_tables import ADDED

KEY = derive_key("secret", "n1", "1")


class Hearing:
    """What a table book uses and reports."""

    def __init__(self, folder: Path) -> None:
        self.used: list[Mapping[str, Any]] = []
        self.told: list[Mapping[str, Any]] = []
        self.book = TableBook(folder, node="n1", key=lambda: KEY, use=self.used.append, report=self._report)

    def _report(self, kind: str, body: Mapping[str, Any]) -> None:
        assert (kind, body["code"]) == ("finding", UNREAD)
        self.told.append(body)


def _sealed(number: int, at: float, changes: Mapping[str, Any]) -> dict[str, str]:
    return seal_table(SentTable(changes_to=number, issued_at=at, changes=changes), node="n1", key=KEY)


def test_a_table_is_used_at_once_and_again_after_a_restart(tmp_path: Path) -> None:
    first = Hearing(tmp_path)
    first.book.load()
    assert first.book.told() == {"shipped": shipped(), "changes": 0, "refused": 0}
    first.book.take(_sealed(3, 100.0, {"xid-79": {"enabled": False}}))
    assert (first.used, first.book.told()["changes"]) == ([{"xid-79": {"enabled": False}}], 3)
    again = Hearing(tmp_path)
    again.book.load()
    assert (again.used, again.book.told()["changes"]) == ([{"xid-79": {"enabled": False}}], 3)
    assert (tmp_path / FILE).stat().st_mode & 0o077 == 0


def test_an_older_a_foreign_and_a_forged_table_change_nothing(tmp_path: Path) -> None:
    heard = Hearing(tmp_path)
    heard.book.take(_sealed(5, 200.0, {}))
    other = derive_key("secret", "n2", "1")
    sent = SentTable(changes_to=9, issued_at=300.0, changes={})
    for envelope in (
        _sealed(4, 100.0, {}),
        seal_table(sent, node="n1", key=other),
        seal_table(sent, node="n2", key=KEY),
    ):
        heard.book.take(envelope)
    for nothing in (None, 5, [], {}, {"table": 1, "sig": 2}, {"table": "x", "sig": "\ud800"}):
        heard.book.take(nothing)
    assert (heard.book.told()["changes"], heard.told) == (5, [])


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\xff", b'{"changes_to": 1}', b"x" * 5_000_000])
def test_a_kept_table_that_cannot_be_read_is_told_and_the_one_as_shipped_counts(tmp_path: Path, content: bytes) -> None:
    (tmp_path / FILE).write_bytes(content)
    heard = Hearing(tmp_path)
    heard.book.load()
    assert (heard.used, heard.book.told()["changes"], len(heard.told)) == ([], 0, 1)
    heard.book.take(_sealed(3, 100.0, {}))
    assert heard.book.told()["changes"] == 3


def test_what_cannot_be_used_is_told_once_and_not_asked_for_again(tmp_path: Path) -> None:
    import json

    from reliability.domain import fault_tables

    text = json.dumps({"node": "n1", "changes_to": 8, "issued_at": 100.0, "changes": []})
    heard = Hearing(tmp_path)
    for _ in range(3):
        heard.book.take({"table": text, "sig": fault_tables._signature(KEY, text)})
    assert (len(heard.told), heard.book.told()["refused"], heard.book.told()["changes"]) == (1, 8, 0)
    heard.book.take(_sealed(9, 200.0, {"no-such-code": {"action": "observe"}, "xid-31": {"action": "observe"}}))
    assert (heard.used[-1], heard.book.told()["refused"]) == ({"xid-31": {"action": "observe"}}, 0)
    assert "no-such-code" in heard.told[-1]["evidence"]


def test_an_agent_finds_the_line_of_a_code_that_was_added_and_passes_over_one_that_is_off(
    folder: Path, ingest: Ingest
) -> None:
    log = folder / "kern.log"
    log.write_text("")
    agent = AgentProcess(folder, ingest.url, ingest.node)
    agent.start("--kernel-log", f"file:{log}")
    try:
        until(lambda: any(beat.get("fault_table") for beat in ingest.beats), 30)
        assert ingest.beats[-1]["fault_table"]["changes"] == 0
        sent = SentTable(
            changes_to=4, issued_at=ingest.now(), changes={"fan-failed": ADDED, "xid-79": {"enabled": False}}
        )
        ingest.fault_table = seal_table(sent, node=ingest.node, key=ingest.key)
        until(lambda: ingest.beats[-1]["fault_table"]["changes"] == 4, 30)

        def found() -> bool:
            with log.open("a") as file:  # again and again: the child takes the table over a moment after the agent
                file.write("NVRM: Xid (PCI:0000:4d:00): 79, gone\nfan fan3 stopped\n")
            return any(each["code"] == "fan-failed" for each in ingest.of_kind("finding"))

        until(found, 30)
        seen = len(ingest.of_kind("finding"))
        with log.open("a") as file:
            file.write("NVRM: Xid (PCI:0000:4d:00): 79, gone\nNVRM: Xid (PCI:0000:4d:00): 31, pid=1, name=x\n")
        until(lambda: any(each["code"] == "xid-31" for each in ingest.of_kind("finding")), 30)
        assert "xid-79" not in {each["code"] for each in ingest.of_kind("finding")[seen:]}
    finally:
        agent.end()
