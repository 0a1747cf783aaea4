"""The REST interface as a report program sees it."""

import csv
import io
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.contrib.auth.models import Group, Permission, User
from django.core.cache import cache
from django.test import Client
from rest_framework.authtoken.models import Token

from reliability.domain.failover import State
from reliability.models import (
    Failover,
    FailoverEvent,
    Finding,
    Hold,
    Incident,
    Job,
    Node,
    Rank,
    Slot,
    Snapshot,
    SnapshotCopy,
)
from reliability.services import snapshot_tally

pytestmark = pytest.mark.django_db
T0 = datetime(2026, 3, 1, 12, tzinfo=UTC)
RESOURCES = ("nodes", "jobs", "snapshots", "incidents", "failovers")


@pytest.fixture(autouse=True)
def fresh_limits() -> Iterator[None]:
    cache.clear()
    yield
    cache.clear()


@pytest.fixture
def viewer() -> User:
    user = User.objects.create_user("vera")
    group, _ = Group.objects.get_or_create(name="viewer")
    group.permissions.add(
        *Permission.objects.filter(content_type__app_label="reliability", codename__startswith="view_")
    )
    user.groups.add(group)
    return user


@pytest.fixture
def api(viewer: User) -> Client:
    return Client(headers={"Authorization": f"Token {Token.objects.create(user=viewer).key}"})


@pytest.fixture
def history() -> Failover:
    """Two jobs; one had a node die and was moved to a standby."""
    a, b, s = (
        Node.objects.create(
            name=name,
            address=f"10.0.0.{number}",
            runtime="process",
            role=role,
            registered_at=T0,
            last_seen_at=T0,
            token_hash="secret-hash",
            key_generation="secret-generation",
            host_facts={"cpus": 8},
        )
        for number, (name, role) in enumerate((("a", "training"), ("b", "training"), ("s", "standby")), start=1)
    )
    Hold.objects.create(node=b, owner="automation", reason="fatal fault", created_at=T0)
    Hold.objects.create(node=a, owner="vera", reason="old", created_at=T0, released_at=T0)
    lm = job("lm", nodes=2, env={"PASSWORD": "secret-env"})
    job("other", nodes=1, state=Job.State.STOPPED)
    for index, node in enumerate((a, s)):
        slot = Slot.objects.create(job=lm, index=index, node=node)
        Rank.objects.create(job=lm, slot=slot, rank=index, step=100 + index, state=Rank.State.RUNNING)
    for step, ranks in ((80, (0, 1)), (100, (0,))):
        snapshot = Snapshot.objects.create(job=lm, epoch=1, step=step, created_at=T0 + timedelta(seconds=step))
        for rank in ranks:
            for tier, where in (("memory", a), ("storage", None)):
                SnapshotCopy.objects.create(
                    snapshot=snapshot,
                    rank=rank,
                    tier=tier,
                    node=where,
                    path="p",
                    size_bytes=10,
                    digest="blake2b:00",
                    committed_at=T0,
                )
    snapshot_tally.recount_all()
    incident = Incident.objects.create(
        job=lm,
        node=b,
        epoch=1,
        code="xid-79",
        fault_class="hardware",
        action="failover",
        summary='=HYPERLINK("evil")',
        reasons=["the bus lost it"],
        opened_at=T0,
    )
    Finding.objects.create(
        node=b,
        job=lm,
        incident=incident,
        code="xid-79",
        fault_class="hardware",
        action="failover",
        severity="fatal",
        evidence="NVRM: Xid 79",
        found_at=T0,
    )
    return recovery(lm, incident, failed=b, standby=s)


def job(name: str, *, nodes: int, **more: Any) -> Job:
    defaults = {
        "state": Job.State.RUNNING,
        "runtime": "process",
        "program": ["train.py"],
        "storage_dir": "/srv",
        "created_at": T0,
    }
    return Job.objects.create(name=name, nodes=nodes, **(defaults | more))


