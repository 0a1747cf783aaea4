"""Restarts on the page of a job and over REST: what is left, how attempts ended, the batch to be left out."""

from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from reliability.models import BatchSkip, Epoch, Job, Rank
from tests.web import rows

PAGE = "/jobs/lm/"


@pytest.fixture
def offered(db: None) -> BatchSkip:
    """An offer of a job that waits for a person."""
    places = [rows.node("n1"), rows.node("n2")]
    job = rows.job("lm", places, state="waiting", epoch=2, restart_budget=4)
    Epoch.objects.create(job=job, number=2, reason="again", started_at=job.started_at)
    Rank.objects.filter(job=job, rank=1).update(state="failed", exit_code=1)
    return rows.skip(job, rows.incident(job, places[1]))


def test_the_page_tells_what_is_left_and_how_each_attempt_ended(client_of: Any, offered: BatchSkip) -> None:
    text = client_of("viewer").get(PAGE).content.decode()
    assert "3 of 4 left" in text
    assert "application/exit-code" in text
    assert text.count("exit-1 <span") == 2
    assert "Only an approver can decide." in text
    assert "Leave it out" not in text


def test_an_approver_leaves_the_batch_out_once_and_the_job_is_started_again(client_of: Any, offered: BatchSkip) -> None:
    client = client_of("approver")
    text = client.get(PAGE).content.decode()
    assert "Leave out the batch of step 1\u202f241 on all ranks?" in text
    assert f'name="digest" value="{offered.digest}"' in text
    approve = reverse("skip-approve", args=["lm", offered.pk])
    wrong = client.post(approve, {"digest": "0" * 64}, follow=True)
    assert "has gone on since this was shown" in wrong.content.decode()
    good = client.post(approve, {"digest": offered.digest, "note": "known bad"}, follow=True)
    assert "All ranks leave out the batch of step 1241" in good.content.decode()
    again = client.post(approve, {"digest": offered.digest}, follow=True)
    assert "left out by approver" in again.content.decode()
    offered.refresh_from_db()
    assert (offered.state, offered.decided_by, offered.note) == ("approved", "approver", "known bad")
    assert Job.objects.get().failovers.count() == 1


def test_an_offer_of_another_job_is_not_found_under_this_name(client_of: Any, offered: BatchSkip) -> None:
    answer = client_of("approver").post(reverse("skip-approve", args=["other", offered.pk]), {"digest": offered.digest})
    assert answer.status_code == 404


def test_a_program_that_does_not_ask_is_told_of(client_of: Any, offered: BatchSkip) -> None:
    BatchSkip.objects.update(state="approved")
    Epoch.objects.filter(number=2).update(skip_steps=[1241], skip_read_by=[0])
    Rank.objects.update(first_step_epoch=2)
    text = client_of("viewer").get(PAGE).content.decode()
    assert "<b>The program has not read it</b> on rank 1" in text


def test_programs_read_the_same_over_rest(client_of: Any, people: Any, offered: BatchSkip) -> None:
    client: Client = client_of("viewer")
    body = client.get("/api/v1/jobs/lm/restarts/").json()
    assert body["causes"] == [{"cause": "application/exit-code", "spent": 1, "left": 3}]
    assert [each["number"] for each in body["attempts"]] == [2, 1]
    assert body["skips"][0]["step"] == 1241
    assert (body["budget"], body["waits_until"], body["skipping"]["steps"]) == (4, None, [])
    assert Client().get("/api/v1/jobs/lm/restarts/").status_code == 401
