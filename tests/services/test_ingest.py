"""The routes for agents: who is let in, what a bad message is told, and that nothing sent is lost."""

import asyncio
import copy
import json
import statistics
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from django.db import OperationalError, connections
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from reliability.api import ingest
from reliability.domain.report_bodies import BODIES
from reliability.models import Job, Node, Report
from reliability.services import access, beats, clock, reports
from tests.services.world import JOIN_TOKEN, World
from webapp.asgi import application

pytestmark = pytest.mark.django_db

REGISTRATION = {"name": "a1", "address": "10.0.0.1", "runtime": "process", "incarnation": "i1"}
BODY: dict[str, dict[str, Any]] = {
    "order_result": {"order": "x", "status": "done", "result": {"pids": {"0": 1}}, "error": None},
    "order_refused": {"reason": "forged", "message": "m", "order": ""},
    "finding": {"code": "xid-13", "rank": 0, "evidence": "e", "count": 1, "fields": {"device": "a", "pid": 3},
                "source": "dcgm"},
    "rank_exit": {"rank": 0, "exit_code": 137, "signal": 9, "tail": "t", "last_step": 3},
    "container": {"event": "die", "exit_code": 1, "oom_killed": False, "ordered": False, "name": "n"},
    "first_step": {"rank": 0, "step": 1, "restored_step": None, "plan_version": 0},
    "snapshot_copy": {
        "snapshot_epoch": 1, "step": 2, "rank": 0, "tier": "memory", "path": "/p", "size_bytes": 1, "digest": "d:0",
        "stall_s": 0.1, "drain_s": None,
    },
    "standstill": {"rank": 0, "step": 3, "phase": "eval", "still_s": 9.0, "limit_s": 5.0},
    "snapshot_removed": {"snapshot_epoch": 1, "step": 2, "rank": 0, "tier": "ssd"},
    "snapshot_problem": {"snapshot_epoch": 1, "step": 2, "rank": 0, "tier": "ssd", "code": "tier_full", "message": "m"},
}  # fmt: skip


@pytest.fixture(autouse=True)
def _no_flusher(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ingest.flusher, "ensure", lambda: None)


def _post(route: str, body: Any, token: str) -> tuple[int, dict[str, Any]]:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    return ingest.answer(ingest.ROUTES[f"/ingest/{route}"], raw, token)


def _batch(agent: Any, **more: Any) -> dict[str, Any]:
    return {"node": agent.name, "incarnation": agent.incarnation, "sent_at": 1.0, "heartbeat": None, **more}


def test_a_node_joins_once_and_comes_back_with_its_own_token(bare_world: World) -> None:
    status, answer = _post("register", REGISTRATION, JOIN_TOKEN)
    assert status == 200
    assert answer["queue"] == "node.a1"
    assert {"order_key", "broker_url", "heartbeat_s", "lease_s", "server_time", "token"} <= answer.keys()
    again, back = _post("register", {**REGISTRATION, "incarnation": "i2"}, answer["token"])
    assert again == 200
    assert "token" not in back
    assert back["order_key"] == answer["order_key"]
    assert Node.objects.get(name="a1").incarnation == "i2"
    assert answer["token"] not in Node.objects.get(name="a1").token_hash


def test_the_name_of_a_living_node_cannot_be_taken_and_that_of_a_silent_one_can(bare_world: World) -> None:
    _, first = _post("register", REGISTRATION, JOIN_TOKEN)
    status, answer = _post("register", REGISTRATION, JOIN_TOKEN)
    assert (status, answer["error"]["code"]) == (409, "name_taken")
    bare_world.pass_time(60)
    status, second = _post("register", REGISTRATION, JOIN_TOKEN)
    assert status == 200
    assert second["order_key"] != first["order_key"]
    assert _post("batch", {"node": "a1", "incarnation": "i1"}, first["token"])[0] == 401


@pytest.mark.parametrize(("token", "status"), [("", 401), ("nonsense", 401), ("other", 403)])
def test_only_the_nodes_own_token_reports_for_it(world: World, token: str, status: int) -> None:
    used = world.agents["n2"].token if token == "other" else token
    told, answer = _post("batch", _batch(world.agents["n1"]), used)
    assert told == status
    assert answer["error"]["hint"] or token == ""


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"node": 5}, "node"),
        ({"incarnation": ""}, "incarnation"),
        ({"reports": {}}, "reports"),
        ({"reports": [{"seq": -1, "kind": "finding", "body": {"code": "x"}}]}, "reports.0.seq"),
        ({"reports": [{"seq": 1, "kind": "gossip", "body": {}}]}, "reports.0.kind"),
        ({"reports": [{"seq": 1, "kind": "finding", "body": {}}]}, "reports.0.body.code"),
        ({"reports": [{"seq": 1, "kind": "finding", "job": "lm", "body": {"code": "x"}}]}, "reports.0.epoch"),
        ({"reports": [{"seq": 1, "kind": "first_step", "body": {"rank": 0, "step": 1}}]}, "reports.0.job"),
        ({"heartbeat": {"jobs": [{"job": "lm"}]}}, "heartbeat.jobs.0.epoch"),
        ({"heartbeat": {"disks": {"ssd": {"free_bytes": 10**30}}}}, "heartbeat.disks.ssd.free_bytes"),
    ],
)
def test_a_malformed_batch_names_the_field_and_nothing_of_it_is_taken(
    world: World, change: dict[str, Any], field: str
) -> None:
    status, answer = _post("batch", _batch(world.agents["n1"], **change), world.agents["n1"].token)
    assert status == 400
    assert answer["error"]["field"] == field
    assert answer["error"]["message"].startswith(field)
    assert not Report.objects.exists()