def recovery(lm: Job, incident: Incident, *, failed: Node, standby: Node) -> Failover:
    path = (
        "awaiting_approval",
        "fencing",
        "validating",
        "restoring",
        "validating",
        "restoring",
        "starting",
        "verifying",
        "completed",
    )
    failover = Failover.objects.create(
        incident=incident,
        job=lm,
        kind="failover",
        state=State.COMPLETED,
        state_since=T0,
        failed_node=failed,
        standby=standby,
        from_epoch=1,
        to_epoch=2,
        restore_epoch=1,
        restore_step=80,
        fault_step=95,
        fault_at=T0,
        created_at=T0 + timedelta(seconds=1),
        ended_at=T0 + timedelta(seconds=10),
    )
    for number, (source, target) in enumerate(zip(("", *path), path, strict=False), start=1):
        FailoverEvent.objects.create(
            failover=failover, at=T0 + timedelta(seconds=number), source=source, event="e", target=target, sentence="s"
        )
    return failover


def table(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


def rows(api: Client, path: str) -> list[dict[str, Any]]:
    answer = api.get(f"/api/{path}")
    assert answer.status_code == 200, answer.content
    return list(answer.json()["results"])


def download(api: Client, path: str) -> list[dict[str, str]]:
    answer = api.get(f"/api/{path}")
    assert answer.status_code == 200
    assert answer.headers["Content-Type"] == "text/csv; charset=utf-8"
    return table(answer.getvalue().decode())


@pytest.mark.parametrize("resource", RESOURCES)
def test_nothing_is_shown_without_a_sign_in(resource: str) -> None:
    assert Client().get(f"/api/{resource}/").status_code == 401


@pytest.mark.parametrize("resource", RESOURCES)
def test_a_user_without_a_role_is_refused(resource: str) -> None:
    nobody = User.objects.create_user("nobody")
    client = Client(headers={"Authorization": f"Token {Token.objects.create(user=nobody).key}"})
    assert client.get(f"/api/{resource}/").status_code == 403


def test_a_signed_in_browser_may_read(viewer: User, history: Failover) -> None:
    client = Client()
    client.force_login(viewer)
    assert client.get("/api/nodes/").json()["count"] == 3


@pytest.mark.parametrize("resource", RESOURCES)
@pytest.mark.parametrize("method", ["post", "put", "patch", "delete"])
def test_nothing_can_be_changed_even_by_an_administrator(resource: str, method: str) -> None:
    root = User.objects.create_superuser("root")
    client = Client(headers={"Authorization": f"Token {Token.objects.create(user=root).key}"})
    assert getattr(client, method)(f"/api/{resource}/").status_code == 405


def test_nodes_show_jobs_and_the_holds_in_force(api: Client, history: Failover) -> None:
    by_name = {row["name"]: row for row in rows(api, "nodes/")}
    assert by_name["a"]["jobs"] == ["lm"]
    assert by_name["a"]["holds"] == []
    assert by_name["b"]["holds"][0]["reason"] == "fatal fault"


def test_a_job_shows_the_step_of_its_slowest_rank(api: Client, history: Failover) -> None:
    job = api.get("/api/jobs/lm/").json()
    assert (job["step"], job["world_size"]) == (100, 2)
    assert [slot["node"] for slot in job["slots"]] == ["a", "s"]
    assert api.get("/api/jobs/other/").json()["step"] is None


def test_a_snapshot_is_complete_on_a_tier_only_with_every_rank(api: Client, history: Failover) -> None:
    by_step = {row["step"]: row["tiers"] for row in rows(api, "snapshots/")}
    assert by_step[80]["memory"].items() >= {"shards": 2, "complete": True, "size_bytes": 20}.items()
    assert by_step[100]["storage"].items() >= {"shards": 1, "complete": False, "size_bytes": 10}.items()
    assert by_step[80]["ssd"].items() >= {"shards": 0, "complete": False, "size_bytes": 0}.items()


def test_an_incident_shows_its_findings(api: Client, history: Failover) -> None:
    (incident,) = rows(api, "incidents/")
    assert incident["state"] == "open"
    assert incident["findings"][0]["evidence"] == "NVRM: Xid 79"


def test_a_failover_shows_where_its_time_went(api: Client, history: Failover) -> None:
    (failover,) = rows(api, "failovers/")
    assert (failover["judged_s"], failover["recovery_s"], failover["lost_steps"]) == (1.0, 10.0, 15)
    assert [stage["stage"] for stage in failover["stages"]][:4] == [
        "awaiting_approval",
        "fencing",
        "validating",
        "restoring",
    ]
    assert failover["stage_seconds"]["validating"] == 2.0
    assert sum(failover["stage_seconds"].values()) == 8.0
    assert len(failover["events"]) == 9


@pytest.mark.parametrize("resource", RESOURCES)
def test_secrets_are_never_among_the_answer(api: Client, history: Failover, resource: str) -> None:
    assert "secret-" not in api.get(f"/api/{resource}/").content.decode()
    assert "secret-" not in api.get(f"/api/{resource}/?format=csv").getvalue().decode()


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ("nodes/?role=standby", ["s"]),
        ("nodes/?job=lm", ["a", "s"]),
        ("nodes/?ordering=-name", ["s", "b", "a"]),
        ("nodes/?state=healthy", []),
        ("jobs/?state=running&state=stopped", ["lm", "other"]),
        ("jobs/?node=s", ["lm"]),
        ("jobs/?since=2026-03-01T12:00:00Z", ["lm", "other"]),
        ("jobs/?until=2026-03-01T12:00:00Z", []),
    ],
)
def test_filters_choose_rows(api: Client, history: Failover, query: str, names: list[str]) -> None:
    assert [row["name"] for row in rows(api, query)] == names


