"""What a job keeps and trial restores, on their page and over REST: who may set what, and what a mistake is told as."""

import json
from html import unescape
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone
from rest_framework.authtoken.models import Token

from reliability.domain.retention import DEFAULTS, TierRule
from reliability.domain.snapshots import Tier
from reliability.models import Job, OrderRecord, Snapshot, SnapshotCopy, TrialRestore, TrialSchedule
from reliability.retention_forms import size_bytes, size_text, time_text
from reliability.selectors import retention as selected
from reliability.services import snapshot_tally
from tests.web import rows

pytestmark = [pytest.mark.django_db, pytest.mark.slow]
PAGE = "/jobs/lm/retention/"
API = "/api/v1/jobs/lm"
GOOD = {
    "ssd_keep_newest": "3",
    "ssd_every_steps": "",
    "ssd_keep_for_s": "",
    "ssd_cap_bytes": "2 GB",
    "storage_keep_newest": "5",
    "storage_every_steps": "1000",
    "storage_keep_for_s": "7d",
    "storage_cap_bytes": "",
}


@pytest.fixture
def job(people: dict[str, User]) -> Job:
    """A job of two ranks with ten snapshots of 500 MB a rank on both tiers, and a standby."""
    nodes = [rows.node("a"), rows.node("b")]
    rows.node("s1", role="standby", tier=1)
    made = rows.job("lm", nodes)
    for step in range(10, 110, 10):
        snapshot = Snapshot.objects.create(job=made, epoch=made.epoch, step=step, created_at=timezone.now())
        for rank, node in enumerate(nodes):
            for tier in (Tier.SSD, Tier.STORAGE):
                SnapshotCopy.objects.create(
                    snapshot=snapshot,
                    rank=rank,
                    tier=tier,
                    node=None if tier is Tier.STORAGE else node,
                    path=f"/store/lm/e1/s{step}-r{rank}.snap",
                    size_bytes=500_000_000,
                    digest="blake2b:00",
                    committed_at=timezone.now(),
                )
        snapshot_tally.recount([snapshot.pk])
    return made


def api(people: dict[str, User], role: str) -> Client:
    return Client(headers={"Authorization": f"Token {Token.objects.create(user=people[role]).key}"})


def sent(client: Client, method: str, path: str, body: Any) -> tuple[int, Any]:
    reply = getattr(client, method)(f"{API}{path}", json.dumps(body), "application/json")
    return reply.status_code, reply.json()


def test_the_page_shows_what_stays_what_goes_and_why(client_of: Any, job: Job) -> None:
    text = unescape(client_of("viewer").get(PAGE).content.decode())
    assert "the newest 4 that are kept" in text
    assert "It is older than the newest 8 that are kept." in text
    assert "10 snapshots, 5.0 GB" in text, "the SSD of one node holds one rank's shards"
    assert "10 snapshots, 10.0 GB" in text
    assert "Keep by these rules" not in text, "a viewer sets nothing"
    assert "Keep by these rules" in client_of("operator").get(PAGE).content.decode()
    ledger = client_of("viewer").get("/jobs/lm/snapshots/").content.decode()
    assert PAGE in ledger


def test_rules_that_are_entered_hold_and_are_shown_again_as_they_were_entered(client_of: Any, job: Job) -> None:
    client = client_of("operator")
    answer = client.post(f"{PAGE}rules/", GOOD)
    assert (answer.status_code, answer.url) == (302, PAGE)
    assert selected.rules_of(job) == {
        Tier.SSD: TierRule(keep_newest=3, cap_bytes=2_000_000_000),
        Tier.STORAGE: TierRule(keep_newest=5, every_steps=1000, keep_for_s=7 * 86400.0),
    }
    text = client.get(PAGE).content.decode()
    assert 'value="2 GB"' in text
    assert 'value="7 d"' in text


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("storage_cap_bytes", "900 MB", "is less than one snapshot of this job"),
        ("ssd_cap_bytes", "lots", "is not a size"),
        ("ssd_keep_newest", "0", "greater than or equal to 1"),
        ("ssd_keep_newest", "", "required"),
        ("storage_keep_for_s", "soon", "is not a duration"),
        ("storage_every_steps", "-5", "greater than or equal to 0"),
        ("ssd_cap_bytes", "999999 PB", "is not from 0"),
    ],
)
def test_a_mistake_is_told_at_its_field_what_was_entered_stays_and_nothing_is_set(
    client_of: Any, job: Job, field: str, value: str, words: str
) -> None:
    answer = client_of("operator").post(f"{PAGE}rules/", {**GOOD, field: value})
    assert answer.status_code == 400
    [told] = answer.context["form"].errors[field]
    assert words in told
    assert answer.context["form"].errors.keys() == {field}
    assert f'value="{value}"' in answer.content.decode() or not value
    assert selected.rules_of(job) == dict(DEFAULTS)


