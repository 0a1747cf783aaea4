"""How training gets on, on the page of a job and over REST: the rule, the suspect, the spread of the ranks."""

from datetime import datetime, timedelta
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from reliability.models import Job, Rank, ServiceBeat, Watch
from reliability.selectors import core
from tests.web import rows

PAGE = "/jobs/lm/"
REST = "/api/v1/jobs/lm/progress/"


@pytest.fixture
def job(db: None) -> Job:
    """A job of four ranks on two nodes that are heard now, each in step 300 since a moment."""
    now = timezone.now()
    ServiceBeat.objects.create(
        name=core.INGEST_BEAT, started_at=now - timedelta(hours=1), beat_at=now + timedelta(seconds=60)
    )
    places = [rows.node(name) for name in ("n1", "n2", "n3", "n4")]
    for place in places:
        place.last_seen_at = now + timedelta(seconds=30)
        place.save()
    job = rows.job("lm", places, state="running", epoch=2)
    for rank in Rank.objects.all():
        still(rank, 0.5, now)
    return job


def still(rank: Rank, seconds: float, now: datetime, **told: Any) -> None:
    pace = {"median_s": 2.0, "mad_s": 0.05, "longest_s": 2.4, "timed": 300}
    rank.step, rank.epoch, rank.state, rank.moved_at = 300, 2, "running", now - timedelta(seconds=seconds)
    rank.phase = told.pop("phase", "training")
    rank.watched = {**pace, "compute_s": 1.5, **told}
    rank.save()


def test_the_rule_is_stated_while_nothing_hangs(client_of: Any, job: Job) -> None:
    text = client_of("viewer").get(PAGE).content.decode()
    assert "No hang: no step for" in text
    assert "= the least of 30 s." in text


def test_a_hang_names_its_rank_with_the_limit_that_was_announced(client_of: Any, job: Job) -> None:
    now = timezone.now()
    for rank in Rank.objects.order_by("rank"):
        told = {"phase": "eval", "phase_limit_s": 60.0} if rank.rank == 2 else {}
        still(rank, 61.0, now, **told)
    answer = client_of("viewer").get(REST).json()
    assert answer["state"] == "hang"
    assert "limit 60 s = what the program announced for eval" in answer["sentence"]
    assert "Suspect: Rank 2 on n3. Rank 2 is in eval, the others in training." in answer["suspicion"]
    assert [each["limit_s"] for each in answer["ranks"]] == [30.0, 30.0, 60.0, 30.0]
    text = client_of("viewer").get(PAGE).content.decode()
    assert "It hangs: no step for" in text
    assert 'role="status"' in text


def test_the_spread_of_the_ranks_and_a_straggler_are_shown(client_of: Any, job: Job) -> None:
    still(Rank.objects.get(rank=3), 0.5, timezone.now(), compute_s=2.25)
    told = {"3": {"key": "k", "at": 0, "evidence": "Rank 3 computes 2.250 s."}}
    Watch.objects.create(job=job, epoch=2, stragglers=told, slow={"evidence": "A step takes longer."})
    text = client_of("viewer").get(PAGE).content.decode()
    assert "Rank 3 computes 2.250 s. Nothing is moved because of it." in text
    assert "A step takes longer." in text
    assert "2.250 s" in text
    assert "median of its role 1.500 s" in text
    answer = client_of("viewer").get(REST).json()
    assert [each["straggler"] for each in answer["ranks"]] == [False, False, False, True]
    assert answer["slow"] == "A step takes longer."


def test_what_is_not_known_is_said_to_be_unknown(client_of: Any, job: Job) -> None:
    client = client_of("viewer")
    Rank.objects.filter(rank=1).update(moved_at=None)
    assert client.get(REST).json()["sentence"].startswith("Not known: nothing is heard now of the ranks on n2")
    ServiceBeat.objects.all().delete()
    assert client.get(REST).json()["state"] == "unknown"
    Job.objects.update(state="recovering")
    assert client.get(REST).json()["state"] == "off"
    assert client.get(PAGE).status_code == 200
    Rank.objects.update(step=None, watched={})
    Job.objects.update(state="running", mode="plain")
    assert client.get(PAGE).status_code == 200
    assert Client().get(REST).status_code == 401
