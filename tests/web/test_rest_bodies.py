"""What REST answers to bodies that nobody meant: JSON that names what is wrong, on every route that takes a body."""

import json
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from drf_spectacular.generators import SchemaGenerator
from rest_framework.authtoken.models import Token

from reliability.domain import retention as rules
from reliability.models import Job, TrialRestore
from tests.web import rows

API = "/api/v1/jobs/lm"
ROUTES = {
    ("put", f"{API}/retention/"),
    ("post", f"{API}/trials/"),
    ("put", f"{API}/trials/schedule/"),
    ("post", "/api/v1/plans/preview/"),
    ("post", "/api/v1/fault-codes/"),
    ("post", "/api/v1/token/"),
}
"""Some that there are, so that an empty list is no success."""
OF_MONITORS = "/api/v1/monitors/findings/"
"""Takes tokens of monitors alone: see test_monitors.py."""

pytestmark = [pytest.mark.django_db, pytest.mark.slow]


@pytest.fixture
def job() -> Job:
    return rows.job("lm", [rows.node("n1")])


@pytest.fixture
def client(people: dict[str, User], job: Job) -> Client:
    user = people["operator"]
    user.is_superuser = True
    user.save()
    return Client(
        headers={"Authorization": f"Token {Token.objects.create(user=user).key}"}, raise_request_exception=False
    )


def routes() -> list[tuple[str, str]]:
    """Return method and address of all that take a body."""
    paths = SchemaGenerator().get_schema(request=None, public=True)["paths"]
    found = [
        (method, path.format_map({"name": "lm", "code": "disk-full", "id": "1", "pk": "1", "snapshot": "1"}))
        for path, methods in paths.items()
        for method, told in methods.items()
        if "requestBody" in told and path != OF_MONITORS
    ]
    assert set(found) >= ROUTES
    return found


def sent(client: Client, method: str, path: str, body: Any) -> tuple[int, Any]:
    raw = body if isinstance(body, bytes) else json.dumps(body)
    reply = getattr(client, method)(path, raw, "application/json")
    assert reply.headers["Content-Type"] == "application/json", (method, path, reply.status_code)
    return reply.status_code, reply.json()


@pytest.mark.parametrize(
    "body",
    [
        {"\ud800": 1},
        {"a\udfff": {"\ud800": 1}},
        *(
            {name: "\ud800"}
            for name in ("snapshot", "every_hours", "code", "origin", "lines", "reason", "version", "job")
        ),
        {"ssd": {"\ud800": 1}},
        {"ssd": "\ud800"},
        {"lines": ["\ud800"], "origin": "\udfff"},
        "\ud800",
    ],
    ids=json.dumps,
)
def test_half_a_surrogate_pair_anywhere_in_a_body_is_no_error_of_the_server(client: Client, body: Any) -> None:
    for method, path in routes():
        status, answer = sent(client, method, path, body)
        assert 200 <= status < 500, (method, path)
        assert json.dumps(answer, ensure_ascii=False).encode()


@pytest.mark.parametrize("size", [100_000, 3_000_000])
def test_a_body_that_is_too_large_is_told_as_such_in_json(client: Client, size: int) -> None:
    for method, path in routes():
        status, answer = sent(client, method, path, b'{"a": "' + b"x" * size + b'"}')
        limited = size > 2_500_000 or not path.endswith("/token/")
        assert status in ({413, 404, 429} if limited else {400, 429}), (method, path)
        assert "large" in answer["detail"] or status != 413


@pytest.mark.parametrize("body", [[], 0, False, "", [1], "x", None], ids=json.dumps)
def test_what_is_no_object_begins_and_sets_nothing(client: Client, job: Job, body: Any) -> None:
    for method, path in routes():
        status, answer = sent(client, method, path, body)
        assert status in {400, 404, 429}, (method, path)  # after many sign-ins that failed
        if path.startswith(API):
            assert answer == {"non_field_errors": ["Give one JSON object."]}
    assert not TrialRestore.objects.exists()


def test_a_trial_may_be_asked_for_without_any_body(client: Client, job: Job) -> None:
    for raw in (b"", b"{}"):
        assert client.post(f"{API}/trials/", raw, "application/json").status_code in {201, 409}


@pytest.mark.parametrize(
    ("path", "body", "field", "says"),
    [
        ("retention", {"ssd": {"keep_newest": 4, "cap_byte": 1}}, "ssd.cap_byte", "One of: cap_bytes, every_steps,"),
        ("retention", {"storage": {"keep_newest": 4, "": 1}}, "storage.", "Not a field here"),
        ("retention", {"ssd": {"keep_newest": 0}}, "ssd.keep_newest", "from 1 to 100000"),
        ("retention", {"ssd": {"keep_newest": "4"}}, "ssd.keep_newest", "from 1 to 100000"),
        ("retention", {"ssd": {"keep_newest": 4, "keep_for_s": "x"}}, "ssd.keep_for_s", "from 0 to 3153600000"),
        ("trials/schedule", {"every_hours": "x"}, "every_hours", "from 0.1 to 8760"),
        ("trials/schedule", {"every_hours": 0}, "every_hours", "from 0.1 to 8760"),
        ("trials/schedule", {"every_snapshots": "x"}, "every_snapshots", "from 1 to 100000"),
        ("trials/schedule", {"every_snapshots": 0}, "every_snapshots", "from 1 to 100000"),
    ],
)
def test_what_would_be_right_is_what_is_taken(
    client: Client, path: str, body: dict[str, Any], field: str, says: str
) -> None:
    status, answer = sent(client, "put", f"{API}/{path}/", body)
    assert (status, list(answer)) == (400, [field])
    assert says in answer[field][0]
    assert "Empty" not in answer[field][0]


@pytest.mark.parametrize("path", ["retention", "trials", "trials/schedule"])
def test_a_parameter_that_is_none_is_refused_by_name(client: Client, path: str) -> None:
    answer = client.get(f"{API}/{path}/?page=NaN")
    assert (answer.status_code, list(answer.json())) == (400, ["page"])
    assert client.get(f"{API}/{path}/?format=json").status_code == 200


@pytest.mark.parametrize(("seconds", "words"), [(1.0, "1 second"), (1.5, "1.5 seconds"), (90.0, "90 seconds")])
def test_one_second_is_one(seconds: float, words: str) -> None:
    assert rules.said(rules.TierRule(keep_newest=1, keep_for_s=seconds)).endswith(f"those of the last {words}")
