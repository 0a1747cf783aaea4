"""Which jobs have a part on this node?"""

import logging
import re
import threading
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

from reliability.agent import attempts, container, floors, jobrecord
from reliability.agent.clock import steady
from reliability.agent.floors import Floors
from reliability.agent.folder import JobFolder
from reliability.agent.holding import Hold
from reliability.agent.jobrecord import JobRecord
from reliability.agent.localjob import LocalJob
from reliability.domain.snapshots import Tier
from reliability.errors import ContainerMissing, InvalidInput, ReliabilityError, TierConflict
from reliability.ports import LABEL_EPOCH, LABEL_JOB, ContainerInfo, ContainerState, Runtime

_JOB = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,79}")
HEARD_MARGIN_S = 1.0
"""A heartbeat is put together shortly before it is sent."""

log = logging.getLogger("stepkeeper.agent")


class LocalJobs:
    """The parts of jobs on this node, by job name; adopted again after a restart of the agent."""

    def __init__(
        self,
        *,
        node: str,
        runtime: Runtime,
        memory_dir: Path,
        ssd_dir: Path,
        jobs_dir: Path,
        report: Callable[..., None],
        who: str = "",
    ) -> None:
        """`who`: what another agent of this machine that wants a job of the same name is told of this one."""
        self._node = node
        self._who = who or f"node {node}"
        self._holds: dict[str, Hold] = {}
        self._runtime = runtime
        self._memory_dir = memory_dir
        self._ssd_dir = ssd_dir
        self._jobs_dir = jobs_dir
        self._report = report
        self._lock = threading.Lock()
        self._jobs: dict[str, LocalJob] = {}
        self._epochs: dict[str, int] = {}
        self._floors: dict[str, Floors] = {}
        for record in jobrecord.load_all(jobs_dir):
            self._epochs[record.job] = record.epoch
            if not record.released:
                try:
                    self._jobs[record.job] = self._make(record)
                except TierConflict as error:
                    log.error("part not taken up: node=%s job=%s reason=%s", node, record.job, error.message)
                    self._report("snapshot_problem", _nowhere(error), job=record.job, epoch=record.epoch)

    def all(self) -> list[LocalJob]:
        """Return all parts."""
        with self._lock:
            return list(self._jobs.values())

    def find(self, job: str) -> LocalJob | None:
        """Return this node's part in a job, or None."""
        with self._lock:
            return self._jobs.get(job)

    def get(self, job: str) -> LocalJob:
        """Return this node's part in a job, made when it is new."""
        if not _JOB.fullmatch(job):
            raise InvalidInput("job", f"{job!r} cannot name a job", hint="Letters, digits, '-' and '_', at most 80.")
        with self._lock:
            if job not in self._jobs:
                record = self._kept(job) or attempts.recovered(job, self._folder(job))
                self._jobs[job] = self._make(record)
            return self._jobs[job]

    def here(self, job: str) -> LocalJob | None:
        """Return this node's part in a job also when only its container or folder tells of it; None when nothing does.

        Raises EngineUnreachable when that cannot be told.
        """
        part = self.find(job)
        if part is not None or not _JOB.fullmatch(job):
            return part
        name = container.name_of(job, self._node)
        try:
            self._runtime.inspect(name)
        except ContainerMissing:
            if not self._folder(job).root.exists():
                return None
        return self.get(job)

    def adopt(self, info: ContainerInfo) -> None:
        """Take in a running container of this node that no part knows of, so that the server hears and judges it."""
        job = info.labels.get(LABEL_JOB, "")
        ours = _JOB.fullmatch(job) and info.name == container.name_of(job, self._node)
        if not ours or info.state is not ContainerState.RUNNING or self.find(job):
            return
        kept = self._kept(job)
        part = self.get(job)
        log.warning("container found that no part knew of: node=%s job=%s epoch=%s", self._node, job, part.record.epoch)
        if kept is not None and kept.released:
            part.end_container("it was released here")
            self.forget(job)
        else:
            part.container.up, part.record.adopted = True, True

    def judge_adopted(self, known: Collection[str], *, heard_at: float) -> None:
        """End the containers that were found and whose job the server does not know.

        `known` are the jobs named in the answer to a heartbeat that was sent at `heard_at`.
        """
        for part in self.all():
            if part.record.adopted and part.made_at < heard_at - HEARD_MARGIN_S:
                part.record.adopted = False
                if part.record.job not in known:
                    threading.Thread(target=self._end_unknown, args=(part,), name="unknown", daemon=True).start()

    def _end_unknown(self, part: LocalJob) -> None:
        try:
            part.end_container("the server knows no such job")
        except ReliabilityError as error:
            log.error("container not ended: job=%s reason=%s", part.record.job, error.message)
            part.record.adopted = True  # to be judged again

    def release(self, part: LocalJob, epoch: int, *, seen: int) -> None:
        """Release a part and forget it in one: whoever waited for it finds it closed and asks for a new one."""
        with part.orders:
            try:
                part.release(epoch, seen=seen)
            finally:
                if part.closed:
                    self.forget(part.record.job)

    def forget(self, job: str) -> None:
        """Stop keeping a part that was released."""
        with self._lock:
            part = self._jobs.pop(job, None)
            if part is not None:
                self._epochs[job] = part.record.epoch
                self._holds[job].release()

    def epoch(self, job: str) -> int:
        """Return the newest attempt known of a job, also after its release: its copies still move on."""
        part = self.find(job)
        return part.record.epoch if part else self._epochs.get(job, 0)

    def by_container(self, name: str) -> LocalJob | None:
        """Return the part that a container name belongs to."""
        return next((part for part in self.all() if part.container.name == name), None)

    def learn_floors(self, answer: Mapping[str, Any]) -> None:
        """Keep for the movers which step of each job the server says is safe; a job it names without one has none."""
        ssd, storage = _whole_numbers(answer.get("ssd_floor")), _whole_numbers(answer.get("storage_floor"))
        going = answer.get("may_go")
        named = going if isinstance(going, Mapping) else {}
        for job, epoch in _whole_numbers(answer.get("epochs")).items():
            may_go = floors.listed(named.get(job))
            safe = Floors(epoch=epoch, ssd=ssd.get(job), storage=storage.get(job), may_go=may_go, said_at=steady())
            kept = self._floors.get(job)
            if not self._is_known(job) or (kept is not None and kept.stands(safe)):
                continue
            try:
                floors.save(self._jobs_dir, job, safe)
            except OSError as error:
                log.warning("floors not kept, nothing is removed: job=%s reason=%s", job, error)
            else:
                self._floors[job] = safe

    def _is_known(self, job: str) -> bool:
        """Whether this node has, or had, a part in a job: copies of one that was released lie here still."""
        with self._lock:
            return job in self._jobs or job in self._epochs

    def containers(self) -> list[dict[str, Any]]:
        """Return the containers of jobs on this node, as a registration lists them."""
        try:
            found = self._runtime.list({LABEL_JOB: ""})
        except ReliabilityError as error:
            log.warning("containers unknown: node=%s reason=%s", self._node, error.message)
            return []
        return [
            {
                "job": info.labels.get(LABEL_JOB, ""),
                "epoch": self._epoch_of(info.labels),
                "name": info.name,
                "state": info.state,
            }
            for info in found
        ]

    def _epoch_of(self, labels: Any) -> int:
        part = self.find(labels.get(LABEL_JOB, ""))
        label = labels.get(LABEL_EPOCH, "0")
        return part.record.epoch if part else int(label) if label.isdecimal() else 0

    def close(self) -> None:
        """Stop watching all parts; their containers are left as they are."""
        for part in self.all():
            part.close()
        for hold in self._holds.values():
            hold.release()

    def tell_asked(self) -> None:
        """Report when another agent of this machine was to work for a job of the same name in the same folder."""
        for part in self.all():
            asked = self._holds[part.record.job].asked()
            if asked is not None:
                part.report("snapshot_problem", _nowhere(asked))

    def _kept(self, job: str) -> JobRecord | None:
        return next((record for record in jobrecord.load_all(self._jobs_dir) if record.job == job), None)

    def _folder(self, job: str) -> JobFolder:
        return JobFolder(self._memory_dir / job)

    def _make(self, record: JobRecord) -> LocalJob:
        """Return the part of a job. Raises TierConflict when another agent of this machine has one of this name."""
        hold = self._holds.setdefault(record.job, Hold(self._memory_dir, record.job, self._who))
        hold.take()
        return LocalJob(
            record,
            node=self._node,
            runtime=self._runtime,
            memory_dir=self._memory_dir,
            ssd_dir=self._ssd_dir,
            jobs_dir=self._jobs_dir,
            report=self._report,
        )


def _nowhere(error: TierConflict) -> dict[str, Any]:
    return {"snapshot_epoch": None, "step": None, "rank": None, "tier": Tier.MEMORY, **error.detail}


def _whole_numbers(value: object) -> dict[str, int]:
    if not isinstance(value, Mapping):
        return {}
    return {str(key): number for key, number in value.items() if isinstance(number, int)}
