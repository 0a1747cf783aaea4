"""The address for foreign monitors: who is let in, what is said of what is wrong, what becomes of what is right."""

# ruff: noqa: F401, F811 (fixtures of the services come by import)

from typing import Any

import pytest
from django.core.management import call_command
from django.test import Client

from reliability.models import Finding, Incident, MonitorState, MonitorToken, Node, Report
from reliability.services import clock, incidents, monitors, quiet_incidents, reports
from tests.services.conftest import bare_world, mailbox, set_time, world
from tests.services.world import World

pytestmark = pytest.mark.django_db

ADDRESS = "/api/v1/monitors/findings/"
GPU = 'gpu="0",UUID="GPU-1",pci_bus_id="00000000:4D:00.0"'


def xid(value: int, host: str = "") -> str:
    named = f',Hostname="{host}"' if host else ""
    return f"DCGM_FI_DEV_XID_ERRORS{{{GPU}{named}}} {value}\n"


@pytest.fixture
def cluster_token(world: World) -> str:
    return monitors.give_token("dcgm of all", node=None, by="ada")[1]


def send(token: str, body: Any, *, kind: str = "", **query: str) -> Any:
    content = kind or ("text/plain" if isinstance(body, str | bytes) else "application/json")
    client = Client(headers={"Authorization": f"Bearer {token}"} if token else {})
    asked = "&".join(f"{name}={value}" for name, value in query.items())
    return client.post(f"{ADDRESS}?{asked}" if asked else ADDRESS, body, content_type=content)


def test_a_new_xid_in_dcgms_metrics_becomes_an_incident_of_that_node_seen_by_dcgm(
    world: World,
    cluster_token: str,
) -> None:
    assert send(cluster_token, xid(13, "s1.rack7.example.com")).json()["findings"] == 0
    world.pass_time(30)
    answer = send(cluster_token, xid(79, "s1.rack7.example.com") + "other_metric 3\n")
    assert answer.status_code == 200
    assert answer.json() == {
        "findings": 1,
        "nodes": {"s1": 1},
        "no_news": {},
        "ignored": {"metric not known": 1},
        "refused": [],
    }
    reports.process_new()
    incident = Incident.objects.get(code="xid-79")
    assert (incident.node and incident.node.name, incident.fault_class) == ("s1", "hardware")
    finding = Finding.objects.get(code="xid-79")
    assert (finding.source, finding.fields["device"]) == ("dcgm", "0000:4d:00")
    world.pass_time(30)
    assert send(cluster_token, xid(79, "s1")).json()["no_news"] == {"the same last error": 1}


def test_what_is_sent_twice_counts_once(world: World, cluster_token: str) -> None:
    event = {"time": clock.now().timestamp(), "name": "error_xid", "type": "Fatal", "extra_info": {"data": "79"}}
    body = [{"component": "accelerator-nvidia-error-xid", "events": [event]}]
    assert [send(cluster_token, body, node="s1").json()["findings"] for _ in range(3)] == [1, 0, 0]
    reports.process_new()
    assert Finding.objects.get().count == 1


def test_an_unknown_node_is_told_beside_what_is_taken_and_404_when_nothing_is(
    world: World,
    cluster_token: str,
) -> None:
    answer = send(
        cluster_token, xid(0, "s1") + xid(0, "stranger") + xid(0, "stranger").replace("XID_ERRORS", "RETIRED_DBE")
    )
    assert answer.status_code == 200
    told = answer.json()["refused"]
    assert [(each["node"], each["status"], each["first"], each["items"]) for each in told] == [
        ("stranger", 404, "line 2", 2)
    ]
    alone = send(cluster_token, xid(0, "stranger"))
    assert alone.status_code == 404
    assert "stranger" in alone.json()["detail"]
    assert send(cluster_token, xid(0), node="nobody").status_code == 404
    assert send(cluster_token, xid(0)).status_code == 404


def test_a_token_of_one_node_speaks_of_no_other(world: World) -> None:
    token = monitors.give_token("dcgm of s1", node=Node.objects.get(name="s1"), by="ada")[1]
    assert send(token, xid(0)).json()["nodes"] == {"s1": 0}
    assert send(token, xid(0, "its-own-name-for-itself")).json()["nodes"] == {"s1": 0}
    assert send(token, xid(0, "s2")).status_code == 404
    mixed = send(token, xid(0) + xid(0, "s2").replace("XID_ERRORS", "RETIRED_DBE"))
    assert [(each["node"], each["status"]) for each in mixed.json()["refused"]] == [("s2", 403)]
    assert send(token, xid(0), node="s2").status_code == 404
    assert not MonitorState.objects.filter(node__name="s2").exists()


def test_nobody_else_is_let_in_and_the_token_opens_nothing_else(world: World, cluster_token: str) -> None:
    agents = world.agents["s1"].token
    for other in ("", "nonsense", "skm_nonsense", agents):
        answer = send(other, xid(0, "s1"))
        assert answer.status_code == 401, other
        assert answer.headers["WWW-Authenticate"] == "Bearer"
    for scheme in ("Bearer", "Token"):
        client = Client(headers={"Authorization": f"{scheme} {cluster_token}"})
        assert client.get("/api/v1/nodes/").status_code == 401
        assert client.get(ADDRESS).status_code in (401, 405)
    assert cluster_token not in str(MonitorToken.objects.values())
    monitors.revoke(MonitorToken.objects.get(name="dcgm of all"), by="ada")
    assert send(cluster_token, xid(0, "s1")).status_code == 401


