"""Plans over REST: asking what a period would give, and reading what was applied."""

import csv
import io
import json
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone
from rest_framework.authtoken.models import Token

from reliability.domain.planner.answer import Answer, Request, answer, as_json
from reliability.models import Epoch, Job, Plan, Rank
from tests.web import rows

pytestmark = pytest.mark.django_db
PREVIEW = "/api/v1/plans/preview/"
SOUND: dict[str, Any] = {"save_stall": "30s", "mtbf": "10h", "recovery": "10m", "target": 0.93}


@pytest.fixture
def api(people: dict[str, User]) -> Client:
    return Client(headers={"Authorization": f"Token {Token.objects.create(user=people['viewer']).key}"})


@pytest.fixture
def job(people: dict[str, User]) -> Job:
    """A job of two ranks that has trained for a day, a step in 14.2 s, saving every 20 steps."""
    made = rows.job("lm", [rows.node("a"), rows.node("b")])
    Epoch.objects.filter(job=made).update(running_at=timezone.now() - timedelta(days=1))
    Rank.objects.filter(job=made).update(step_s=14.2, epoch=made.epoch)
    return made


def asked(api: Client, body: Any = None, **values: Any) -> tuple[int, dict[str, Any]]:
    sent = body if body is not None else SOUND | values
    reply = api.post(PREVIEW, sent if isinstance(sent, str | bytes) else json.dumps(sent), "application/json")
    return reply.status_code, reply.json()


def found() -> Answer:
    return answer(Request(save_stall_s=30.0, mtbf_s=36_000.0, recovery_s=600.0, target=0.93, step_s=14.2))


def applied(job: Job, version: int, *, at: datetime | None = None, **values: Any) -> Plan:
    told = found()
    now = at or timezone.now()
    defaults: dict[str, Any] = {
        "inputs": {"save_stall": {"value": 30.0, "source": "entered", "told": "entered by ops", "by": "ops"}},
        "outputs": as_json(told),
        "every_steps": 102,
        "period_s": 1478.4,
        "step_s": 14.2,
        "target": 0.93,
        "planned_ettr": told.recommended_ettr,
        "from_step": 1300,
        "applied_by": "=ops",
        "applied_at": now,
    }
    return Plan.objects.create(job=job, version=version, **(defaults | values))


def test_a_preview_is_the_one_answer(api: Client) -> None:
    status, tree = asked(api, step_time=14.2)
    assert status == 200
    expected = as_json(found())
    assert tree | {"inputs": None} == expected | {"inputs": None}
    assert tree["inputs"]["sources"]["save_stall"] == {"kind": "entered", "told": "entered"}


def test_a_preview_keeps_nothing(api: Client) -> None:
    with CaptureQueriesContext(connection) as queries:
        asked(api)
    assert all(query["sql"].lstrip().upper().startswith("SELECT") for query in queries)
    assert Plan.objects.count() == 0


def test_names_with_seconds_in_them_are_taken_too(api: Client) -> None:
    same = {"save_stall_s": 30, "mtbf_s": 36000.0, "recovery_s": 600, "target": 0.93, "step_s": 14.2}
    assert asked(api, same)[1]["steps"] == asked(api, step_time_s=14.2)[1]["steps"]


def test_counted_faults_give_a_credible_interval(api: Client) -> None:
    body = {"save_stall": 30, "recovery": 600, "target": 0.98, "faults": 3, "exposure_s": 604_800}
    assert asked(api, body)[1]["credible"]["p_target"] == pytest.approx(0.45574724682)


def test_what_is_left_out_is_what_is_known_of_the_job(api: Client, job: Job) -> None:
    status, tree = asked(api, {"job": "lm", "save_stall": "2s", "target": 0.9})
    assert status == 200, tree
    inputs = tree["inputs"]
    assert (inputs["save_stall_s"], inputs["step_s"], inputs["nodes"]) == (2.0, 14.2, 2)
    assert inputs["period_s"] == pytest.approx(20 * 14.2 + 2)
    assert (inputs["faults"], inputs["prior"]) == (0, "fleet")
    kinds = {name: source["kind"] for name, source in inputs["sources"].items()}
    assert (kinds["save_stall"], kinds["step_time"], kinds["recovery"]) == ("entered", "measured", "default")
    assert "lm" in inputs["sources"]["step_time"]["told"]


