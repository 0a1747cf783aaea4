"""How does one job run on this node: its container, the ranks of the attempt in charge, and what they have reached?

What orders do to containers and ranks happens under one lock of the job (`orders`), under which the situation is read
anew. It is not held while a launcher gets ready or begins: a stop does not queue behind a start. `look` reads what
launcher and ranks have put down and reports what is new; what it shares with the orders is guarded by a second lock
(`lock`) that is never held while waiting for anything.
"""

import logging
import threading
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

from reliability.agent import attempts, jobrecord, processes, standing
from reliability.agent.attempts import EpochTaken, PartReleased
from reliability.agent.changes import LOOK_S, Changes
from reliability.agent.clock import steady
from reliability.agent.container import JobContainer
from reliability.agent.folder import JobFolder
from reliability.agent.hints import HintSocket
from reliability.agent.jobrecord import JobRecord
from reliability.agent.memory_kills import MemoryKills
from reliability.agent.payloads import ContainerPlan, StartPlan
from reliability.agent.program_part import Environment, ProgramPart
from reliability.agent.rankfiles import RankFiles, snapshot_problem
from reliability.errors import RuntimeFailure, StaleEpoch
from reliability.ports import Runtime

ANSWER_LIMIT_S = KILL_LIMIT_S = 2.0  # for a launcher to begin what it was told; then it counts as hung

log = logging.getLogger("stepkeeper.agent")


