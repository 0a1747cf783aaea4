"""How does one job run on this node: its container, the ranks of the attempt in charge, and what they have reached?

Orders write files for the launcher and wait for its answer; `look` reads what launcher and ranks have put down and
reports what is new. Both may run at the same time; what they share is guarded by one lock that is never held while
waiting for anything.
"""

import logging
import math
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from reliability.agent import container, jobrecord, processes
from reliability.agent.clock import steady
from reliability.agent.folder import JobFolder
from reliability.agent.hints import HintSocket
from reliability.agent.jobrecord import JobRecord
from reliability.agent.payloads import ContainerPlan, StartPlan
from reliability.agent.rankfiles import RankFiles, snapshot_problem
from reliability.errors import ContainerMissing, RuntimeFailure, StaleEpoch
from reliability.ports import ContainerInfo, ContainerState, Runtime

LOOK_S = 0.1
LEAST_STOP_S = 2.0

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
        jobs_dir: Path,
        report: Callable[..., None],
    ) -> None:
        self.record = record
        self.name = container.name_of(record.job, node)
        self.folder = JobFolder(memory_dir / record.job)
        self.folder.make()
        self.container_up = False
        self.ordered_end = False
        self._ranks_gone = False
        self.lock = threading.RLock()
        self._node = node
        self._runtime = runtime
        self._jobs_dir = jobs_dir
        self._report_any = report
        self._changed = threading.Condition()
        self._closed = False
        self._hints = HintSocket(self.folder.socket_path)
        self.files = RankFiles(self.folder, record, self.report)
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
            training = record.training and self.container_up
            state = "running" if training else "warm" if self.container_up else "none"
            ranks = self.files.ranks() if record.started_epoch == record.epoch else []
            return {"job": record.job, "epoch": record.epoch, "slot": record.slot, "container": state, "ranks": ranks}

    def save(self) -> None:
        """Keep the record on disk."""
        jobrecord.save(self._jobs_dir, self.record)

    def look(self) -> None:
        """Read what is new in the job's folder and report it."""
        with self.lock:
            if self._closed:
                return
            if self.files.look():
                self.save()
        with self._changed:
            self._changed.notify_all()

    def close(self, *, remove: bool = False) -> None:
        """Stop watching; with `remove` the job's folder goes too."""
        with self.lock:
            self._closed = True
        self._hints.wake()
        if threading.current_thread() is not self._watcher:
            self._watcher.join(timeout=2.0)
        self._hints.close()
        if remove:
            self.folder.remove()

    # Orders

    def prepare(self, plan: ContainerPlan, *, epoch: int, slot: int | None, limit_s: float) -> str:
        """Have the launcher run and ready; return the image's digest. It belongs to no attempt in particular."""
        digest = self._runtime.ensure_image(plan.image)
        self._ensure_container(plan, epoch=epoch, slot=slot)
        self._wait(lambda: self.folder.ready() is not None, None, limit_s, "The launcher did not get ready")
        return digest

    def stop(self, epoch: int, *, grace_s: float) -> list[int]:
        """End all ranks of attempts below `epoch` and return which they were. The launcher stays warm.

        Raises FenceUnconfirmed when neither killing them nor ending the container could be confirmed.
        """
        with self.lock:
            if self.record.started_epoch >= epoch:
                return []
            stopped = self._note_stop()
            raised = self.record.epoch < epoch
            self.record.epoch = max(self.record.epoch, epoch)
        if not self._ranks_gone:
            self._end_ranks(grace_s)
        with self.lock:
            if raised:
                self.save()
        self.look()
        return stopped

    def stop_by_lease(self, why: str) -> None:
        """End the ranks of the attempt in charge because the lease demands it, and keep on record that it was so."""
        with self.lock:
            epoch = self.record.started_epoch
            if not self.record.training:
                return
            self.files.look()
            stopped = self._note_stop()
            self.record.exits_reported += stopped
            self.save()
        self._end_ranks(LEAST_STOP_S)
        log.warning(
            "ranks stopped: node=%s job=%s epoch=%s ranks=%s why=%s", self._node, self.record.job, epoch, stopped, why
        )
        for rank in stopped:
            evidence = {"exit_code": 137, "signal": 9, "tail": f"Stopped by the agent: {why}", "last_step": None}
            self.report("rank_exit", {"rank": rank, **evidence, "last_step": self.files.last_step(rank)})
        self.report("finding", {"code": "agent-silent", "rank": None, "evidence": why, "count": 1})

    def start(self, plan: StartPlan, *, epoch: int, limit_s: float) -> dict[int, int]:
        """Start this node's ranks of an attempt and return their process ids as the launcher sees them."""
        end = steady() + limit_s
        with self.lock:
            self.record.epoch = max(self.record.epoch, epoch)
            self.record.slot, self.record.released = plan.slot, False
        if not (self.container_up and self.folder.ready()):
            self.prepare(plan.container, epoch=epoch, slot=plan.slot, limit_s=limit_s)
        ranks = [place.rank for place in plan.ranks]
        with self.lock:
            self._check(epoch)
            if not (self.record.training and self.record.started_epoch == epoch):
                self.record.lease_rule, self.record.storage_dir = plan.lease_rule, plan.storage_dir
                self.record.begin(epoch, ranks, plan.restore)
                self._ranks_gone = False
                self.files.begin()
                self.folder.write_period(version=plan.plan_version, plan=list(plan.period_plan))
                self.folder.write_epoch(epoch, self._orders_of(plan, epoch))
                self.save()  # to disk, which takes longer than the launcher needs to begin
        self._wait(
            lambda: set(self.folder.pids(epoch) or ()) >= set(ranks),
            epoch,
            end - steady(),
            "The launcher started no ranks",
        )
        self.folder.forget_epochs_below(epoch)
        return self.folder.pids(epoch) or {}

    def release(self) -> None:
        """End and remove the container and the memory tier of this job."""
        with self.lock:
            self.record.stopped, self.record.released = True, True
            self.ordered_end = True
            self.save()
        self._runtime.stop(self.name, grace_s=0)
        self.container_up = False
        self.close(remove=True)

    def kill_container(self) -> None:
        """End the container at once as a power loss would (drill): the end counts as not ordered."""
        self._runtime.stop(self.name, grace_s=0)

    # Parts of these

    def _note_stop(self) -> list[int]:
        if not self.record.stopped:
            gone = set(self.files.exits())
            self.record.stopped_ranks = [rank for rank in self.record.ranks if rank not in gone]
            self.record.stopped = True
        return list(self.record.stopped_ranks)

    def _end_ranks(self, grace_s: float) -> None:
        """Kill everything below the launcher; where that cannot be done from here, end the whole container.

        A control file of an attempt would reach the launcher only once, and the number of the next attempt must
        stay free for its start; and a launcher that hangs obeys no file.
        """
        info = self.inspect()
        if info is None or info.state is not ContainerState.RUNNING:
            self._ranks_gone = True
            return
        self._await_fork()
        self._ranks_gone = processes.alive(info.pid) and processes.kill_below(info.pid, max(grace_s, LEAST_STOP_S))
        if self._ranks_gone:
            return
        log.warning("ranks did not end, ending their container: job=%s epoch=%s", self.record.job, self.record.epoch)
        self.ordered_end = True
        self._runtime.stop(self.name, grace_s=0)
        self.container_up, self._ranks_gone = False, True

    def _await_fork(self) -> None:
        """A launcher that was told to start ranks this very moment must have started them before they can be ended."""
        epoch = self.record.started_epoch
        if epoch and self.folder.ready() is not None and self.folder.epoch_order(epoch):
            self._wait_quietly(lambda: self.folder.pids(epoch) is not None, LEAST_STOP_S)

    def _ensure_container(self, plan: ContainerPlan, *, epoch: int, slot: int | None) -> ContainerInfo:
        found = self.inspect()
        if found is None or found.state is not ContainerState.RUNNING:
            self._before_cold_start()
        info = self._runtime.start(
            container.spec_of(
                plan,
                job=self.record.job,
                node=self._node,
                runtime=self._runtime.kind,
                folder=self.folder.root,
                slot=slot,
                epoch=epoch,
            )
        )
        self.container_up, self.ordered_end = True, False
        return info

    def inspect(self) -> ContainerInfo | None:
        """Return what the runtime knows of the job's container, None when there is none."""
        try:
            return self._runtime.inspect(self.name)
        except ContainerMissing:
            return None

    def _before_cold_start(self) -> None:
        """A new launcher must not run again what an older one was told: those ranks died with it."""
        with self.lock:
            self.folder.make()
            self.folder.forget_ready()
            highest = self.folder.highest_epoch()
            told = self.folder.epoch_order(highest)
            if told and not told.get("stop"):
                self.folder.write_epoch(highest, _NO_RANKS)

    def _orders_of(self, plan: StartPlan, epoch: int) -> dict[str, Any]:
        inside = container.folder_inside(self._runtime.kind, self.folder.root)
        shared = {
            **plan.container.env,
            "WORLD_SIZE": str(plan.world_size),
            "LOCAL_WORLD_SIZE": str(len(plan.ranks)),
            "GROUP_RANK": str(plan.slot),
            "GROUP_WORLD_SIZE": str(plan.nodes),
            "MASTER_ADDR": plan.master_addr,
            "MASTER_PORT": str(plan.master_port),
            "STEPKEEPER_DIR": inside,
            "STEPKEEPER_JOB": self.record.job,
            "STEPKEEPER_EPOCH": str(epoch),
        }
        ranks = []
        for place in plan.ranks:
            env = {**shared, "RANK": str(place.rank), "LOCAL_RANK": str(place.local_rank)}
            if plan.restore:
                env["STEPKEEPER_RESTORE"] = f"{inside}/mem/e{plan.restore[0]}-s{plan.restore[1]}-r{place.rank}.json"
            ranks.append({"rank": place.rank, "local_rank": place.local_rank, "env": env})
        program = {
            "program": list(plan.container.program),
            "mode": plan.container.mode,
            "workdir": plan.container.workdir,
        }
        return {"stop": False, **program, "ranks": ranks}

    def _superseded(self, epoch: int | None) -> bool:
        return epoch is not None and self.record.epoch > epoch

    def _check(self, epoch: int | None) -> None:
        if self._superseded(epoch):
            raise StaleEpoch(f"Epoch {epoch} of {self.record.job} was superseded by {self.record.epoch} meanwhile.")

    def _wait(self, done: Callable[[], bool], epoch: int | None, limit_s: float, what: str) -> None:
        def done_or_hopeless() -> bool:
            return done() or self._superseded(epoch) or not self.container_up

        fulfilled = self._wait_quietly(done_or_hopeless, limit_s)
        self._check(epoch)
        if done():
            return
        if fulfilled:
            raise RuntimeFailure(f"The container of {self.record.job} ended at its start.{self._last_words()}")
        raise RuntimeFailure(
            f"{what} within {limit_s:.0f} s.{self._last_words()}", hint="Look at the container's output."
        )

    def _last_words(self) -> str:
        try:
            text = self._runtime.logs(self.name, tail=5).strip()
        except RuntimeFailure:
            return ""
        return f" Its last output: {text[-800:]}" if text else ""

    def _wait_quietly(self, done: Callable[[], bool], limit_s: float) -> bool:
        """Return whether it came true within the limit; looked at on every hint and at least every LOOK_S."""
        end = steady() + (limit_s if math.isfinite(limit_s) else 3600.0)
        with self._changed:
            while not done():
                left = end - steady()
                if left <= 0:
                    return False
                self._changed.wait(min(left, LOOK_S))
        return True

    def _watch(self) -> None:
        while not self._closed:
            hints = self._hints.wait(LOOK_S)
            try:
                self.look()
                for hint in hints:
                    if hint.get("t") == "snapshot_problem":
                        self.report("snapshot_problem", snapshot_problem(hint))
            except Exception:
                # The watch over a job must survive whatever a program put into its folder.
                log.exception("looking at the job's folder failed: job=%s", self.record.job)


_NO_RANKS: dict[str, Any] = {"stop": True, "program": [], "mode": "plain", "workdir": "", "ranks": []}
