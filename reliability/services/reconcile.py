"""What is open, and what does it need? Looks at everything a few times a minute and drives it on.

Nothing depends on a message having arrived. Each piece runs behind its own boundary, so that one poison row stops
nothing else, and under a lease, so that two controllers do not do the same work side by side. Should both run after
all, row locks and keys keep it harmless.
"""

import os
import socket
import threading
import uuid
from collections.abc import Callable
from datetime import datetime, timedelta

from django.conf import settings
from django.db import IntegrityError, transaction
from django.db.models import Q

from reliability.domain.failover import OPEN
from reliability.models import Failover, Job, Lease, ServiceBeat
from reliability.selectors import fault_codes
from reliability.services import (
    boundary,
    clock,
    decisions,
    drills,
    holds,
    incidents,
    jobs,
    keeping,
    limits,
    losses,
    node_incidents,
    orders,
    partners,
    plans,
    quiet_incidents,
    reading,
    reports,
    rooms,
    trial_restores,
    turns,
    validations,
    watching,
)
from reliability.services.failovers import advance

LEASE_S = 20.0
LEASE_NAME = "reconcile"
READING_S = 2.0
_done: dict[str, datetime] = {}
"""When this process did each piece last."""
_ME = f"{uuid.uuid4().hex[:8]}:{socket.gethostname()}"


def run_due(now: datetime) -> bool:
    """Drive everything on, unless that was done a moment ago: of the rounds that wait, one does the work of all."""
    every_s = settings.RECONCILE_S / 2
    if not turns.take(LEASE_NAME, now, every_s) or not run(now):
        return False
    turns.count_from(LEASE_NAME, clock.now() - timedelta(seconds=0.8 * every_s))  # those that wait come at once
    return True


def run(now: datetime) -> bool:
    """Drive everything on once. Returns False when another controller is doing it."""
    if not _take_lease(now):
        return False
    try:
        boundary.apart("Taking over limits", limits.refresh)
        with fault_codes.held():
            for what, piece, every_s in PIECES:
                if _is_due(what, now, every_s):
                    boundary.apart(what, piece, now)
    finally:
        Lease.objects.filter(name=LEASE_NAME, holder=_holder()).update(until=now)
    return True


def _is_due(what: str, now: datetime, every_s: float) -> bool:
    """Return whether a piece is done in this round: what nobody waits for is not asked for each second.

    Kept by each controller for itself: one that starts does everything at once.
    """
    last = _done.get(what)
    if last is not None and timedelta(0) <= now - last < timedelta(seconds=every_s):
        return False
    _done[what] = now
    return True


def _holder() -> str:
    """This thread of this process and no other, also after a fork."""
    return f"{_ME[:48]}:{os.getpid()}:{threading.get_ident()}"[:80]


def _take_lease(now: datetime) -> bool:
    values = {"holder": _holder(), "until": now + timedelta(seconds=LEASE_S)}
    over = Q(until__lte=now) | Q(until__gt=now + timedelta(seconds=2 * LEASE_S))  # or the clock was set back since
    if Lease.objects.filter(over | Q(holder=_holder()), name=LEASE_NAME).update(**values):
        return True
    if Lease.objects.filter(name=LEASE_NAME).exists():
        return False
    try:
        with transaction.atomic():
            Lease.objects.create(name=LEASE_NAME, **values)
    except IntegrityError:
        return False
    return True


def _expire_orders(now: datetime) -> None:
    orders.expire(now)
    holds.expire(now)


def _process_reports(now: datetime) -> None:
    reports.process_new(READING_S)  # a flood is read by its own task: the rest of a round must not wait for it


def _judge(now: datetime) -> None:
    for job_id in incidents.undecided():
        boundary.apart("Judging a job", reading.judge, job_id, job=job_id)
    for node_id in incidents.undecided_nodes():
        boundary.apart("Judging a node", node_incidents.judge_node, node_id, node=node_id)


def _drive_jobs(now: datetime) -> None:
    for job_id in jobs.open_jobs():
        boundary.apart("Driving a job", jobs.drive, job_id, job=job_id)
    for job in Job.objects.filter(state__in=(Job.State.STARTING, Job.State.RUNNING)):
        boundary.apart("Warming standbys", jobs.warm_standbys, job, job=job.pk)


def _advance(now: datetime) -> None:
    for failover_id in Failover.objects.filter(state__in=OPEN).order_by("pk").values_list("pk", flat=True):
        boundary.apart("Advancing a recovery", advance, failover_id, failover=failover_id)


def _validate(now: datetime) -> None:
    for node_id in validations.running_nodes():
        boundary.apart("Checking a node", reading.check, node_id, node=node_id)
    if settings.VALIDATE_STANDBYS:
        node = validations.due(now)
        if node is not None:
            validations.begin(node)


def _drills(now: datetime) -> None:
    for drill_id in drills.running():
        boundary.apart("Closing a drill", drills.drive, drill_id, now, drill=drill_id)


def _trials(now: datetime) -> None:
    for trial_id in trial_restores.running():
        boundary.apart("Closing a trial restore", trial_restores.drive, trial_id, trial=trial_id)


def _verdicts(now: datetime) -> None:
    decisions.look(now)


def _forget(now: datetime) -> None:
    """Once a minute, whichever controller comes first."""
    if not ServiceBeat.objects.filter(name="forgetting", beat_at__gt=now - timedelta(seconds=60)).exists():
        ServiceBeat.objects.update_or_create(name="forgetting", defaults={"started_at": now, "beat_at": now})
        keeping.forget_old(now)


EACH_ROUND, SELDOM_S = 0.0, 4.0
PIECES: tuple[tuple[str, Callable[[datetime], None], float], ...] = (
    ("Expiring orders and holds", _expire_orders, EACH_ROUND),
    ("Reading reports", _process_reports, EACH_ROUND),
    ("Looking for lost nodes", losses.look, EACH_ROUND),
    ("Looking for missing containers", losses.missing_containers, SELDOM_S),
    ("Watching progress", watching.look, EACH_ROUND),
    ("Judging findings", _judge, EACH_ROUND),
    ("Closing incidents that are quiet", quiet_incidents.close_quiet, SELDOM_S),
    ("Driving jobs", _drive_jobs, EACH_ROUND),
    ("Advancing recoveries", _advance, EACH_ROUND),
    ("Checking standbys", _validate, EACH_ROUND),
    ("Following plans", plans.follow_all, SELDOM_S),
    ("Pairing partners", partners.keep_all, SELDOM_S),
    ("Closing drills", _drills, EACH_ROUND),
    ("Closing trial restores", _trials, EACH_ROUND),
    ("Looking for tiers that run full", rooms.look, SELDOM_S),
    ("Asking what decisions came to", _verdicts, SELDOM_S),
    ("Forgetting old records", _forget, SELDOM_S),
)
"""What one round does, in this order, and how many seconds lie between two times that each is done."""