@pytest.mark.parametrize("count", [0, 1, 999, 1000, 2**30, 3 * 10**12, 1536 * 2**20, 123_456_789])
def test_a_size_is_read_as_it_is_shown(count: int) -> None:
    assert size_bytes(size_text(count), "cap") == count


@pytest.mark.parametrize("seconds", [0.0, 1.0, 90.0, 3601.0, 45_000.0, 7 * 86400.0, 86_401.5])
def test_a_time_is_read_as_it_is_shown(seconds: float) -> None:
    from reliability.retention_forms import _time

    assert _time(time_text(seconds), "time") == seconds


def test_a_button_has_a_standby_try_the_newest_stored_step(client_of: Any, job: Job) -> None:
    client = client_of("operator")
    assert client.post("/jobs/lm/trial/").url == PAGE
    trial = TrialRestore.objects.get()
    assert (trial.snapshot.step, trial.node.name, trial.asked_by) == (100, "s1", "operator")
    assert OrderRecord.objects.get(kind="trial_restore").node.name == "s1"
    text = client.get(PAGE).content.decode()
    assert "s1 loads step 100 now" in text
    client.post("/jobs/lm/trial/")
    assert "A trial of lm is running." in client.get(PAGE).content.decode()
    assert TrialRestore.objects.count() == 1


def test_a_step_is_tried_from_its_own_page(client_of: Any, job: Job) -> None:
    snapshot = job.snapshots.get(step=50)
    assert "Try to restore it" not in client_of("viewer").get(f"/snapshots/{snapshot.pk}/").content.decode()
    client = client_of("operator")
    assert f'name="snapshot" value="{snapshot.pk}"' in client.get(f"/snapshots/{snapshot.pk}/").content.decode()
    client.post("/jobs/lm/trial/", {"snapshot": snapshot.pk})
    assert TrialRestore.objects.get().snapshot == snapshot


def test_a_snapshot_of_another_job_cannot_be_tried_from_here(client_of: Any, job: Job) -> None:
    client = client_of("operator")
    for key in ("999999", "x", "-1", "9" * 30):
        client.post("/jobs/lm/trial/", {"snapshot": key})
    assert not TrialRestore.objects.exists()


def test_what_came_of_a_trial_stands_on_the_page(client_of: Any, job: Job) -> None:
    TrialRestore.objects.create(
        job=job,
        snapshot=job.snapshots.get(step=100),
        node=rows.models.Node.objects.get(name="s1"),
        state="failed",
        reason="rank 1 on storage, /store/lm/e1/s100-r1.snap: Chunk 0 does not have the digest of its record.",
        result={"seconds": 12.5},
        asked_by="schedule",
        started_at=timezone.now(),
        ended_at=timezone.now(),
    )
    text = client_of("viewer").get(PAGE).content.decode()
    assert "/store/lm/e1/s100-r1.snap: Chunk 0" in text
    assert "failed: a copy is no good" in text


def test_a_schedule_is_set_shown_and_taken_back(client_of: Any, job: Job) -> None:
    client = client_of("operator")
    assert client.post("/jobs/lm/trial/schedule/", {"every_hours": "12", "every_snapshots": "50"}).status_code == 302
    assert (TrialSchedule.objects.get().every_hours, TrialSchedule.objects.get().every_snapshots) == (12.0, 50)
    assert "every 12.0 h" in client.get(PAGE).content.decode()
    answer = client.post("/jobs/lm/trial/schedule/", {"every_hours": "0"})
    assert answer.status_code == 400
    assert answer.context["schedule"].errors.keys() == {"every_hours"}
    client.post("/jobs/lm/trial/schedule/", {})
    assert not TrialSchedule.objects.exists()


