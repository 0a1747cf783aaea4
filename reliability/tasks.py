"""Celery's way into the services: a task fetches nothing, decides nothing, and calls one service."""

from celery import shared_task

from reliability.services import (
    clock,
    failovers,
    jobs,
    plans,
    reading,
    reconcile,
    reports,
    retention,
    trial_restores,
)


@shared_task(name="controller.reconcile")
def run_reconcile() -> None:
    """Look at everything that is open."""
    reconcile.run_due(clock.now())


@shared_task(name="controller.replan")
def replan() -> None:
    """Plan jobs anew where a person allowed it."""
    plans.replan_all(clock.now())


@shared_task(name="controller.retain")
def retain() -> None:
    """Decide which snapshots may go, and have those tried whose time has come."""
    now = clock.now()
    retention.decide_all(now)
    trial_restores.begin_due(now)


@shared_task(name="controller.process_reports")
def process_reports() -> None:
    """Read the reports that came in."""
    reports.process_new()


@shared_task(name="controller.advance")
def advance(failover_id: int) -> None:
    """Take a recovery as far as it goes."""
    failovers.advance(failover_id)


@shared_task(name="controller.drive_job")
def drive_job(job_id: int) -> None:
    """Do the next thing a job needs."""
    jobs.drive(job_id)


@shared_task(name="controller.drive_validation")
def drive_validation(node_id: int) -> None:
    """Go on with the checks of a node."""
    reading.check(node_id)
