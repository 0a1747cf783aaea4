"""Which jobs have a part on this node?"""

import logging
import re
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from reliability.agent import jobrecord
from reliability.agent.jobrecord import JobRecord
from reliability.agent.localjob import LocalJob
from reliability.errors import InvalidInput, ReliabilityError
from reliability.ports import LABEL_EPOCH, LABEL_JOB, Runtime

_JOB = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,79}")

log = logging.getLogger("stepkeeper.agent")


class LocalJobs:
    """The parts of jobs on this node, by job name; adopted again after a restart of the agent."""

    def __init__(
        self, *, node: str, runtime: Runtime, memory_dir: Path, jobs_dir: Path, report: Callable[..., None]
    ) -> None:
        self._node = node
        self._runtime = runtime
        self._memory_dir = memory_dir
        self._jobs_dir = jobs_dir
        self._report = report
        self._lock = threading.Lock()
        self._jobs: dict[str, LocalJob] = {}
        self._epochs: dict[str, int] = {}
        for record in jobrecord.load_all(jobs_dir):
            self._epochs[record.job] = record.epoch
            if not record.released:
                self._jobs[record.job] = self._make(record)

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
                known = {record.job: record for record in jobrecord.load_all(self._jobs_dir)}
                self._jobs[job] = self._make(known.get(job) or JobRecord(job=job))
            return self._jobs[job]

    def forget(self, job: str) -> None:
        """Stop keeping a part that was released."""
        with self._lock:
            part = self._jobs.pop(job, None)
            if part is not None:
                self._epochs[job] = part.record.epoch

    def epoch(self, job: str) -> int:
        """Return the newest attempt known of a job, also after its release: its copies still move on."""
        part = self.find(job)
        return part.record.epoch if part else self._epochs.get(job, 0)

    def by_container(self, name: str) -> LocalJob | None:
        """Return the part that a container name belongs to."""
        return next((part for part in self.all() if part.name == name), None)

    def learn_floors(self, floors: dict[str, int]) -> None:
        """Keep the newest step complete on storage of each job, for the movers' retention."""
        for job, step in floors.items():
            part = self.find(job)
            if part and part.record.storage_floor != step:
                with part.lock:
                    part.record.storage_floor = step
                    part.save()

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

    def _make(self, record: JobRecord) -> LocalJob:
        return LocalJob(
            record,
            node=self._node,
            runtime=self._runtime,
            memory_dir=self._memory_dir,
            jobs_dir=self._jobs_dir,
            report=self._report,
        )
