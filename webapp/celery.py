"""The Celery app of the control plane: its queues, its beat, and how it bears broker trouble."""

import os

from celery import Celery, signals

from webapp import threads
from webapp.ticking import Every

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "webapp.settings")

app = Celery("stepkeeper")


def configure() -> None:
    """Take the settings over. Messages are JSON only; results live in the database, not in the broker."""
    from django.conf import settings  # noqa: PLC0415 (read when the app is configured, not when imported)

    app.conf.update(
        broker_url=settings.BROKER_URL,
        broker_connection_retry_on_startup=True,
        broker_transport_options={
            "visibility_timeout": 120,
            "unacked_restore_interval": 5,
            "unacked_restore_throttle": 1,
            "priority_steps": [0],
            "socket_keepalive": True,
            "health_check_interval": 10,
        },
        accept_content=["json"],
        task_serializer="json",
        task_ignore_result=True,
        task_default_queue="controller",
        task_acks_late=True,
        task_reject_on_worker_lost=True,
        task_acks_on_failure_or_timeout=True,
        task_time_limit=100,
        worker_prefetch_multiplier=1,
        worker_cancel_long_running_tasks_on_connection_loss=True,
        worker_hijack_root_logger=False,
        timezone="UTC",
        beat_scheduler="webapp.ticking:SteadyScheduler",
        beat_schedule={
            "reconcile": {
                "task": "controller.reconcile",
                "schedule": Every(settings.RECONCILE_S),
                "options": {"expires": 10 * settings.RECONCILE_S},
            },
            "retain": {
                "task": "controller.retain",
                "schedule": Every(settings.RETAIN_S),
                "options": {"expires": 10 * settings.RETAIN_S},
            },
            "replan": {
                "task": "controller.replan",
                "schedule": Every(settings.REPLAN_S),
                "options": {"expires": settings.REPLAN_S},
            },
        },
    )
    app.autodiscover_tasks(["reliability"])


@signals.worker_init.connect
def begin_work(**_sent: object) -> None:
    """Prepare the process of a worker."""
    threads.take_turns_often()


configure()