@pytest.mark.parametrize("raw", [b"", b"{", b"[]", b"\xff\xfe", b'{"node": NaN}', b"[" * 100_000, b"null"])
def test_what_is_no_json_object_is_malformed(world: World, raw: bytes) -> None:
    status, answer = _post("batch", raw, world.agents["n1"].token)
    assert status == 400
    assert answer["error"]["field"]


def test_a_batch_of_a_replaced_incarnation_is_stale_and_moves_nothing(world: World) -> None:
    agent = world.agents["n1"]
    old = _batch(agent, reports=[{"seq": 1, "kind": "finding", "body": {"code": "xid-79"}}])
    agent.join()
    seen = Node.objects.get(name="n1").last_seen_at
    world.pass_time(5)
    status, answer = _post("batch", old, agent.token)
    assert status == 409
    assert answer["results"][0]["code"] == "stale_epoch"
    beats.flush(clock.now())
    assert Node.objects.get(name="n1").last_seen_at == seen
    assert _post("batch", {**old, "reports": []}, agent.token)[0] == 409


def test_the_answer_tells_epochs_and_orders_that_were_not_answered(world: World) -> None:
    job = world.running_job()
    agent = world.agents["n1"]
    Job.objects.filter(pk=job.pk).update(epoch=4, storage_step=20)
    world.agents["n1"].replies["set_period"] = lambda order: None
    from reliability.services import launch

    launch.stop(agent.node, job=job, epoch=4, key="a-stop")
    world.pass_time(3)
    beat = {"jobs": [{"job": "lm", "epoch": 1, "slot": 0, "container": "running", "ranks": []}]}
    status, answer = _post("batch", _batch(agent, heartbeat=beat), agent.token)
    assert status == 200
    assert answer["epochs"] == {"lm": 4}
    assert answer["storage_floor"] == {"lm": 20}
    assert answer["ssd_floor"] == {}
    assert [json.loads(envelope["order"])["kind"] for envelope in answer["orders"]] == ["stop"]


def test_a_stale_report_makes_the_answer_409_and_the_others_are_taken(world: World) -> None:
    job = world.running_job()
    agent = world.agents["n1"]
    Job.objects.filter(pk=job.pk).update(epoch=2)
    finding = {"kind": "finding", "body": {"code": "xid-13"}}
    items = [{"seq": 901, "job": "lm", "epoch": 1, **finding}, {"seq": 902, "job": "lm", "epoch": 2, **finding}]
    status, answer = _post("batch", _batch(agent, reports=items), agent.token)
    assert status == 409
    assert [result["status"] for result in answer["results"]] == ["refused", "accepted"]


def test_with_the_database_away_the_agent_is_told_to_keep_its_reports(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*args: object, **kwargs: object) -> None:
        raise OperationalError("connection refused")

    monkeypatch.setattr(reports, "accept", away)
    status, answer = _post("batch", _batch(world.agents["n1"]), world.agents["n1"].token)
    assert (status, answer["error"]["code"]) == (503, "database_away")
    assert "sends them again" in answer["error"]["hint"]


