"""How programs sign in, and the pages around the REST interface."""

import re
from collections.abc import Iterator

import pytest
from django.contrib.auth.models import User
from django.core.cache import cache
from django.core.management import call_command
from django.test import Client
from rest_framework.authtoken.models import Token

pytestmark = pytest.mark.django_db
PASSWORD = "a long password"


@pytest.fixture(autouse=True)
def fresh_limits() -> Iterator[None]:
    cache.clear()
    yield
    cache.clear()


@pytest.fixture
def root() -> User:
    return User.objects.create_superuser("root", password=PASSWORD)


def sign_in(name: str, password: str, **headers: str) -> tuple[int, dict[str, str]]:
    answer = Client(headers=headers).post("/api/token/", {"username": name, "password": password}, "application/json")
    return answer.status_code, answer.json()


def test_name_and_password_give_a_token_that_works(root: User) -> None:
    status, body = sign_in("root", PASSWORD)
    assert status == 200
    assert Client(headers={"Authorization": f"Token {body['token']}"}).get("/api/jobs/").status_code == 200


def test_a_revoked_token_stops_working(root: User) -> None:
    client = Client(headers={"Authorization": f"Token {sign_in('root', PASSWORD)[1]['token']}"})
    assert client.delete("/api/token/").status_code == 204
    assert client.get("/api/jobs/").status_code == 401


def test_an_outdated_token_is_not_in_the_way_of_a_new_sign_in(root: User) -> None:
    assert sign_in("root", PASSWORD, Authorization="Token 0000")[0] == 200


def test_a_wrong_password_says_no_more_than_an_unknown_name(root: User) -> None:
    assert sign_in("root", "wrong") == sign_in("unknown", "wrong")
    assert sign_in("root", "wrong")[0] == 400


def test_guessing_at_one_name_is_limited_and_other_names_still_work(root: User) -> None:
    User.objects.create_user("vera", password=PASSWORD)
    assert [sign_in("root", f"guess {number}")[0] for number in range(11)][-1] == 429
    assert sign_in("ROOT", PASSWORD)[0] == 429
    assert sign_in("vera", PASSWORD)[0] == 200


@pytest.mark.slow
def test_guessing_from_one_address_is_limited_whatever_the_client_says_it_is() -> None:
    answers = [sign_in(f"name{number}", "guess", **{"X-Forwarded-For": f"10.0.0.{number}"})[0] for number in range(31)]
    assert answers[-1] == 429


def test_malformed_sign_ins_are_told_what_is_missing() -> None:
    client = Client()
    assert "password" in client.post("/api/token/", {"username": "root"}, "application/json").json()
    assert client.post("/api/token/", "[1]", "application/json").status_code == 400
    assert client.post("/api/token/", "{", "application/json").status_code == 400


@pytest.mark.parametrize("scheme", ["Token", "Bearer"])
def test_the_token_of_an_agent_opens_nothing_here(scheme: str) -> None:
    assert Client(headers={"Authorization": f"{scheme} an-agent-token"}).get("/api/nodes/").status_code == 401


def test_the_token_of_a_user_who_was_shut_out_stops_working(root: User) -> None:
    client = Client(headers={"Authorization": f"Token {Token.objects.create(user=root).key}"})
    root.is_active = False
    root.save()
    assert client.get("/api/jobs/").status_code == 401


def test_the_health_check_needs_no_sign_in_and_tells_nothing_else() -> None:
    answer = Client().get("/healthz")
    assert answer.status_code == 200
    assert set(answer.json()) == {"status", "version"}


def test_the_documentation_asks_for_a_sign_in() -> None:
    assert Client().get("/api/docs/").status_code == 302
    assert Client().get("/api/schema/").status_code == 401


def test_the_documentation_loads_nothing_from_other_hosts(root: User) -> None:
    client = Client()
    client.force_login(root)
    page = client.get("/api/v1/docs/").content.decode()
    addresses = re.findall(r"""(?:src|href)=["']([^"']+)""", page)
    assert addresses
    for address in addresses:
        assert address.startswith(("/static/drf_spectacular_sidecar/", "/api/v1/docs/?script"))
        assert client.get(address).status_code == 200
    assert "//" not in client.get("/api/v1/docs/?script").content.decode().replace("// ", "")
    assert "<script>" not in page


@pytest.mark.slow
def test_the_schema_is_complete_and_valid(root: User, capsys: pytest.CaptureFixture[str]) -> None:
    call_command("spectacular", "--validate", "--fail-on-warn")
    text = capsys.readouterr().out
    for resource in ("nodes", "jobs", "snapshots", "incidents", "failovers"):
        assert f"/api/v1/{resource}/:" in text
        assert f"/api/{resource}/:" not in text


def test_a_body_that_is_nested_without_end_is_malformed(client: Client) -> None:
    answer = client.post("/api/token/", data="[" * 100_000, content_type="application/json")
    assert answer.status_code == 400
