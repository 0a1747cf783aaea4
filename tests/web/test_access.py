"""Who gets in at all: tries are limited, pages need a role, and secrets are shown to nobody."""

import logging
from collections.abc import Iterator
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.cache import cache
from django.test import Client
from django.urls import reverse
from rest_framework.authtoken.models import Token

from reliability.models import Job, OrderRecord
from tests.web import rows
from tests.web.test_routes import PAGES, address


@pytest.fixture(autouse=True)
def fresh_limits() -> Iterator[None]:
    cache.clear()
    yield
    cache.clear()


def sign_in(name: str, password: str = "guess", **headers: str) -> Any:
    return Client(headers=headers).post("/sign-in/", {"username": name, "password": password})


def test_guessing_a_password_is_limited_by_name_and_others_still_get_in(people: Any) -> None:
    assert [sign_in("viewer").status_code for _ in range(11)][-1] == 429
    refused = sign_in("VIEWER", rows.PASSWORD)
    assert refused.status_code == 429
    assert "Wait a minute" in refused.content.decode()
    assert sign_in("operator", rows.PASSWORD).status_code == 302


@pytest.mark.slow
def test_guessing_is_limited_by_address_whatever_a_header_says(db: None) -> None:
    tried = [sign_in(f"name{number}", **{"X-Forwarded-For": f"10.0.0.{number}"}) for number in range(31)]
    assert tried[-1].status_code == 429


def test_pages_and_programs_share_one_count(people: Any) -> None:
    for _ in range(10):
        sign_in("viewer")
    body = {"username": "viewer", "password": rows.PASSWORD}
    assert Client().post("/api/token/", body, "application/json").status_code == 429


def test_people_who_know_their_password_are_never_limited(people: Any) -> None:
    assert {sign_in("viewer", rows.PASSWORD).status_code for _ in range(40)} == {302}


def test_the_administration_has_no_sign_in_of_its_own(people: Any, client_of: Any) -> None:
    asked = Client().get("/admin/", follow=True)
    assert asked.redirect_chain[-1][0] == "/sign-in/?next=%2Fadmin%2F"
    assert Client().post("/admin/login/", {"username": "staff", "password": rows.PASSWORD}).status_code == 302
    answer = client_of("viewer").get("/admin/", follow=True)
    assert answer.status_code == 403
    assert "staff status" in answer.content.decode()


@pytest.mark.parametrize("name", PAGES)
def test_a_page_needs_a_role_as_the_same_rows_over_rest_do(name: str, cluster: dict[str, Any]) -> None:
    client = Client()
    client.force_login(User.objects.create_user("nobody"))
    answer = client.get(address(name, PAGES[name], cluster))
    assert answer.status_code == 403
    text = answer.content.decode()
    assert "Your role does not include this" in text
    for secret in ("gpt-small", "vit-base", "waiting for a decision"):
        assert secret not in text


def test_a_missing_right_is_one_line_in_the_log(client_of: Any, caplog: pytest.LogCaptureFixture, db: None) -> None:
    rows.job("gpt-small", [rows.node("n1")])
    with caplog.at_level(logging.WARNING, "django.request"):
        assert client_of("viewer").get("/jobs/gpt-small/stop/").status_code == 403
    (record,) = [each for each in caplog.records if each.name == "django.request"]
    assert record.exc_info is None


def test_the_administration_shows_no_secret_of_a_job_an_order_or_a_person(people: Any, db: None) -> None:
    root = User.objects.create_superuser("root", password="a long password")
    token = Token.objects.create(user=people["viewer"]).key
    job = rows.job("lm", [rows.node("n1")], env={"WANDB_KEY": "secret-value"})
    carried = {"container": {"env": {"WANDB_KEY": "secret-value"}}}
    now = job.created_at
    order = OrderRecord.objects.create(
        node=job.slots.get().node, job=job, kind="start", key="x", payload=carried, created_at=now, expires_at=now
    )
    client = Client()
    client.force_login(root)
    shown = client.get(reverse("admin:reliability_job_change", args=[job.pk])).content.decode()
    assert "WANDB_KEY" in shown
    pages = [
        shown,
        client.get(reverse("admin:reliability_orderrecord_change", args=[order.pk])).content.decode(),
        client.get("/admin/", follow=True).content.decode(),
    ]
    for page in pages:
        assert "secret-value" not in page
        assert token not in page
        assert "authtoken" not in page
    assert client.get("/admin/authtoken/tokenproxy/").status_code == 404
    client.post(reverse("admin:reliability_job_change", args=[job.pk]), {"approval": "automatic"})
    assert Job.objects.get().env == {"WANDB_KEY": "secret-value"}
