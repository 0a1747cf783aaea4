"""What is an agent made of, and in which order do its parts begin and end?

Beginning: what watches over containers and leases, with what was kept from an earlier life, for these do not wait for
a server that is away; then identity, what reports, and what obeys. Ending: the reverse. Containers of an engine are
left running when the agent ends and are adopted by the next one; those of the process runtime are its children and end
with it. An agent that gives its name up ends its ranks first.
"""

import contextlib
import logging
import os
import threading
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from reliability.agent import identity as identities
from reliability.agent import registration, standing, standstill
from reliability.agent.carrying import Hands
from reliability.agent.clock import ServerClock, steady
from reliability.agent.collectors.collecting import Collectors
from reliability.agent.config import AgentConfig
from reliability.agent.desk import OrderDesk
from reliability.agent.engine import EngineWatch
from reliability.agent.fences import Fences
from reliability.agent.identity import Identity
from reliability.agent.jobs import LocalJobs
from reliability.agent.movers import Movers
from reliability.agent.orderbook import OrderBook
from reliability.agent.peer_keeping import PeerKeeping
from reliability.agent.peer_serving import PeerServing
from reliability.agent.periodic import Periodic
from reliability.agent.probes.running import Probes
from reliability.agent.queue import OrderQueue
from reliability.agent.registration import JoinRefused
from reliability.agent.reporter import Reporter
from reliability.agent.server import Server, ServerRefused
from reliability.agent.spool import Spool
from reliability.agent.tablebook import TableBook
from reliability.agent.trials import Trials
from reliability.errors import InvalidInput, ReliabilityError
from reliability.ports import Runtime
from reliability.tiers import choosing

LEASE_LOOK_S = 0.1
DISK_LOOK_S = 5.0
OTHERS_LOOK_S = 2.0
COMPARE_S = 5.0
REJOIN_ONCE_IN_S = 60.0
LAST_WORDS_S = 2.0
QUEUE_END_S = 0.3

log = logging.getLogger("stepkeeper.agent")


