"""Which ranks of this node must end although no order says so, and is their end confirmed?

Looked at again and again, from what is and not from what was tried: as long as ranks of an older attempt may run, or
the lease demands the end of the present ones, it is tried again. Each job has one try under way at a time.
"""

import logging
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from reliability.agent import background, lease
from reliability.agent.clock import steady
from reliability.agent.jobs import LocalJobs
from reliability.agent.localjob import LocalJob
from reliability.domain.policy import LeaseRule
from reliability.errors import ReliabilityError

RETRY_S = 1.0

log = logging.getLogger("stepkeeper.agent")


class Fences:
    """Ends ranks by epoch and by lease.

    `newest` tells the highest epoch known of a job; `supersede` ends the ranks of older ones; `answered_at` and
    `lease_s` tell the lease, `lease_s` None before this node ever joined; `report` sends a report.
    """

    def __init__(
        self,
        jobs: LocalJobs,
        *,
        newest: Callable[[str], int],
        supersede: Callable[[str, int], None],
        answered_at: Callable[[], float],
        lease_s: Callable[[], float | None],
        report: Callable[..., None],
    ) -> None:
        self._jobs = jobs
        self._newest = newest
        self._supersede = supersede
        self._answered_at = answered_at
        self._lease_s = lease_s
        self._report = report
        self._pool = ThreadPoolExecutor(max_workers=8, thread_name_prefix="fence")
        self._lock = threading.Lock()
        self._busy: set[str] = set()
        self._not_before: dict[str, float] = {}
        self._told: set[tuple[str, int, str]] = set()
        self._unwritten: set[str] = set()

    def look(self) -> None:
        """Renew all leases, and begin what is due."""
        for part in self._jobs.all():
            self._renew(part)
            self.look_at(part)

    def look_at(self, part: LocalJob) -> None:
        """Begin what is due for one job, unless it is under way or has just failed."""
        newest = max(part.record.epoch, self._newest(part.record.job))
        if part.record.epoch < newest or part.has_ranks_below(newest):
            self._begin(part, lambda: self._supersede(part.record.job, newest))
        elif part.record.stopping:
            why, epoch = part.record.stopping, part.record.started_epoch
            self._begin(part, lambda: part.stop_by_lease(why, epoch=epoch))
        elif why := self._lease_over(part):
            epoch = part.record.started_epoch
            self._begin(part, lambda: part.stop_by_lease(why, epoch=epoch, still=lambda: bool(self._lease_over(part))))

    def end_all(self, why: str) -> None:
        """End all ranks of this node, whatever their lease says: this agent gives its name up."""
        for part in self._jobs.all():
            if part.record.unfenced:
                self._try(part, partial(part.stop_by_lease, why, epoch=part.record.started_epoch))

    def stop(self) -> None:
        """Begin nothing more."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _renew(self, part: LocalJob) -> None:
        """A launcher that cannot be told of a renewal ends its ranks by the last one it knows."""
        lease_s = self._lease_s()
        if lease_s is None:
            return
        try:
            part.renew_lease(self._answered_at() + lease_s, lease_s)
            self._unwritten.discard(part.record.job)
        except OSError as error:
            if part.record.job not in self._unwritten:
                log.warning("lease not written: job=%s reason=%s", part.record.job, error)
            self._unwritten.add(part.record.job)

    def _lease_over(self, part: LocalJob) -> str:
        """Return why the lease demands the end of a job's ranks, '' when it does not."""
        lease_s = self._lease_s()
        unanswered_s = steady() - self._answered_at()
        if lease_s is None or unanswered_s <= lease_s or not part.record.training:
            return ""
        part.look()  # this process may have been frozen: what the ranks did meanwhile counts
        rule = LeaseRule(part.record.lease_rule)
        stepless_s = steady() - part.files.last_step_at
        stop = lease.must_stop(
            rule,
            unanswered_s=unanswered_s,
            lease_s=lease_s,
            stepless_s=stepless_s,
            step_s=part.files.longest_step_s(),
            stepped=part.files.stepped,
        )
        if not stop:
            return ""
        why = f"no heartbeat was answered for {unanswered_s:.1f} s (lease {lease_s:g} s, rule {rule}"
        return why + (f", no step for {stepless_s:.1f} s)." if rule is LeaseRule.STOP_WHEN_STUCK else ").")

    def _begin(self, part: LocalJob, work: Callable[[], None]) -> None:
        job = part.record.job
        with self._lock:
            if job in self._busy or steady() < self._not_before.get(job, 0.0):
                return
            self._busy.add(job)
        try:
            background.submit(self._pool, f"ending ranks of {job}", self._do, part, work)
        except RuntimeError:
            log.info("ranks not ended, the agent is ending: job=%s", job)

    def _do(self, part: LocalJob, work: Callable[[], None]) -> None:
        job = part.record.job
        done = False
        try:
            done = self._try(part, work)
        finally:
            with self._lock:
                self._busy.discard(job)
                self._not_before[job] = 0.0 if done else steady() + RETRY_S

    def _try(self, part: LocalJob, work: Callable[[], None]) -> bool:
        job, epoch = part.record.job, max(part.record.epoch, self._newest(part.record.job))
        try:
            work()
        except ReliabilityError as error:
            if (job, epoch, error.code) not in self._told:
                log.error("ranks not ended, trying again: job=%s epoch=%s reason=%s", job, epoch, error.message)
                detail = {"code": error.code, "rank": None, "evidence": error.message, "count": 1}
                self._report("finding", detail, job=job, epoch=epoch)
            self._told.add((job, epoch, error.code))
            return False
        return True
