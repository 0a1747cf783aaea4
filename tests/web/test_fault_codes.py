"""The fault-code table as people and programs see and change it."""

from typing import Any

import pytest
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from reliability.domain.faults import Action
from reliability.errors import InvalidInput, StaleProposal
from reliability.models import FaultCodeChange
from reliability.selectors import fault_codes
from reliability.services import fault_codes as changes

pytestmark = pytest.mark.django_db
XID = "[ 12.5] NVRM: Xid (PCI:0000:05:00): 79, pid=7, name=python3, GPU has fallen off the bus."
FAN = {
    "fault_class": "thermal",
    "action": "observe",
    "severity": "warning",
    "meaning": "A fan stopped.",
    "advice": "Replace it.",
    "origin": "kernel",
    "phrase": "fan {fan} stopped",
}


def entered(code: str = "xid-79", **other: Any) -> dict[str, Any]:
    row = fault_codes.table().lookup(code)
    known = {name: getattr(row, name) for name in ("fault_class", "action", "severity", "meaning", "advice", "origin")}
    return {**known, "debounce_s": row.debounce_s, "phrase": "", "version": 0, "reason": "we know better", **other}


def page(client: Client, name: str, **values: Any) -> str:
    answer = client.get(reverse(name, kwargs=values))
    assert answer.status_code == 200
    return str(answer.content.decode())


def test_a_line_is_tried_and_shows_what_would_be_found_and_done(client_of: Any) -> None:
    answer = client_of("viewer").get(reverse("fault-codes"), {"line": XID, "origin": ""}).content.decode()
    for told in ("xid-79", "hardware", "failover", "0000:05:00", "The GPU fell off the bus"):
        assert told in answer
    forged = client_of("viewer").get(reverse("fault-codes"), {"line": XID, "origin": "output"}).content.decode()
    assert "No fault" in forged


def test_codes_are_found_by_words_and_families(client_of: Any) -> None:
    viewer = client_of("viewer")
    assert "nvidia-sxid" in page(viewer, "fault-codes")
    found = viewer.get(reverse("fault-codes"), {"words": "fell off bus"}).content.decode()
    assert "code-xid-79" in found
    assert "code-xid-13" not in found
    assert "code-link-down" in viewer.get(reverse("fault-codes"), {"family": "mlx5"}).content.decode()
    assert viewer.get(reverse("fault-codes"), {"family": "no such"}).status_code == 200


def test_a_change_holds_at_once_and_is_kept_with_who_when_and_why(client_of: Any) -> None:
    client = client_of("approver")
    answer = client.post(reverse("fault-code-change", args=["xid-109"]), entered("xid-109", action="failover"))
    assert answer.status_code == 302
    kept = FaultCodeChange.objects.get()
    assert (kept.changed_by, kept.reason, kept.version) == ("approver", "we know better", 1)
    assert fault_codes.table()["xid-109"].action is Action.FAILOVER
    told = page(client, "fault-code", code="xid-109")
    assert "we know better" in told
    assert "version 1" in told


def test_an_operator_may_look_and_not_change(client_of: Any) -> None:
    assert "Change it" not in page(client_of("operator"), "fault-code", code="xid-79")
    answer = client_of("operator").post(reverse("fault-code-change", args=["xid-79"]), entered())
    assert answer.status_code == 403
    assert not FaultCodeChange.objects.exists()


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"reason": ""}, "required"),
        ({"meaning": "no full stop"}, "is no sentence"),
        ({"action": "explode"}, "explode"),
        ({"phrase": "* {a}"}, "fixed text"),
        ({"debounce_s": "-1"}, "greater than or equal"),
    ],
)
def test_a_wrong_value_is_told_at_its_field_and_nothing_is_kept(
    client_of: Any, wrong: dict[str, Any], told: str
) -> None:
    answer = client_of("approver").post(reverse("fault-code-change", args=["xid-79"]), entered(**wrong))
    assert answer.status_code == 400
    assert told in answer.content.decode()
    assert not FaultCodeChange.objects.exists()


def test_two_people_do_not_overwrite_each_other_unseen(client_of: Any) -> None:
    client = client_of("approver")
    assert client.post(reverse("fault-code-change", args=["xid-79"]), entered(severity="error")).status_code == 302
    late = client.post(reverse("fault-code-change", args=["xid-79"]), entered(severity="info"))
    assert late.status_code == 409
    assert FaultCodeChange.objects.count() == 1


def test_an_added_code_finds_its_lines_and_can_be_taken_back(client_of: Any) -> None:
    client = client_of("approver")
    given = {**FAN, "code": "fan-stopped", "debounce_s": 0, "version": 0, "reason": "seen twice"}
    assert client.post(reverse("fault-code-add"), given).status_code == 302
    told = fault_codes.matcher().find("[ 9.1] fan 4 stopped")
    assert told is not None
    assert (told.code, dict(told.fields)) == ("fan-stopped", {"fan": 4})
    assert client.post(reverse("fault-code-add"), given).status_code == 400
    short = {"version": 1, "reason": "was the sensor"}
    assert client.post(reverse("fault-code-reset", args=["fan-stopped"]), short).status_code == 302
    assert fault_codes.matcher().find("[ 9.1] fan 4 stopped") is None
    assert "taken back" in page(client, "fault-code", code="fan-stopped")


