"""How is each kind of order carried out? One method a kind; the results are those of docs/protocol.md section 2."""

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from reliability.agent import drills, payloads, restoring
from reliability.agent.attempts import PartReleased
from reliability.agent.clock import ServerClock, steady
from reliability.agent.desk import OrderFailed
from reliability.agent.fields import Fields
from reliability.agent.jobs import LocalJobs
from reliability.agent.localjob import LocalJob
from reliability.agent.movers import Movers
from reliability.agent.orderbook import OrderBook
from reliability.agent.peer_keeping import PeerKeeping
from reliability.agent.peer_serving import PeerServing
from reliability.agent.probes.running import Probes
from reliability.agent.reporter import Reporter
from reliability.agent.trials import Trials
from reliability.domain.orders import Order, OrderKind

LONGEST_S = 7200.0
DRAIN_LIMIT_S = 20.0
_BEFORE_A_TRIAL = frozenset(
    {
        OrderKind.PREPARE,
        OrderKind.RESTORE,
        OrderKind.START,
        OrderKind.PROBE_SERVE,
        OrderKind.PROBE_MEASURE,
        OrderKind.PROBE_SDC,
    }
)
"""What a trial restore makes way for: a recovery must neither wait for it nor share the node with it."""
_END_OLD_THEMSELVES = frozenset({OrderKind.STOP, OrderKind.RESTORE, OrderKind.START})
_CORRUPT = "digest_mismatch"

T = TypeVar("T")