@pytest.mark.parametrize(
    ("body", "kind", "field"),
    [
        ("good 1\nbad{ 1\n", "text/plain", "line 2"),
        ("good 1\n", "application/openmetrics-text; version=1.0.0", ""),
        (b"a 1\n\xff 2\n", "text/plain", "detail"),
        ("{", "application/json", "detail"),
        ('{"x": 1}', "application/json", "body"),
        ("[" * 5000, "application/json", "detail"),
        ('[{"component": "x", "events": [{"name": "y"}]}]', "application/json", "body.0.events.0.time"),
    ],
)
def test_what_is_wrong_names_its_place_and_nothing_of_it_is_taken(
    world: World,
    cluster_token: str,
    body: Any,
    kind: str,
    field: str,
) -> None:
    answer = send(cluster_token, body, kind=kind)
    assert answer.status_code == (400 if field else 200), answer.content
    assert not field or list(answer.json()) == [field]
    assert not MonitorState.objects.exists()


def test_a_body_that_is_too_large_or_of_another_kind_is_refused(
    world: World,
    cluster_token: str,
    settings: Any,
) -> None:
    settings.MAX_INGEST_BYTES = 5000
    assert send(cluster_token, "a 1\n" * 2000).status_code == 413
    assert send(cluster_token, [{"component": "x" * 6000}]).status_code == 413
    assert send(cluster_token, "a 1\n", kind="image/png").status_code == 415
    assert send(cluster_token, "a 1\n", who="me").status_code == 400


def test_a_condition_keeps_its_incident_open_until_the_monitor_says_that_it_is_over(
    world: World,
    cluster_token: str,
) -> None:
    def status(stands: str) -> dict[str, Any]:
        return {"source": "odd", "conditions": [{"type": "OddThing", "status": stands, "reason": "OddThingIsSo"}]}

    assert send(cluster_token, status("True"), node="s1").json()["findings"] == 1
    reports.process_new()
    incident = Incident.objects.get(code="npd-odd-thing-is-so")
    assert incident.action == "observe"
    for _ in range(3):
        world.pass_time(quiet_incidents.QUIET_S - 100)
        send(cluster_token, status("True"), node="s1")
        quiet_incidents.close_quiet(clock.now())
    incident.refresh_from_db()
    assert incident.closed_at is None
    send(cluster_token, status("False"), node="s1")
    incident.refresh_from_db()
    assert incident.closed_at is not None
    assert incident.close_reason == "node-problem-detector says that it is over."
    assert Report.objects.filter(kind="finding").count() == 1


def test_a_monitor_that_fell_silent_vouches_for_nothing_any_more(world: World, cluster_token: str) -> None:
    send(cluster_token, {"source": "x", "conditions": [{"type": "Odd", "status": "True"}]}, node="s1")
    reports.process_new()
    world.pass_time(3600)
    quiet_incidents.close_quiet(clock.now())
    assert Incident.objects.get(code="npd-odd").close_reason == "Nothing new was found."


def test_tokens_are_made_shown_once_and_revoked_on_the_page(client_of: Any, db: None) -> None:
    approver, viewer = client_of("approver"), client_of("viewer")
    assert viewer.post("/monitors/give/", {"name": "dcgm"}).status_code == 403
    page = approver.post("/monitors/give/", {"name": "dcgm", "node": ""}, follow=True)
    token = MonitorToken.objects.get(name="dcgm")
    shown = page.content.decode()
    assert "skm_" in shown
    assert "skm_" not in approver.get("/monitors/").content.decode()
    again = approver.post("/monitors/give/", {"name": "dcgm", "node": ""})
    assert again.status_code == 400
    assert "has a token already" in again.content.decode()
    assert viewer.post(f"/monitors/{token.pk}/revoke/").status_code == 403
    assert "is revoked" in approver.post(f"/monitors/{token.pk}/revoke/", follow=True).content.decode()
    assert "revoked already" in approver.post(f"/monitors/{token.pk}/revoke/", follow=True).content.decode()


def test_tokens_are_made_listed_and_revoked_by_command(world: World, capsys: Any) -> None:
    call_command("monitor", "token", "dcgm", "--node", "s1")
    assert send(capsys.readouterr().out.strip(), xid(0)).status_code == 200
    call_command("monitor", "list")
    listed = capsys.readouterr().out
    assert "dcgm" in listed
    assert "skm_" not in listed
    call_command("monitor", "revoke", "dcgm")
    assert "Nothing is taken" in capsys.readouterr().out


def test_rest_gives_lists_and_revokes_tokens_to_those_who_may(client_of: Any, world: World) -> None:
    approver, viewer = client_of("approver"), client_of("viewer")
    address = "/api/v1/monitors/"
    assert viewer.post(address, {"name": "gpud"}, content_type="application/json").status_code == 403
    made = approver.post(address, {"name": "gpud", "node": "s1"}, content_type="application/json")
    assert (made.status_code, made.json()["node"]) == (201, "s1")
    assert send(made.json()["token"], xid(0)).status_code == 200
    wrong = approver.post(address, {"name": "gpud", "node": "nobody"}, content_type="application/json")
    assert (wrong.status_code, list(wrong.json())) == (400, ["node"])
    again = approver.post(address, {"name": "gpud"}, content_type="application/json")
    assert (again.status_code, list(again.json())) == (400, ["name"])
    listed = viewer.get(address).json()
    assert [(each["name"], each["node"]) for each in listed["tokens"]] == [("gpud", "s1")]
    assert [(each["node"], each["source"]) for each in listed["heard"]] == [("s1", "dcgm")]
    assert "skm_" not in str(listed)
    one = f"{address}{made.json()['id']}/"
    assert viewer.delete(one).status_code == 403
    assert [approver.delete(one).status_code for _ in range(2)] == [204, 400]
    assert client_of("").get(address).status_code in (401, 403)