def test_a_present_period_of_the_job_is_no_mistake_of_the_one_who_asks(api: Client, job: Job) -> None:
    status, tree = asked(api, {"job": "lm", "save_stall": "1h", "recovery": 1, "step_time": "2m"})
    assert status == 200, tree
    assert tree["present"]["period_s"] == pytest.approx(20 * 120 + 3600)


@pytest.mark.parametrize("name", ["save_stall", "save_stall_s"])
def test_null_means_not_given_under_every_name(api: Client, job: Job, name: str) -> None:
    status, tree = asked(api, {"job": "lm", "target": 0.9, name: None})
    assert status == 200, tree
    assert (tree["inputs"]["save_stall_s"], tree["inputs"]["sources"]["save_stall"]["kind"]) == (0.5, "default")
    assert asked(api, save_stall_s=None)[1]["inputs"]["save_stall_s"] == 30.0
    assert set(asked(api, stanbys=None)[1]) == {"stanbys"}


def test_faults_counted_on_the_nodes_of_a_job_are_scaled_to_those_asked_about(api: Client, job: Job) -> None:
    as_it_is, doubled, entered = (
        asked(api, {"job": "lm", "target": 0.9, **values})[1]["inputs"]
        for values in ({}, {"nodes": 4}, {"nodes": 4, "mtbf": "10h"})
    )
    assert (as_it_is["observed_nodes"], doubled["observed_nodes"], entered["observed_nodes"]) == (2, 2, None)
    assert doubled["effective"]["mtbf_s"] == pytest.approx(as_it_is["effective"]["mtbf_s"] / 2)
    assert entered["effective"]["mtbf_s"] == 36_000


@pytest.mark.parametrize(
    ("values", "field"),
    [({"standbys": 2}, "standbys"), ({"repair_s": 60}, "repair_s"), ({"prior": "jeffreys"}, "prior")],
)
def test_a_value_that_changes_nothing_is_refused(api: Client, values: dict[str, Any], field: str) -> None:
    status, errors = asked(api, **values)
    assert status == 400
    assert set(errors) == {field}
    assert "is of no use without" in errors[field][0]


def test_what_is_known_of_a_job_makes_a_value_count(api: Client, job: Job) -> None:
    assert asked(api, {"job": "lm", "target": 0.9, "repair": "1d"})[0] == 200


@pytest.mark.parametrize(
    ("values", "field", "sentence"),
    [
        ({"target": 93}, "target", "93 is a percentage. Write 0.93."),
        ({"save_stall": -5}, "save_stall", "-5 is negative. Give 0 or more."),
        ({"mtbf": 60}, "mtbf", "a fault every 1 min comes sooner than the recovery of 10 min is over."),
        ({"nodes": True}, "nodes", "true is not a number."),
        ({"standbys": [1]}, "standbys", "a list is not a number."),
        ({"recovery": {"s": 5}}, "recovery", "an object is not a number."),
        ({"stanbys": 4}, "stanbys", "is not a name known here. Did you mean standbys?"),
        ({"job": "../../etc"}, "job", "'../../etc' is not a name."),
        ({"job": "\ud800"}, "job", "is not a name."),
        ({"job": 7}, "job", "7 is not a name."),
        ({"job": "none-such"}, "job", "There is no job 'none-such'. There are: none yet."),
        ({"drain": "\x00"}, "drain", "is not a duration."),
        ({"\ud800": 1}, "\ufffd", "is not a name known here."),
    ],
)
def test_a_bad_value_is_refused_at_its_field(api: Client, values: dict[str, Any], field: str, sentence: str) -> None:
    status, errors = asked(api, **values)
    assert status == 400
    assert set(errors) == {field}
    assert sentence in errors[field][0]


def test_all_mistakes_are_told_at_once(api: Client) -> None:
    status, errors = asked(api, {"save_stall": "soon", "target": 93, "period": 0})
    assert status == 400
    assert set(errors) == {"save_stall", "target", "period", "recovery", "mtbf"}