@pytest.mark.parametrize(
    ("query", "count"),
    [
        ("snapshots/?job=lm&since=2026-03-01T12:01:30Z", 1),
        ("snapshots/?epoch=2", 0),
        ("snapshots/?distrusted=true", 0),
        ("snapshots/?node=a", 2),
        ("incidents/?state=open&fault_class=hardware", 1),
        ("incidents/?state=closed", 0),
        ("failovers/?state=completed&job=lm&node=b&standby=s&kind=failover", 1),
        ("failovers/?fault_class=software", 0),
    ],
)
def test_filters_count_rows(api: Client, history: Failover, query: str, count: int) -> None:
    assert len(rows(api, query)) == count


def test_a_filter_by_node_does_not_change_what_is_counted_in_a_snapshot(api: Client, history: Failover) -> None:
    by_step = {row["step"]: row["tiers"] for row in rows(api, "snapshots/?node=a")}
    assert by_step[80]["storage"].items() >= {"shards": 2, "complete": True, "size_bytes": 20}.items()


def test_pages_follow_each_other(api: Client, history: Failover) -> None:
    first = api.get("/api/nodes/?page_size=2").json()
    assert (first["count"], len(first["results"])) == (3, 2)
    assert [row["name"] for row in api.get(first["next"]).json()["results"]] == ["s"]
    assert api.get("/api/nodes/?page=3").status_code == 404


@pytest.mark.parametrize(
    ("query", "parameter"),
    [
        ("nodes/?role=master", "role"),
        ("nodes/?tier=first", "tier"),
        ("nodes/?tier=99999999999999999999999", "tier"),
        ("nodes/?tier=NaN", "tier"),
        ("nodes/?sate=healthy", "sate"),
        ("nodes/?ordering=token_hash", "ordering"),
        ("nodes/?page=0", "page"),
        ("nodes/?page=x", "page"),
        ("nodes/?page=" + "9" * 5000, "page"),
        ("nodes/?page_size=-1", "page_size"),
        ("nodes/?format=xml", "format"),
        ("nodes/?job=%00", "job"),
        ("jobs/?since=yesterday", "since"),
        ("jobs/?since=0001-01-01T00:00:00%2B14:00", "since"),
        ("jobs/?until=9999-12-31T23:59:59-14:00", "until"),
        ("snapshots/?epoch=-1", "epoch"),
        ("snapshots/?epoch=1e400", "epoch"),
        ("snapshots/?distrusted=perhaps", "distrusted"),
        ("incidents/?state=ajar", "state"),
        ("failovers/?state=completed&state=", "state"),
        ("failovers/?state=done&format=csv", "state"),
    ],
)
def test_a_bad_value_is_refused_by_the_name_of_its_parameter(api: Client, query: str, parameter: str) -> None:
    answer = api.get(f"/api/{query}")
    assert answer.status_code == 400
    assert parameter in answer.content.decode()