def test_a_code_that_is_switched_off_is_not_found_until_it_is_switched_on(client_of: Any) -> None:
    client = client_of("approver")
    where = reverse("fault-code-switch", args=["xid-79"])
    assert client.post(where, {"on": "no", "version": 0, "reason": "false alarms"}).status_code == 302
    assert fault_codes.matcher().find(XID) is None
    assert client.post(where, {"on": "yes", "version": 1, "reason": "solved"}).status_code == 302
    assert fault_codes.matcher().find(XID) is not None


@pytest.mark.parametrize("code", ["node-lost", "exit-1"])
def test_what_stepkeeper_itself_reports_cannot_be_switched_off(code: str) -> None:
    with pytest.raises(InvalidInput, match="stays known"):
        changes.switch(code, on=False, by="ada", reason="noise")


def test_a_consequence_cannot_be_given_an_action() -> None:
    with pytest.raises(InvalidInput, match="never decides alone"):
        changes.change("peer-closed", values={"action": "failover"}, by="ada", reason="hm")


def test_a_change_of_something_that_is_no_value_names_it() -> None:
    with pytest.raises(InvalidInput, match="colour"):
        changes.change("xid-79", values={"colour": "red"}, by="ada", reason="hm")
    with pytest.raises(InvalidInput, match="action"):
        changes.change("brand-new", values={"fault_class": "thermal"}, by="ada", reason="hm")
    with pytest.raises(InvalidInput, match="code"):
        changes.change("No Code", values=FAN, by="ada", reason="hm")
    with pytest.raises(StaleProposal):
        changes.change("xid-79", values={"severity": "info"}, by="ada", reason="hm", seen_version=3)


API = "/api/v1/fault-codes/"


def test_programs_read_the_table_and_try_lines(client_of: Any) -> None:
    client = client_of("viewer")
    rows = client.get(API, {"words": "fell off bus"}).json()
    assert [(row["code"], row["fault_class"], row["version"]) for row in rows] == [("xid-79", "hardware", 0)]
    one = client.get(f"{API}xid-79/").json()
    assert (one["action"], one["history"]) == ("failover", [])
    tried = client.post(f"{API}judge/", {"lines": [XID, "hello", ""]}, "application/json").json()["findings"]
    assert [found and found["code"] for found in tried] == ["xid-79", None, None]
    assert client.get(f"{API}no-such-code/").status_code == 404
    assert client.get(API, {"colour": "red"}).status_code == 400


def test_programs_change_switch_off_and_take_back_what_they_may(client_of: Any) -> None:
    client = client_of("approver")
    changed = client.patch(f"{API}xid-109/", {"action": "failover", "reason": "known"}, "application/json")
    assert (changed.status_code, changed.json()["action"], changed.json()["version"]) == (200, "failover", 1)
    off = client.patch(f"{API}xid-109/", {"enabled": False, "reason": "noise", "version": 1}, "application/json")
    assert (off.status_code, off.json()["enabled"]) == (200, False)
    late = client.patch(f"{API}xid-109/", {"enabled": True, "reason": "hm", "version": 1}, "application/json")
    assert late.status_code == 409
    assert client.delete(f"{API}xid-109/", {"reason": "over"}, "application/json").status_code == 204
    assert client.get(f"{API}xid-109/").json()["action"] == "restart_in_place"
    added = client.post(API, {**FAN, "code": "fan-stopped", "reason": "seen"}, "application/json")
    assert (added.status_code, added.json()["source"]) == (201, "own")
    assert FaultCodeChange.objects.count() == 4


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"action": "failover"}, "reason"),
        ({"action": "explode", "reason": "x"}, "action"),
        ({"colour": "red", "reason": "x"}, "colour"),
        ({"enabled": "no", "reason": "x"}, "enabled"),
        ({"severity": "info", "reason": "x", "version": "1"}, "version"),
        ({"severity": ["info"], "reason": "x"}, "severity"),
        ({"meaning": 7, "reason": "x"}, "meaning"),
        ({"debounce_s": "soon", "reason": "x"}, "debounce_s"),
        ({"reason": {"a": 1}}, "reason"),
        ({"phrase": "fan failed \ud800", "reason": "x"}, "phrase"),
        ([], "non_field_errors"),
    ],
)
def test_a_wrong_body_is_refused_by_the_name_of_its_field(client_of: Any, body: Any, field: str) -> None:
    answer = client_of("approver").patch(f"{API}xid-109/", body, "application/json")
    assert (answer.status_code, list(answer.json())) == (400, [field])
    assert not FaultCodeChange.objects.exists()


def test_a_change_that_this_version_cannot_take_is_left_out_and_can_be_taken_back(client_of: Any) -> None:
    bad = {"version": 1, "kind": "change", "values": {"action": "observe"}, "reason": "x", "changed_by": "ada"}
    FaultCodeChange.objects.create(code="code-of-an-older-version", changed_at=timezone.now(), **bad)
    client = client_of("approver")
    assert client.get(f"{API}xid-79/").json()["action"] == "failover"
    changed = client.patch(f"{API}xid-79/", {"action": "hold", "reason": "\ud800 odd"}, "application/json")
    assert (changed.status_code, changed.json()["action"]) == (200, "hold")
    assert client.delete(f"{API}code-of-an-older-version/", {"reason": "gone"}, "application/json").status_code < 500


def test_programs_without_the_permission_change_nothing(client_of: Any) -> None:
    for role in ("viewer", "operator"):
        client = client_of(role)
        body = {"action": "observe", "reason": "x"}
        assert client.patch(f"{API}xid-109/", body, "application/json").status_code == 403
        assert client.delete(f"{API}xid-109/", body, "application/json").status_code == 403
        assert client.post(API, body, "application/json").status_code == 403
    assert Client().get(API).status_code == 401