@pytest.mark.parametrize(
    "body",
    [
        "",
        "null",
        "[]",
        "3",
        '"text"',
        "{",
        '{"target": NaN}',
        '{"target": Infinity}',
        '{"target": -Infinity}',
        '{"save_stall": 1e400}',
        '{"save_stall": ' + "9" * 5000 + "}",
        "[" * 100_000,
        '{"target": ' + "[" * 400 + "]" * 400 + "}",
        '{"a": "' + "b" * 70_000 + '"}',
        b"\xff\xfe",
        "{" + ",".join(f'"field{number}": 1' for number in range(2000)) + "}",
    ],
)
def test_no_body_makes_the_preview_fail(api: Client, body: str | bytes) -> None:
    status, errors = asked(api, body)
    assert status in {400, 413}
    assert errors
    assert len(json.dumps(errors)) < 50_000


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"])
def test_a_body_that_is_not_json_is_refused_by_its_type(api: Client, kind: str) -> None:
    assert api.generic("POST", PREVIEW, b"target=0.9", content_type=kind).status_code == 415


@pytest.mark.parametrize("method", ["get", "put", "patch", "delete"])
def test_a_preview_is_only_asked_for(api: Client, method: str) -> None:
    assert getattr(api, method)(PREVIEW).status_code in {403, 405}


def test_a_preview_needs_a_person_who_may_see_plans() -> None:
    assert Client().post(PREVIEW, SOUND, "application/json").status_code == 401
    nobody = Client(headers={"Authorization": f"Token {Token.objects.create(user=rows.person('nobody')).key}"})
    assert nobody.post(PREVIEW, SOUND, "application/json").status_code == 403


def test_a_browser_asks_with_its_session_and_the_token_of_its_page(people: dict[str, User], client_of: Any) -> None:
    client = client_of("viewer", csrf=True)
    assert client.post(PREVIEW, SOUND, "application/json").status_code == 403
    client.get("/reports/")
    token = client.cookies["csrftoken"].value
    reply = client.post(PREVIEW, SOUND, "application/json", headers={"X-CSRFToken": token})
    assert reply.status_code == 200


def test_plans_are_read_with_their_sources_the_answer_and_what_came_of_them(api: Client, job: Job) -> None:
    applied(job, 1)
    (plan,) = api.get("/api/v1/plans/?job=lm").json()["results"]
    assert (plan["job"], plan["version"], plan["every_steps"]) == ("lm", 1, 102)
    assert plan["inputs"]["save_stall"]["told"] == "entered by ops"
    assert plan["outputs"]["steps"]["every_steps"] == 102
    assert plan["result"]["planned"] == pytest.approx(0.943865903935)
    assert (plan["result"]["measured"], plan["result"]["verdict"]) == (None, "too early to say")
    assert api.get(f"/api/v1/plans/{plan['id']}/").json() == plan


def test_a_plan_that_was_replaced_tells_what_was_kept_of_it(api: Client, job: Job) -> None:
    kept = {
        "ettr": 0.938, "sd": 0.003, "window_s": 259_200.0, "running_s": 250_000.0, "kept_steps": 1, "lost_steps": 0,
        "verdict": "as planned", "told": "planned 94.2 %, measured 93.8 % +- 0.6 over 3 d: as planned",
    }  # fmt: skip
    applied(job, 1, ended_at=timezone.now(), measured=kept)
    applied(job, 2, automatic=True)
    (old,) = api.get("/api/v1/plans/?state=closed").json()["results"]
    assert (old["result"]["measured"], old["result"]["verdict"], old["result"]["frozen"]) == (0.938, "as planned", True)
    assert [plan["version"] for plan in api.get("/api/v1/plans/?automatic=true").json()["results"]] == [2]
    assert [plan["version"] for plan in api.get("/api/v1/plans/?ordering=version").json()["results"]] == [1, 2]


def test_plans_are_downloaded_as_csv(api: Client, job: Job) -> None:
    applied(job, 1)
    reply = api.get("/api/v1/plans/?format=csv")
    (row,) = csv.DictReader(io.StringIO(reply.getvalue().decode()))
    assert (row["job"], row["save_stall"], row["verdict"], row["measured_ettr"]) == (
        "lm",
        "30.0",
        "too early to say",
        "",
    )
    assert row["applied_by"] == "'=ops"