def test_rest_reads_and_sets_the_rules(people: dict[str, User], job: Job) -> None:
    client = api(people, "operator")
    before = client.get(f"{API}/retention/").json()
    assert before["storage"] | {"words": ""} == {
        "keep_newest": 8, "every_steps": 0, "keep_for_s": 0.0, "cap_bytes": 0, "words": "", "default": True,
        "snapshots": 10, "size_bytes": 10_000_000_000, "going": 0,
    }  # fmt: skip
    assert before["going"][0] == {
        "epoch": 1, "step": 10, "tier": "ssd", "why": "not_kept",
        "words": "It is older than the newest 4 that are kept.", "size_bytes": 500_000_000,
    }  # fmt: skip
    status, answer = sent(client, "put", "/retention/", {"storage": {"keep_newest": 2, "every_steps": 50}})
    assert status == 200
    assert (answer["storage"]["keep_newest"], answer["storage"]["default"]) == (2, False)
    assert answer["ssd"]["default"], "a tier that is left out keeps its own"
    assert [each["step"] for each in answer["going"] if each["tier"] == "storage"] == [20, 30, 40, 60, 70, 80]


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"storage": {"keep_newest": 1, "cap_bytes": 999_999_999}}, "storage.cap_bytes"),
        ({"storage": {"keep_newest": 0}}, "storage.keep_newest"),
        ({"storage": {}}, "storage.keep_newest"),
        ({"storage": {"keep_newest": True}}, "storage.keep_newest"),
        ({"storage": {"keep_newest": 1, "keep_for_s": -1}}, "storage.keep_for_s"),
        ({"storage": 7}, "storage"),
        ({"memory": {"keep_newest": 1}}, "memory"),
        ({}, "non_field_errors"),
        ([], "non_field_errors"),
        ({"ssd": {"keep_newest": 1}, "storage": {"keep_newest": 1, "cap_bytes": 1}}, "storage.cap_bytes"),
    ],
)
def test_rest_names_the_field_that_is_wrong_and_sets_nothing(
    people: dict[str, User], job: Job, body: Any, field: str
) -> None:
    status, answer = sent(api(people, "operator"), "put", "/retention/", body)
    assert (status, list(answer)) == (400, [field])
    assert answer[field][0]
    assert selected.rules_of(job) == dict(DEFAULTS)


def test_rest_begins_a_trial_and_tells_what_came_of_it(people: dict[str, User], job: Job) -> None:
    client = api(people, "operator")
    key = job.snapshots.get(step=50).pk
    status, answer = sent(client, "post", "/trials/", {"snapshot": key})
    assert (status, answer["step"], answer["node"], answer["state"]) == (201, 50, "s1", "running")
    status, answer = sent(client, "post", "/trials/", {})
    assert status == 409
    assert "is running" in answer["detail"]
    assert [each["step"] for each in client.get(f"{API}/trials/").json()] == [50]
    for body, field in (({"snapshot": 10**9}, "snapshot"), ({"snapshot": "x"}, "snapshot"), ({"step": 5}, "step")):
        status, answer = sent(client, "post", "/trials/", body)
        assert (status, list(answer)) == (400, [field])


def test_rest_sets_the_schedule(people: dict[str, User], job: Job) -> None:
    client = api(people, "operator")
    assert client.get(f"{API}/trials/schedule/").json() == {"every_hours": None, "every_snapshots": None}
    status, answer = sent(client, "put", "/trials/schedule/", {"every_hours": 6})
    assert (status, answer) == (200, {"every_hours": 6.0, "every_snapshots": None})
    status, answer = sent(client, "put", "/trials/schedule/", {"every_hours": 0})
    assert (status, list(answer)) == (400, ["every_hours"])
    assert sent(client, "put", "/trials/schedule/", {})[1] == {"every_hours": None, "every_snapshots": None}


@pytest.mark.parametrize(
    ("method", "path"), [("put", "/retention/"), ("post", "/trials/"), ("put", "/trials/schedule/")]
)
def test_rest_sets_nothing_without_the_permission(people: dict[str, User], job: Job, method: str, path: str) -> None:
    client = api(people, "viewer")
    assert client.get(f"{API}{path}").status_code == 200
    assert sent(client, method, path, {"ssd": {"keep_newest": 1}})[0] == 403
    assert getattr(Client(), method)(f"{API}{path}", "{}", "application/json").status_code in {401, 403}
    assert not TrialRestore.objects.exists()
