"""A job of which a person is asked something, and which trains all the same: it is told by its steps, and watched."""

import pytest

from reliability.models import AttemptEnd, Failover, Finding, Incident, Job
from reliability.selectors import restarts, watch_pages
from reliability.selectors.progress import job_lines
from reliability.services import clock, incidents
from tests.services.test_watching import eight_ranks, hangs, pass_seconds, stop_stepping, until_hang
from tests.services.world import World

pytestmark = [pytest.mark.django_db, pytest.mark.slow]


def _asked(world: World, code: str = "xid-79") -> Job:
    """Return a job whose recovery waits for approval while every rank goes on."""
    job = eight_ranks(world, approval="manual")
    incidents.note(world.agents["n1"].node, code, job=job, epoch=job.epoch, evidence="seen in the kernel log")
    incidents.judge(job.pk)
    job.refresh_from_db()
    assert job.state == "waiting"
    return job


def _told(job: Job) -> tuple[bool, str, list[int]]:
    """Return whether the page calls it training, how it is watched, and which attempts it says have ended."""
    now = clock.now()
    ends = restarts.restarts(job, now=now).ends
    return (
        job_lines([job], now=now)[0].training,
        watch_pages.watching_of(job, now=now).state,
        [each.number for each in ends],
    )


def test_what_waits_for_approval_and_trains_on_is_told_by_its_steps(world: World) -> None:
    job = _asked(world)
    AttemptEnd.objects.update_or_create(job=job, number=1, defaults={"at": clock.now(), "why": "asked"})
    pass_seconds(world, 4, 2.0)
    assert _told(job) == (True, "going", [])
    world.agents["n2"].rank_dies(5, 139)
    world.tick()
    job.refresh_from_db()
    assert _told(job) == (False, "off", [1]), "a rank has ended, and the attempt with it"


def test_a_hang_is_found_while_nobody_decides_and_joins_the_incident(world: World) -> None:
    job = _asked(world)
    pass_seconds(world, 4, 2.0)
    stop_stepping(world)
    hang = until_hang(world)
    assert hang.incident == Incident.objects.get(job=job, closed_at=None)
    assert Failover.objects.filter(job=job, ended_at=None).count() == 1
    assert watch_pages.watching_of(job, now=clock.now()).state == "hang"
    pass_seconds(world, 20, 2.0)
    assert len(hangs()) == 1, "once for each episode"


def test_what_stands_still_since_it_was_asked_is_the_consequence_and_no_second_fault(world: World) -> None:
    job = eight_ranks(world, approval="manual")
    stop_stepping(world)
    incidents.note(world.agents["n1"].node, "xid-79", job=job, epoch=job.epoch, evidence="seen in the kernel log")
    incidents.judge(job.pk)
    pass_seconds(world, 60, 2.0)
    job.refresh_from_db()
    assert job.state == "waiting"
    assert not Finding.objects.filter(code__startswith="hang").exists()
    assert _told(job)[:2] == (False, "off")