def test_an_error_of_ours_is_503_so_that_nothing_is_lost(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*args: object, **kwargs: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(reports, "accept", broken)
    assert _post("batch", _batch(world.agents["n1"]), world.agents["n1"].token)[0] == 503
    assert "ZeroDivisionError" in caplog.text


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(-3, 5)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=20)
    | st.sampled_from(["lm", "memory", "done", "\x00", "\ud800", "x" * 300]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


def _paths(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if path:
        yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield from _paths(inner, (*path, key))


def _replace(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    changed = copy.deepcopy(value)
    place = changed
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = new
    return changed


@given(data=st.data())
@settings(max_examples=250, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@pytest.mark.slow
def test_whatever_comes_in_is_answered_and_what_is_taken_can_be_read(world: World, data: st.DataObject) -> None:
    agent = world.agents["n1"]
    if not Job.objects.exists():
        world.running_job()
    reports_ = [
        {"seq": number, "kind": kind, "at": 1.0, "job": "lm", "epoch": 1, "body": body}
        for number, (kind, body) in enumerate(BODY.items(), start=data.draw(st.integers(10**6, 10**9)))
    ]
    rank = {"rank": 0, "step": 3, "step_s": 0.1, "loss": 1.0, "phase": "x", "progress_age_s": 0.1, "plan_version": 0}
    beat = {
        "jobs": [{"job": "lm", "epoch": 1, "slot": 0, "container": "running", "ranks": [rank]}],
        "spooled": 1,
        "disks": {"ssd": {"free_bytes": 1, "total_bytes": 2}},
    }
    good = _batch(agent, heartbeat=beat, reports=reports_)
    changed = _replace(good, data.draw(st.sampled_from(list(_paths(good)))), data.draw(json_values))
    status, answer = _post("batch", changed, agent.token)
    assert status in {200, 400, 401, 403, 409}, answer
    if status == 400:
        assert answer["error"]["field"]
        assert answer["error"]["message"]
    beats.flush(clock.now())
    reports.process_new()
    assert not Report.objects.filter(state="new").exists()


def test_every_kind_of_report_is_in_the_fuzz() -> None:
    assert set(BODY) == set(BODIES)


@given(raw=st.binary(max_size=300))
@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_bytes_are_answered(world: World, raw: bytes) -> None:
    assert _post("batch", raw, world.agents["n1"].token)[0] == 400
    assert _post("register", raw, JOIN_TOKEN)[0] == 400


def _request(path: str, body: bytes, token: str, *, method: str = "POST") -> tuple[int, dict[str, Any]]:
    """Send one request through the whole ASGI application."""
    sent: list[Any] = []

    async def call() -> None:
        parts = [body[at : at + 1000] for at in range(0, len(body), 1000)] or [b""]
        messages = [{"type": "http.request", "body": part, "more_body": True} for part in parts[:-1]]
        messages.append({"type": "http.request", "body": parts[-1], "more_body": False})

        async def receive() -> Any:
            return messages.pop(0)

        async def send(message: Any) -> None:
            sent.append(message)

        headers = [(b"authorization", f"Bearer {token}".encode()), (b"content-type", b"application/json")]
        await application({"type": "http", "path": path, "method": method, "headers": headers}, receive, send)

    asyncio.run(call())
    return sent[0]["status"], json.loads(sent[1]["body"])


@pytest.fixture
def _closed_threads() -> Iterator[None]:
    """Let the ingest threads close their connections, or the test database could not be removed."""
    yield
    together = threading.Barrier(ingest.THREADS, timeout=10)  # so that each thread takes one of these, none two

    def close() -> None:
        together.wait()
        connections.close_all()

    for future in [ingest.threads.submit(close) for _ in range(ingest.THREADS)]:
        future.result(20)


@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("_closed_threads")
def test_the_route_stands_in_front_of_django_with_bounded_bodies(world: World, settings: Any) -> None:
    agent = world.agents["n1"]
    body = json.dumps(_batch(agent)).encode()
    assert _request("/ingest/batch", body, agent.token)[0] == 200
    assert _request("/ingest/batch", body, agent.token, method="GET")[0] == 405
    assert _request("/ingest/nothing", body, agent.token)[0] == 404
    settings.MAX_INGEST_BYTES = 5000
    status, answer = _request("/ingest/batch", b" " * 6000, agent.token)
    assert (status, answer["error"]["code"]) == (413, "too_large")


@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("_closed_threads")
@pytest.mark.slow
def test_a_report_is_answered_without_waiting_for_anything(world: World) -> None:
    world.running_job()
    agent = world.agents["n1"]
    times = []
    for number in range(60):
        item = {"seq": 5000 + number, "kind": "first_step", "job": "lm", "epoch": 1, "body": {"rank": 0, "step": 5}}
        raw = json.dumps(_batch(agent, reports=[item])).encode()
        began = time.perf_counter()
        status, _ = ingest.threads.submit(ingest._in_thread, ingest.ROUTES["/ingest/batch"], raw, agent.token).result(
            10
        )
        times.append(time.perf_counter() - began)
        assert status == 200
    assert statistics.median(times) < 0.5, f"median {statistics.median(times) * 1000:.1f} ms"


def test_a_token_that_was_revoked_is_refused_after_the_cache_time(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = world.agents["n1"]
    assert _post("batch", _batch(agent), agent.token)[0] == 200
    Node.objects.filter(name="n1").update(token_hash="0" * 64)
    monkeypatch.setattr(access, "CACHE_S", 0.0)
    access.cache.forget()
    assert _post("batch", _batch(agent), agent.token)[0] == 401