class AgentNode:
    """The agent of one node, from `run` until `stop` is asked for."""

    def __init__(self, config: AgentConfig, runtime: Runtime) -> None:
        self._config = config
        self._runtime = runtime
        self._stopping = threading.Event()
        self._exit_code = 0
        self._rejoined_at = -REJOIN_ONCE_IN_S
        self._incarnation = identities.new_incarnation()
        self._identity: Identity | None = None
        self._disks: dict[str, dict[str, int]] = {}
        self._clock = ServerClock()
        self._server = Server(config.server, clock=self._clock, ca_file=config.ca_file)
        jobs_dir = config.data_dir / "jobs"
        jobs_dir.mkdir(exist_ok=True)
        self._spool = Spool(config.data_dir / "spool.sqlite3", self._incarnation)
        self._book = OrderBook(config.data_dir / "orders.sqlite3")
        self._reporter = Reporter(
            self._server,
            self._spool,
            self._known,
            heartbeat=self._heartbeat,
            on_answer=self._on_answer,
            on_stale=self._on_stale,
        )
        self._jobs = LocalJobs(
            node=config.name,
            runtime=runtime,
            memory_dir=config.memory_dir,
            ssd_dir=config.ssd_dir,
            jobs_dir=jobs_dir,
            report=self._reporter.report,
            who=f"node {config.name} of {config.server}",
        )
        self._collectors = Collectors(
            config,
            reports=self._reporter,
            facts=self._facts,
            place=self._spool.place,
            parts=self._jobs.all,
            runtime=runtime,
        )
        self._tables = TableBook(
            config.data_dir,
            node=config.name,
            key=lambda: self._known().order_key,
            use=self._collectors.use_table,
            report=self._reporter.report,
        )
        self._engine = EngineWatch(runtime, self._jobs, self._reporter.report)
        self._movers = Movers(config, self._jobs, self._reporter.report)
        self._probes = Probes(config.data_dir / "log")
        self._peers = PeerServing(
            address=config.address,
            memory_dir=config.memory_dir,
            ssd_dir=config.ssd_dir,
            log_dir=config.data_dir / "log",
        )
        self._partners = PeerKeeping(
            memory_dir=config.memory_dir,
            jobs=self._jobs,
            log_dir=config.data_dir / "log",
            report=self._reporter.report,
        )
        self._trials = Trials(config.data_dir / "log", config.ssd_dir, node=config.name)
        hands = Hands(
            node=config.name,
            clock=self._clock,
            book=self._book,
            jobs=self._jobs,
            probes=self._probes,
            peers=self._peers,
            partners=self._partners,
            movers=self._movers,
            trials=self._trials,
            reporter=self._reporter,
        )
        self._fences = Fences(
            self._jobs,
            newest=self._book.epoch,
            supersede=hands.supersede,
            answered_at=lambda: self._reporter.answered_at,
            lease_s=lambda: self._identity.lease_s if self._identity else None,
            report=self._reporter.report,
        )
        self._desk = OrderDesk(
            node=config.name,
            key=lambda: self._known().order_key,
            clock=self._clock,
            book=self._book,
            carry_out=hands.carry_out,
            report=self._reporter.report,
            deaf=self._reporter.silent,
        )
        self._duties = [
            Periodic("lease", LEASE_LOOK_S, self._fences.look),
            Periodic("disks", DISK_LOOK_S, self._look_at_disks),
            Periodic("others", OTHERS_LOOK_S, self._jobs.tell_asked),
            Periodic("containers", COMPARE_S, self._engine.compare),
        ]
        self._queue: OrderQueue | None = None

    def run(self) -> int:
        """Work until stopped; return the exit code. Raises JoinRefused when the server does not want this node."""
        self._identity = identities.load(self._config.data_dir)
        self._resume_lease()
        self._movers.start()
        self._engine.start()
        self._tables.load()
        self._collectors.start()
        for duty in self._duties:
            duty.start()
        try:
            self._join()
        except JoinRefused as error:
            self._fences.end_all(f"the server refuses this node: {error.message}")
            raise
        finally:
            self._end()
        return self._exit_code

    def _join(self) -> None:
        identity = registration.register(
            self._config,
            self._server,
            incarnation=self._incarnation,
            containers=self._jobs.containers,
            stopping=self._stopping,
        )
        if identity is not None:
            self._begin(identity)
            self._stopping.wait()

    def stop(self, exit_code: int = 0) -> None:
        """Ask the agent to end; may be called from a signal handler."""
        self._exit_code = exit_code
        self._stopping.set()

    def _resume_lease(self) -> None:
        """The lease goes on from the last answer an earlier life had: an agent that restarts does not renew it."""
        if self._identity is not None:
            kept = [until for part in self._jobs.all() if (until := standing.lease_until(part.folder)) is not None]
            if kept:
                self._reporter.answered_at = min(max(kept) - self._identity.lease_s, steady())

    def _begin(self, identity: Identity) -> None:
        self._identity = identity
        self._server.keep_to(identity.schedule)
        self._reporter.answered_at = steady()
        self._reporter.start()
        self._queue = OrderQueue(identity.broker_url, identity.queue, self._desk.receive)
        self._queue.start()
        log.info("joined: node=%s server=%s runtime=%s", identity.node, self._config.server, self._runtime.kind)

    def _end(self) -> None:
        log.info("ending: node=%s", self._config.name)
        self._desk.stop()
        if self._queue is not None:
            self._queue.stop(QUEUE_END_S)
        for duty in self._duties:
            duty.stop()
        self._fences.stop()
        self._collectors.stop()
        self._engine.stop()
        self._probes.stop()
        self._peers.stop()
        self._partners.stop()
        self._trials.stop()
        if self._runtime.kind == "process":
            self._end_children()
        if self._queue is not None:
            self._reporter.stop(LAST_WORDS_S)
        self._movers.stop()
        self._jobs.close()
        self._server.close()

    def _end_children(self) -> None:
        for part in self._jobs.all():
            try:
                self._runtime.stop(part.container.name, grace_s=0)
            except ReliabilityError as error:
                log.warning("container not ended: job=%s reason=%s", part.record.job, error.message)

    def _known(self) -> Identity:
        if self._identity is None:
            raise ReliabilityError("This node has not joined yet.")
        return self._identity

    # What others read and bring

    def _heartbeat(self) -> dict[str, Any]:
        jobs = [part.status() for part in self._jobs.all()]
        checks, table = self._collectors.told(), self._tables.told()
        return {"jobs": jobs, "disks": self._disks, "checks": checks, "fault_table": table}

    def _facts(self) -> dict[str, Any]:
        """What checks get to know: folders of the tiers, the wall clock against the server's, jobs' storage."""
        skew = self._clock.skew()
        return {
            "node": self._config.name,
            "memory_dir": str(self._config.memory_dir),
            "ssd_dir": str(self._config.ssd_dir),
            "storage_dirs": sorted({part.record.storage_dir for part in self._jobs.all() if part.record.storage_dir}),
            "clock": None if skew is None else {"ahead_s": skew[0], "uncertainty_s": skew[1]},
        }

    def _on_answer(self, answer: Mapping[str, Any], beat: bool) -> None:
        for job, epoch in _mapping(answer.get("epochs")).items():
            part = self._jobs.find(job)
            if part is not None and part.record.epoch < epoch and self._book.raise_epoch(job, epoch):
                log.warning("superseded: job=%s epoch=%s by=%s", job, part.record.epoch, epoch)
                self._fences.look_at(part)
        self._learn_silence(answer.get("silence_s"))
        self._jobs.learn_floors(answer)
        standstill.rules.learn(answer.get("watch"))
        for envelope in answer.get("orders") or ():
            self._desk.receive(envelope)
        self._tables.take(answer.get("fault_table"))
        if beat:
            self._jobs.judge_adopted(set(_mapping(answer.get("epochs"))), heard_at=self._reporter.answered_at)
            self._report_dropped()

    def _learn_silence(self, told: object) -> None:
        """The server's silence limit may change while this agent lives: its retries follow."""
        identity = self._identity
        if identity is not None and isinstance(told, int | float) and float(told) != identity.silence_s:
            self._identity = replace(identity, silence_s=float(told))
            self._server.keep_to(self._identity.schedule)

    def _report_dropped(self) -> None:
        for kind, count in self._spool.dropped().items():
            evidence = f"{count} reports of kind {kind} were dropped: the spool was full, or they could not be sent."
            self._reporter.report(
                "finding", {"code": "reports-dropped", "rank": None, "evidence": evidence, "count": count}
            )
            self._spool.forget_dropped(kind, count)

    def _on_stale(self, error: ServerRefused) -> None:
        """The server knows a newer life of this node: come back once, and give way when that does not last."""
        if steady() - self._rejoined_at < REJOIN_ONCE_IN_S:
            self._give_way(f"another agent took the name {self._config.name}", error.message)
            return
        log.warning("incarnation refused, registering again: node=%s reason=%s", self._config.name, error.message)
        body = registration.body_of(self._config, self._incarnation, self._jobs.containers())
        try:
            self._identity = registration.register_once(self._config, self._server, self._known(), body)
        except JoinRefused as refused:
            self._give_way("the server refuses this node", refused.message)
            return
        self._rejoined_at = steady()

    def _give_way(self, why: str, reason: str) -> None:
        """What runs here belongs to a node that is somebody else now."""
        log.error("%s, ending: node=%s reason=%s", why, self._config.name, reason)
        self._fences.end_all(f"{why}.")
        self.stop(exit_code=1)

    # Duties

    def _look_at_disks(self) -> None:
        folders = {"memory": self._config.memory_dir, "ssd": self._config.ssd_dir}
        storage = next((part.record.storage_dir for part in self._jobs.all() if part.record.storage_dir), "")
        with contextlib.suppress(InvalidInput):  # the mover tells of a place that is none
            if storage and (folder := choosing.folder_of(storage)):
                folders["storage"] = folder
        found = {}
        for tier, folder in folders.items():
            try:
                space = os.statvfs(folder)
            except OSError:
                continue  # the mover reports a tier that cannot be reached
            found[tier] = {
                "free_bytes": space.f_bavail * space.f_frsize,
                "total_bytes": space.f_blocks * space.f_frsize,
                "free_inodes": space.f_favail,
                "total_inodes": space.f_files,
            }
        self._disks = found


def _mapping(value: object) -> dict[str, int]:
    if not isinstance(value, dict):
        return {}
    return {str(key): number for key, number in value.items() if isinstance(number, int)}