class Hands:
    """Carries out checked orders on this node."""

    def __init__(
        self,
        *,
        node: str,
        clock: ServerClock,
        book: OrderBook,
        jobs: LocalJobs,
        probes: Probes,
        peers: PeerServing,
        partners: PeerKeeping,
        movers: Movers,
        trials: Trials,
        reporter: Reporter,
    ) -> None:
        self._node = node
        self._clock = clock
        self._book = book
        self._jobs = jobs
        self._probes = probes
        self._peers = peers
        self._partners = partners
        self._movers = movers
        self._trials = trials
        self._reporter = reporter
        self._released: dict[str, int] = {}
        self._methods: dict[OrderKind, Callable[[Order], Mapping[str, Any]]] = {
            OrderKind.PREPARE: self._prepare,
            OrderKind.STOP: self._stop,
            OrderKind.RESTORE: self._restore,
            OrderKind.START: self._start,
            OrderKind.RELEASE: self._release,
            OrderKind.PEER_SERVE: lambda order: self._peers.serve(order.payload, job=order.job, epoch=order.epoch),
            OrderKind.PARTNER_KEEP: lambda order: self._partners.keep(order.payload, job=order.job, epoch=order.epoch),
            OrderKind.PROBE_SERVE: lambda order: self._probes.serve(order.payload),
            OrderKind.PROBE_MEASURE: lambda order: self._probes.measure(order.payload),
            OrderKind.PROBE_SDC: lambda order: self._probes.sdc(order.payload),
            OrderKind.TRIAL_RESTORE: lambda order: self._trials.run(order.id, order.payload),
            OrderKind.SET_PERIOD: self._set_period,
            OrderKind.DRILL: self._drill,
        }

    def carry_out(self, order: Order) -> Mapping[str, Any]:
        """Do one order and return its result. An order of a higher epoch ends the ranks of lower ones first."""
        if order.kind in _BEFORE_A_TRIAL:
            self._trials.make_way(f"the order {order.kind} came")
        if order.job:
            self._book.raise_epoch(order.job, order.epoch)
            self._end_lending(order.job, order.epoch)
            if order.kind not in _END_OLD_THEMSELVES:
                self.supersede(order.job, order.epoch)
        return self._methods[order.kind](order)

    def supersede(self, job: str, epoch: int) -> None:
        """Take note of an attempt of a job; ranks of an older one end now, and again until their end is confirmed."""
        self._book.raise_epoch(job, epoch)
        self._end_lending(job, epoch)
        part = self._jobs.find(job)
        if part is not None and (part.record.epoch < epoch or part.has_ranks_below(epoch)):
            self._stop_in(part, epoch, grace_s=0.0)

    def _end_lending(self, job: str, epoch: int) -> None:
        """Shards are served and kept for the newest attempt alone."""
        self._peers.end_below(job, epoch)
        self._partners.end_below(job, epoch)

    def _stop_in(self, part: LocalJob, epoch: int, *, grace_s: float) -> list[int]:
        try:
            return part.stop(epoch, grace_s=grace_s)
        except PartReleased:
            if part.record.released:
                return []  # the container is gone, and all ranks with it
            raise

    def _limit_s(self, order: Order) -> float:
        return min(max(order.expires_at - self._clock.now(), 1.0), LONGEST_S)

    def _prepare(self, order: Order) -> Mapping[str, Any]:
        began = steady()
        plan = payloads.container(Fields(order.payload, "payload").inner("container"))
        part = self._jobs.get(order.job)
        digest = part.prepare(plan, epoch=order.epoch, slot=part.record.slot, limit_s=self._limit_s(order))
        return {"image_digest": digest, "ready": True, "seconds": _since(began)}

    def _stop(self, order: Order) -> Mapping[str, Any]:
        began = steady()
        grace_s = Fields(order.payload, "payload").number("grace_s", 0.0, most=3600)
        part = self._jobs.here(order.job)
        stopped: list[int] = []
        if part is not None:
            stopped = self._stop_in(part, order.epoch, grace_s=grace_s)
        return {"stopped": stopped, "seconds": _since(began)}

    def _restore(self, order: Order) -> Mapping[str, Any]:
        began = steady()
        wanted, program = payloads.restore(order.payload), payloads.program_restore(order.payload)

        def restore(part: LocalJob) -> list[dict[str, Any]]:
            part.stop(order.epoch, grace_s=0.0)
            return self._bring(order, part, wanted, program)

        return {"ranks": self._in_part(order, restore), "seconds": _since(began)}

    def _bring(
        self, order: Order, part: LocalJob, wanted: list[payloads.RankRestore], program: payloads.ProgramRestore | None
    ) -> list[dict[str, Any]]:
        """Bring the shards; tell which copies were corrupt, and then which lie here now with their digest compared.

        That also when not all could be brought, and in this order: what was corrupt may have made way for what is not.
        """
        if program is not None:
            for problem in part.programs.claim(program):
                part.report("snapshot_problem", problem)
        told: list[dict[str, Any]] = []
        try:
            told = restoring.restore(
                part.folder.memory if program is None else part.programs.tier,
                wanted,
                node=self._node,
                job=order.job,
                epoch=order.epoch,
                limit_s=self._limit_s(order),
            )
        except OrderFailed as error:
            told = error.result["ranks"]
            raise
        finally:
            self._name_corrupt(order, told)
            brought = {each["rank"] for each in told if each["tier"]}
            part.look([each.shard.flat_key for each in wanted if program is None and each.shard.rank in brought])
        if program is not None:
            for copy in part.programs.bring(program):
                part.report("snapshot_copy", copy)
        return told

    def _in_part(self, order: Order, do: Callable[[LocalJob], T]) -> T:
        """Do something in this node's part; in a new one when an older attempt's release removed it meanwhile."""
        try:
            return do(self._jobs.get(order.job))
        except PartReleased:
            newest = max(self._released.get(order.job, 0) + 1, self._book.epoch(order.job))
            if order.epoch < newest:
                raise
            return do(self._jobs.get(order.job))

    def _name_corrupt(self, order: Order, ranks: list[dict[str, Any]]) -> None:
        """Report copies that do not verify: they must never be proposed again."""
        fields = Fields(order.payload, "payload")
        where = {"snapshot_epoch": fields.integer("snapshot_epoch"), "step": fields.integer("step")}
        for rank in ranks:
            for skipped in rank["skipped"]:
                if skipped["code"] == _CORRUPT and "from" not in skipped:
                    body = {**where, "rank": rank["rank"], **skipped, "hint": "This copy is not used again."}
                    self._reporter.report("snapshot_problem", body, job=order.job, epoch=order.epoch)

    def _start(self, order: Order) -> Mapping[str, Any]:
        began = steady()
        plan = payloads.start(order.payload)

        def start(part: LocalJob) -> dict[int, int]:
            part.stop(order.epoch, grace_s=0.0)
            return part.start(plan, epoch=order.epoch, limit_s=self._limit_s(order))

        pids = self._in_part(order, start)
        self._movers.nudge()
        return {"pids": {str(rank): pid for rank, pid in pids.items()}, "seconds": _since(began)}

    def _release(self, order: Order) -> Mapping[str, Any]:
        part = self._jobs.here(order.job)
        if part is not None:
            seen = part.begun
            # Memory goes with the container: what is only there, and was saved here, moves to the SSD first.
            if part.record.started_epoch:
                self._movers.drain(part.folder.memory, order.job, min(self._limit_s(order), DRAIN_LIMIT_S))
            part.programs.drain(part.record, self._movers.nudge, min(self._limit_s(order), DRAIN_LIMIT_S))
            self._released[order.job] = order.epoch
            self._jobs.release(part, order.epoch, seen=seen)
        self._partners.forget(order.job)
        return {}

    def _set_period(self, order: Order) -> Mapping[str, Any]:
        fields = Fields(order.payload, "payload")
        part = self._jobs.find(order.job)
        if part is not None:
            part.set_period(version=fields.integer("plan_version"), plan=list(fields.sequence("period_plan")))
        return {}

    def _drill(self, order: Order) -> Mapping[str, Any]:
        drill = payloads.drill(order.payload)
        result = {"done_at": self._clock.now()}
        if drill.what == "kill_rank":
            drills.kill_rank(self._jobs.get(order.job), drill.rank)
        elif drill.what == "stop_heartbeats":
            self._reporter.hold_heartbeats(drill.seconds)
        else:
            chosen = self._jobs.find(order.job)
            parts = [chosen] if chosen else self._jobs.all()
            drills.kill_node(parts, self._reporter, drill.seconds, lambda: self._say_done(order, result))
        return result

    def _say_done(self, order: Order, result: Mapping[str, Any]) -> None:
        body = {"order": order.id, "status": "done", "result": dict(result), "error": None}
        self._book.keep(order.id, body, now=self._clock.now())
        self._reporter.report("order_result", body, job=order.job, epoch=order.epoch)


def _since(began: float) -> float:
    return round(steady() - began, 4)