@pytest.mark.parametrize("path", ["jobs/none/", "nodes/none/", "snapshots/999999999999999999/", "failovers/0/"])
def test_what_is_not_there_is_not_found(api: Client, path: str) -> None:
    assert api.get(f"/api/{path}").status_code == 404


def test_csv_holds_all_rows_whatever_the_page_size(api: Client, history: Failover) -> None:
    assert [row["name"] for row in download(api, "nodes/?format=csv&page_size=1")] == ["a", "b", "s"]


def test_csv_of_failovers_has_a_column_for_each_stage(api: Client, history: Failover) -> None:
    (row,) = download(api, "failovers/?format=csv")
    assert (row["validating_s"], row["recovery_s"], row["failed_node"], row["restore_step"]) == (
        "2.0",
        "10.0",
        "b",
        "80",
    )


def test_csv_of_snapshots_has_columns_for_each_tier(api: Client, history: Failover) -> None:
    by_step = {row["step"]: row for row in download(api, "snapshots/?format=csv")}
    assert (by_step["100"]["storage_complete"], by_step["80"]["memory_size_bytes"]) == ("no", "20")


def test_csv_disarms_what_a_spreadsheet_would_run(api: Client, history: Failover) -> None:
    (row,) = download(api, "incidents/?format=csv")
    assert row["summary"] == '\'=HYPERLINK("evil")'


def test_the_accept_header_chooses_csv_too(api: Client, history: Failover) -> None:
    answer = api.get("/api/nodes/", headers={"Accept": "text/csv"})
    assert len(table(answer.getvalue().decode())) == 3


@pytest.mark.django_db(transaction=True)
async def test_csv_is_streamed_by_the_asgi_server_too(async_client: Any) -> None:
    from asgiref.sync import sync_to_async

    root = await sync_to_async(User.objects.create_superuser)("root")
    await sync_to_async(job)("lm", nodes=1)
    await async_client.aforce_login(root)
    answer = await async_client.get("/api/jobs/?format=csv")
    assert answer.is_async
    text = b"".join([part async for part in answer]).decode()
    assert [row["name"] for row in table(text)] == ["lm"]


def test_lists_take_the_same_number_of_queries_however_many_rows(
    api: Client, history: Failover, django_assert_num_queries: Any
) -> None:
    from django.db import connection
    from django.test.utils import CaptureQueriesContext

    with CaptureQueriesContext(connection) as few:
        rows(api, "snapshots/")
    for step in range(200, 240):
        Snapshot.objects.create(job=history.job, epoch=1, step=step, created_at=T0)
    with django_assert_num_queries(len(few)):
        assert len(rows(api, "snapshots/")) == 42


@pytest.mark.parametrize("path", ["/api/nodez/", "/api/v1/nodes/n1/nothing/", "/api/v2/", "/api/%00/"])
def test_a_route_that_there_is_not_is_told_to_programs_as_json(api: Client, path: str) -> None:
    for client in (api, Client()):
        answer = client.get(path)
        assert (answer.status_code, answer["Content-Type"]) == (404, "application/json")
        assert "There is no /api/" in answer.json()["detail"]
    assert "text/html" in Client().get("/nowhere/")["Content-Type"]