class LocalJob:
    """This node's part in one job."""

    def __init__(
        self,
        record: JobRecord,
        *,
        node: str,
        runtime: Runtime,
        memory_dir: Path,
        ssd_dir: Path,
        jobs_dir: Path,
        report: Callable[..., None],
    ) -> None:
        self.record = record
        self.folder = JobFolder(memory_dir / record.job)
        self.folder.make()
        self.programs = ProgramPart(ssd_dir, record.job)
        out = self.programs.folder.out
        self.container = JobContainer(runtime, job=record.job, node=node, folder=self.folder.root, programs=out)
        self.begun = 0
        """How often a container or an attempt began here: who saw another number has seen another situation."""
        self.made_at = steady()
        self.lock = threading.RLock()
        self.orders = threading.RLock()
        self._lease: tuple[float, float] | None = None
        self._node = node
        self._jobs_dir = jobs_dir
        self._report_any = report
        self._changes = Changes()
        self.closed = False
        self._hints = HintSocket(self.folder.socket_path)
        self.files = RankFiles(self.folder, record, MemoryKills(lambda: self.container.pid).beside(self.report))
        self._watcher = threading.Thread(target=self._watch, name=f"watch-{record.job}", daemon=True)
        self._watcher.start()

    # What other parts ask

    def report(self, kind: str, body: Mapping[str, Any]) -> None:
        """Report something of this job, with the attempt the node is assigned to now."""
        self._report_any(kind, body, job=self.record.job, epoch=self.record.epoch)

    def status(self) -> dict[str, Any]:
        """Return this job's part of a heartbeat. Reads a few small files and never asks the runtime."""
        with self.lock:
            record = self.record
            training = record.training and self.container.up
            state = "running" if training else "warm" if self.container.up else "none"
            ranks = self.files.ranks() if record.started_epoch == record.epoch else []
            return {"job": record.job, "epoch": record.epoch, "slot": record.slot, "container": state, "ranks": ranks}

    def has_ranks_below(self, epoch: int) -> bool:
        """Whether ranks of an older attempt were started here whose end nobody has confirmed."""
        with self.lock:
            return self.record.unfenced and self.record.started_epoch < epoch

    def save(self) -> None:
        """Keep the record on disk."""
        jobrecord.save(self._jobs_dir, self.record)

    def look(self, restored: Collection[str] = ()) -> None:
        """Read what is new in the job's folder and report it; also the shards, by key, that a restore just brought."""
        with self.lock:
            if self.closed:
                return
            if self.files.look(restored):
                self.save()
        self._changes.tell()

    def close(self, *, remove: bool = False) -> None:
        """Stop watching; with `remove` the job's folder goes too."""
        with self.lock:
            self.closed = True
        self._hints.wake()
        if threading.current_thread() is not self._watcher:
            self._watcher.join(timeout=2.0)
        self._hints.close()
        if remove:
            self.folder.remove()

    def renew_lease(self, until: float, lease_s: float) -> None:
        """Have the launcher know until when the ranks may run without an agent; also while none run."""
        with self.lock:
            if self.closed or self._lease == (until, lease_s):
                return
            standing.write_lease(self.folder, until=until, lease_s=lease_s, rule=self.record.lease_rule)
            self._lease = (until, lease_s)

    # Orders

    def raise_epoch(self, epoch: int) -> bool:
        """Take note of an attempt at once, so that a start of an older one gives way; return whether it is newer."""
        with self.lock:
            raised = self.record.epoch < epoch
            self.record.epoch = max(self.record.epoch, epoch)
            return raised

    def prepare(
        self, plan: ContainerPlan, *, epoch: int, slot: int | None, limit_s: float, attempt: int | None = None
    ) -> str:
        """Have the launcher run and ready; return the image's digest.

        It belongs to no attempt in particular, unless one is named: then a newer one makes it give way.
        """
        digest = self.container.ensure_image(plan.image)
        with self.orders:
            self._check(attempt)
            self.record.released = self.record.adopted = False
            self.programs.make(plan)
            self._ensure_container(plan, epoch=epoch, slot=slot)
        self._wait(lambda: self.folder.ready() is not None, attempt, limit_s, "The launcher did not get ready")
        return digest

    def stop(self, epoch: int, *, grace_s: float) -> list[int]:
        """End all ranks of attempts below `epoch` and return which they were. The launcher stays warm.

        With a grace they get SIGTERM first. Raises FenceUnconfirmed or EngineUnreachable when neither
        killing them nor ending the container could be confirmed (ask again); PartReleased when all of it is gone.
        """
        raised = self.raise_epoch(epoch)
        with self.orders:
            with self.lock:
                self._check(None)
                if self.record.started_epoch >= epoch:
                    return []
                stopped = self._ranks_to_end()
            self._end_ranks(grace_s)
            if raised or not self.record.stopped:
                self._note_end()
        self.look()
        return stopped

    def stop_by_lease(self, why: str, *, epoch: int, still: Callable[[], bool] = lambda: True) -> None:
        """End the ranks of attempt `epoch` because the lease demands it, and report it.

        `still` is asked when nothing else happens to the job any more: it may be in order again. Once begun it is
        finished, also by the next life of the agent.
        """
        with self.orders:
            with self.lock:
                self.files.look()
                if self.closed or self.record.started_epoch != epoch or self.record.stopped:
                    return
                if not (self.record.stopping or still()):
                    return
                self.record.stopping = self.record.stopping or why
                stopped = self._ranks_to_end()
                self.record.exits_reported = sorted({*self.record.exits_reported, *stopped})
                self.save()
            self._end_ranks(0.0)
            self._report_lease(self.record.stopping, stopped)
            self._note_end()

    def start(self, plan: StartPlan, *, epoch: int, limit_s: float) -> dict[int, int]:
        """Start this node's ranks of an attempt and return their process ids as the launcher sees them.

        Raises EpochTaken when an attempt of that number was started before and its ranks cannot be vouched for.
        """
        end = steady() + limit_s
        self.raise_epoch(epoch)
        if not (self.container.up and self.folder.ready()):
            self.prepare(plan.container, epoch=epoch, slot=plan.slot, limit_s=limit_s, attempt=epoch)
        with self.orders:
            self._check(epoch)
            programs = self.programs.begin(plan, epoch, inside=self.container.programs_inside)
            self._begin(plan, epoch, programs)
        ranks = {place.rank for place in plan.ranks}
        self._wait(
            lambda: set(self.folder.pids(epoch) or ()) >= ranks, epoch, end - steady(), "The launcher started no ranks"
        )
        self.folder.forget_epochs_below(epoch)
        return self.folder.pids(epoch) or {}

    def release(self, epoch: int, *, seen: int) -> None:
        """End and remove the container and the memory tier of this job.

        `seen` is `begun` as it was when the order came: what began later is not meant by it. Raises StaleEpoch then.
        """
        with self.orders:
            self._check(epoch)
            if self.begun != seen:
                raise StaleEpoch(f"{self.record.job} was begun anew while its release was under way.")
            self.container.end()
            self.close(remove=True)
            self.programs.leave()
            self.record.released = True
            self._note_end()

    def set_period(self, *, version: int, plan: list[Any]) -> None:
        """Tell the trainer when to take snapshots, unless it knows a newer plan."""
        with self.lock:
            self._check(None)
            standing.write_period(self.folder, version=version, plan=plan)

    def end_container(self, why: str) -> None:
        """End the container of a job that nobody knows; its snapshots stay."""
        log.warning("container ended: node=%s job=%s why=%s", self._node, self.record.job, why)
        with self.orders:
            self.container.end()
            self._note_end()

    # Parts of these

    def _ranks_to_end(self) -> list[int]:
        """The ranks that ran when their end was first asked for: a second try must not find them ended by the first."""
        record = self.record
        if not (record.stopped or record.stopped_ranks):
            gone = set(self.files.exits())
            record.stopped_ranks = [rank for rank in record.ranks if rank not in gone]
        return list(record.stopped_ranks)

    def _end_ranks(self, grace_s: float) -> None:
        """Kill everything below the launcher; where that is not certain to end them, end the whole container.

        A control file of an attempt would reach the launcher only once, and the number of the next attempt must
        stay free for its start; and a launcher that hangs obeys no file. One that has not yet read what it was told
        to start would start it after everything below it was killed.
        """
        info = self.container.running()
        if info is None:
            return
        answered = self._changes.wait_for(lambda: not attempts.unread(self.folder), ANSWER_LIMIT_S)
        if answered and processes.end_below(info.pid, grace_s=grace_s, limit_s=KILL_LIMIT_S):
            return
        log.warning("ranks did not end, ending their container: job=%s epoch=%s", self.record.job, self.record.epoch)
        self.container.end()

    def _note_end(self) -> None:
        """Keep that no rank runs, now that it is certain."""
        with self.lock:
            self.record.end()
            self.save()

    def _report_lease(self, why: str, ranks: list[int]) -> None:
        log.warning("ranks stopped: node=%s job=%s ranks=%s why=%s", self._node, self.record.job, ranks, why)
        for rank in ranks:
            how = {"exit_code": 137, "signal": 9, "tail": f"Stopped by the agent: {why}"}
            self.report("rank_exit", {"rank": rank, **how, "last_step": self.files.last_step(rank)})
        self.report("finding", {"code": "agent-silent", "rank": None, "evidence": why, "count": 1})

    def _begin(self, plan: StartPlan, epoch: int, programs: Environment) -> None:
        """Tell the launcher of the attempt. The record comes first: a run nobody remembers would be taken for another.

        Asked again while its ranks run, an attempt that this record saw begin is left as it is.
        """
        with self.lock:
            self._check(epoch)
            record = self.record
            seen = record.training and record.started_epoch == epoch
            told = attempts.taken(self.folder, epoch)
            if seen and told:
                return
            if told or (not seen and record.started_epoch == epoch):
                raise EpochTaken(f"Epoch {epoch} of {record.job} was started here before.")
            attempts.take_over(record, plan, epoch)
            self.begun += 1
            self.files.begin()
            self.save()
            standing.write_period(self.folder, version=plan.plan_version, plan=plan.period_plan)
            standing.begin_lease(self.folder, self._lease, rule=record.lease_rule)
            inside = self.container.folder_inside
            order = attempts.order_of(plan, job=record.job, epoch=epoch, inside=inside, programs=programs)
            self.folder.write_epoch(epoch, order)

    def _ensure_container(self, plan: ContainerPlan, *, epoch: int, slot: int | None) -> None:
        if self.container.running() is None:
            self._before_cold_start()
        self.container.ensure(plan, epoch=epoch, slot=slot)
        with self.lock:  # both at once: who looked at the container before must not judge this one
            self.container.up, self.container.ordered_end = True, False
            self.begun += 1

    def _before_cold_start(self) -> None:
        """A new launcher must not run again what an older one was told: those ranks died with it."""
        with self.lock:
            if self.record.unfenced:
                self._note_end()
            self.folder.make()
            self.folder.forget_ready()
            if attempts.unread(self.folder):
                self.folder.write_epoch(self.folder.highest_epoch(), attempts.NO_RANKS)

    def _superseded(self, epoch: int | None) -> bool:
        return epoch is not None and self.record.epoch > epoch

    def _check(self, epoch: int | None) -> None:
        if self.closed:
            raise PartReleased(f"The part of {self._node} in {self.record.job} was released meanwhile.")
        if self._superseded(epoch):
            raise StaleEpoch(f"Epoch {epoch} of {self.record.job} was superseded by {self.record.epoch} meanwhile.")

    def _wait(self, done: Callable[[], bool], epoch: int | None, limit_s: float, what: str) -> None:
        def done_or_hopeless() -> bool:
            return done() or self._superseded(epoch) or not self.container.up

        fulfilled = self._changes.wait_for(done_or_hopeless, limit_s)
        self._check(epoch)
        if done():
            return
        if fulfilled:
            raise RuntimeFailure(f"The container of {self.record.job} ended at its start.{self.container.last_words()}")
        raise RuntimeFailure(
            f"{what} within {limit_s:.0f} s.{self.container.last_words()}", hint="Look at the container's output."
        )

    def _watch(self) -> None:
        while not self.closed:
            hints = self._hints.wait(LOOK_S)
            try:
                self.look()
                for hint in hints:
                    if hint.get("t") == "snapshot_problem":
                        self.report("snapshot_problem", snapshot_problem(hint))
            except Exception:
                # The watch over a job must survive whatever a program put into its folder.
                log.exception("looking at the job's folder failed: job=%s", self.record.job)