def test_a_list_takes_the_same_number_of_queries_however_many_plans(api: Client, job: Job) -> None:
    kept = {"ettr": 0.9, "sd": 0.1, "window_s": 1.0, "verdict": "as planned", "told": "x"}
    applied(job, 1, ended_at=timezone.now(), measured=kept)
    with CaptureQueriesContext(connection) as few:
        api.get("/api/v1/plans/")
    for version in range(2, 30):
        applied(job, version, ended_at=timezone.now(), measured=kept)
    with CaptureQueriesContext(connection) as many:
        assert api.get("/api/v1/plans/").json()["count"] == 29
    assert len(many) == len(few)


@pytest.mark.parametrize(
    ("query", "parameter"),
    [("automatic=perhaps", "automatic"), ("state=ajar", "state"), ("jobs=lm", "jobs"), ("since=now", "since")],
)
def test_a_bad_filter_is_refused_by_its_name(api: Client, query: str, parameter: str) -> None:
    reply = api.get(f"/api/v1/plans/?{query}")
    assert reply.status_code == 400
    assert parameter in reply.json()


def test_nobody_makes_plans_over_rest(people: dict[str, User], job: Job) -> None:
    root = User.objects.create_superuser("root")
    client = Client(headers={"Authorization": f"Token {Token.objects.create(user=root).key}"})
    plan = applied(job, 1)
    for method in ("post", "put", "patch", "delete"):
        for address in ("/api/v1/plans/", f"/api/v1/plans/{plan.pk}/"):
            assert getattr(client, method)(address).status_code == 405


def test_the_addresses_without_a_version_read_the_same_rows(api: Client, job: Job) -> None:
    for name in ("nodes", "jobs", "snapshots", "incidents", "failovers"):
        assert api.get(f"/api/{name}/").json()["results"] == api.get(f"/api/v1/{name}/").json()["results"]
    before = {"nodes", "jobs", "snapshots", "incidents", "failovers"}
    assert set(api.get("/api/").json()) == before
    new = set(api.get("/api/v1/").json()) - before
    assert {"plans", "decisions", "holds", "quarantines"} <= new
    for name in new:
        assert api.get(f"/api/{name}/").status_code == 404


def test_the_schema_has_types_for_the_question_and_the_answer(api: Client) -> None:
    schema = api.get("/api/v1/schema/?format=json").json()
    preview = schema["paths"][PREVIEW]["post"]
    assert preview["requestBody"]["content"]["application/json"]["schema"]["$ref"].endswith("/PlanRequest")
    model = schema["components"]["schemas"]["PlanAnswer"]["properties"]
    tree = as_json(found())
    assert set(model) == set(tree)
    assert set(schema["components"]["schemas"]["FirstOrder"]["properties"]) == set(tree["first_order"])
    assert not any(path.startswith("/api/") and "/v1/" not in path for path in schema["paths"])


def test_all_of_an_answer_is_in_the_schema(api: Client) -> None:
    schemas = api.get("/api/v1/schema/?format=json").json()["components"]["schemas"]
    full = {
        "step_time": 14.2, "period": "1h", "standbys": 1, "repair": "1d", "nodes": 8, "node_share": 0.5, "drain": 60,
    }  # fmt: skip
    tree = asked(api, **full)[1]
    assert tree["laws"]
    assert tree["tiers"]
    for name, found in tree.items():
        told = schemas["PlanAnswer"]["properties"][name]
        if isinstance(found, dict) and name != "inputs":
            told = told.get("allOf", told.get("oneOf", [told]))[0]
            assert set(schemas[told["$ref"].rsplit("/", 1)[-1]]["properties"]) == set(found), name
        elif isinstance(found, list) and found and isinstance(found[0], dict):
            assert set(schemas[told["items"]["$ref"].rsplit("/", 1)[-1]]["properties"]) == set(found[0]), name


def test_what_is_known_of_a_job_is_not_measured_anew_for_every_key(api: Client, job: Job) -> None:
    with CaptureQueriesContext(connection) as first:
        asked(api, {"job": "lm", "target": 0.9})
    with CaptureQueriesContext(connection) as second:
        asked(api, {"job": "lm", "target": 0.91})
    assert len(second) < len(first) - 5
    Job.objects.filter(pk=job.pk).update(every_steps=40)
    assert asked(api, {"job": "lm", "target": 0.9})[1]["inputs"]["period_s"] == pytest.approx(40 * 14.2 + 0.5)
