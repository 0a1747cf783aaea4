"""A person says that a step must never be restored: on its page, over REST and on the command line."""

import json
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.management import CommandError, call_command
from django.test import Client
from django.utils import timezone
from rest_framework.authtoken.models import Token

from reliability import models
from reliability.domain.snapshots import Tier
from reliability.selectors import core
from reliability.selectors.progress import job_lines

pytestmark = [pytest.mark.django_db, pytest.mark.slow]
REASON = "2026-11-29 is a date and no step"


def newest() -> models.Snapshot:
    found = models.Snapshot.objects.filter(job__name="gpt-small", step=1220).first()
    assert found is not None
    return found


def by_page(client_of: Any, people: dict[str, User], role: str, reason: str) -> int:
    answer = client_of(role).post(f"/snapshots/{newest().pk}/distrust/", {"reason": reason})
    return int(answer.status_code)


def by_rest(client_of: Any, people: dict[str, User], role: str, reason: object) -> int:
    token, _ = Token.objects.get_or_create(user=people[role])
    client = Client(headers={"Authorization": f"Token {token.key}"})
    body = json.dumps({"reason": reason})
    answer = client.post(f"/api/v1/snapshots/{newest().pk}/distrust/", body, "application/json")
    if answer.status_code == 200:
        assert answer.json()["distrusted"] is True
        assert REASON in answer.json()["events"][-1]["sentence"]
    return int(answer.status_code)


def by_command(client_of: Any, people: dict[str, User], role: str, reason: str) -> int:
    try:
        call_command("snapshots", "distrust", "gpt-small", "--step", "1220", "--reason", reason)
    except CommandError:
        return 400
    return 200


@pytest.mark.parametrize("way", [by_page, by_rest, by_command])
def test_a_distrusted_step_is_never_chosen_and_says_who_said_why(
    way: Any, client_of: Any, people: dict[str, User], cluster: dict[str, Any]
) -> None:
    job = cluster["training"]
    assert job_lines([job], now=timezone.now())[0].process_risk.restore_step == 1220
    assert way(client_of, people, "operator", REASON) in {200, 302}
    found = newest()
    assert found.distrusted
    assert found.distrust_reason.startswith(f"{REASON} (")
    event = models.SnapshotEvent.objects.filter(snapshot=found).last()
    assert event is not None
    assert REASON in event.sentence
    assert job_lines([job], now=timezone.now())[0].process_risk.restore_step == 1200
    for tier in (None, Tier.SSD):
        assert core.complete_snapshots(job, tier=tier)[0].step == 1200
    assert way(client_of, people, "operator", "again") == 400, "what is said already stands"
    assert newest().distrust_reason == found.distrust_reason
    assert "Distrust this step" not in client_of("operator").get(f"/snapshots/{found.pk}/").content.decode()


@pytest.mark.parametrize("way", [by_page, by_rest, by_command])
@pytest.mark.parametrize("reason", ["", "   ", "x" * 501, "two\nlines", "nul\x00", "\u202e"])
def test_a_reason_that_is_no_line_is_refused_and_nothing_is_changed(
    way: Any, reason: str, client_of: Any, people: dict[str, User], cluster: dict[str, Any]
) -> None:
    assert way(client_of, people, "operator", reason) == 400
    assert not newest().distrusted


@pytest.mark.parametrize("way", [by_page, by_rest])
def test_who_may_not_operate_jobs_distrusts_nothing(
    way: Any, client_of: Any, people: dict[str, User], cluster: dict[str, Any]
) -> None:
    assert way(client_of, people, "viewer", REASON) == 403
    assert not newest().distrusted
    assert "Distrust this step" not in client_of("viewer").get(f"/snapshots/{newest().pk}/").content.decode()


@pytest.mark.parametrize("body", ["[]", "{}", "null", '{"reason": 1}', '{"reason": "a", "why": "b"}', "{", "7"])
def test_a_body_that_is_no_reason_is_refused_by_field(
    body: str, people: dict[str, User], cluster: dict[str, Any]
) -> None:
    client = Client(headers={"Authorization": f"Token {Token.objects.create(user=people['operator']).key}"})
    answer = client.post(f"/api/v1/snapshots/{newest().pk}/distrust/", body, "application/json")
    assert answer.status_code == 400
    assert answer.json()
    assert client.post("/api/v1/snapshots/999999/distrust/", "{}", "application/json").status_code == 404


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--step", "7"], "The newest are: 1220"),
        (["--step", "-1"], "no step -1"),
        (["--step", str(10**30)], "no step"),
        (["--step", "1220", "--epoch", "9"], "no step 1220"),
        (["--step", "1220", "--epoch", str(10**30)], "no step 1220"),
    ],
)
def test_the_command_names_what_there_is(options: list[str], said: str, cluster: dict[str, Any]) -> None:
    with pytest.raises(CommandError, match=said):
        call_command("snapshots", "distrust", "gpt-small", *options, "--reason", "x")
