"""How is each kind of order carried out? One method a kind; the results are those of docs/protocol.md section 2."""

from collections.abc import Callable, Mapping
from typing import Any

from reliability.agent import drills, payloads, restoring
from reliability.agent.clock import ServerClock, steady
from reliability.agent.desk import OrderFailed
from reliability.agent.fields import Fields
from reliability.agent.jobs import LocalJobs
from reliability.agent.movers import Movers
from reliability.agent.orderbook import OrderBook
from reliability.agent.probes.running import Probes
from reliability.agent.reporter import Reporter
from reliability.domain.orders import Order, OrderKind

LONGEST_S = 7200.0
DRAIN_LIMIT_S = 20.0
_END_OLD_THEMSELVES = frozenset({OrderKind.STOP, OrderKind.RESTORE, OrderKind.START})
_CORRUPT = "digest_mismatch"


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
        movers: Movers,
        reporter: Reporter,
    ) -> None:
        self._node = node
        self._clock = clock
        self._book = book
        self._jobs = jobs
        self._probes = probes
        self._movers = movers
        self._reporter = reporter
        self._methods: dict[OrderKind, Callable[[Order], Mapping[str, Any]]] = {
            OrderKind.PREPARE: self._prepare,
            OrderKind.STOP: self._stop,
            OrderKind.RESTORE: self._restore,
            OrderKind.START: self._start,
            OrderKind.RELEASE: self._release,
            OrderKind.PROBE_SERVE: lambda order: self._probes.serve(order.payload),
            OrderKind.PROBE_MEASURE: lambda order: self._probes.measure(order.payload),
            OrderKind.PROBE_SDC: lambda order: self._probes.sdc(order.payload),
            OrderKind.SET_PERIOD: self._set_period,
            OrderKind.DRILL: self._drill,
        }

    def carry_out(self, order: Order) -> Mapping[str, Any]:
        """Do one order and return its result. An order of a higher epoch ends the ranks of lower ones first."""
        if order.job:
            self._book.raise_epoch(order.job, order.epoch)
            if order.kind not in _END_OLD_THEMSELVES:
                self.supersede(order.job, order.epoch)
        return self._methods[order.kind](order)

    def supersede(self, job: str, epoch: int) -> None:
        """Take note of an attempt of a job; ranks of an older one end now."""
        self._book.raise_epoch(job, epoch)
        part = self._jobs.find(job)
        if part is not None and part.record.epoch < epoch:
            part.stop(epoch, grace_s=0.0)

    def _limit_s(self, order: Order) -> float:
        return min(max(order.expires_at - self._clock.now(), 1.0), LONGEST_S)

    def _prepare(self, order: Order) -> Mapping[str, Any]:
        began = steady()
        plan = payloads.container(Fields(order.payload, "payload").inner("container"))
        part = self._jobs.get(order.job)
        part.record.released = False
        digest = part.prepare(plan, epoch=order.epoch, slot=part.record.slot, limit_s=self._limit_s(order))
        return {"image_digest": digest, "ready": True, "seconds": _since(began)}

    def _stop(self, order: Order) -> Mapping[str, Any]:
        began = steady()
        grace_s = Fields(order.payload, "payload").number("grace_s", 0.0, most=3600)
        part = self._jobs.find(order.job)
        stopped: list[int] = []
        if part is not None:
            stopped = part.stop(order.epoch, grace_s=grace_s)
        return {"stopped": stopped, "seconds": _since(began)}

    def _restore(self, order: Order) -> Mapping[str, Any]:
        began = steady()
        wanted = payloads.restore(order.payload)
        part = self._jobs.get(order.job)
        part.stop(order.epoch, grace_s=0.0)
        try:
            ranks = restoring.restore(part.folder.memory, wanted, node=self._node, job=order.job)
        except OrderFailed as error:
            self._name_corrupt(order, error.result["ranks"])
            raise
        self._name_corrupt(order, ranks)
        part.look()
        return {"ranks": ranks, "seconds": _since(began)}

    def _name_corrupt(self, order: Order, ranks: list[dict[str, Any]]) -> None:
        """Report copies that do not verify: they must never be proposed again."""
        fields = Fields(order.payload, "payload")
        where = {"snapshot_epoch": fields.integer("snapshot_epoch"), "step": fields.integer("step")}
        for rank in ranks:
            for skipped in rank["skipped"]:
                if skipped["code"] == _CORRUPT:
                    body = {**where, "rank": rank["rank"], **skipped, "hint": "This copy is not used again."}
                    self._reporter.report("snapshot_problem", body, job=order.job, epoch=order.epoch)

    def _start(self, order: Order) -> Mapping[str, Any]:
        began = steady()
        plan = payloads.start(order.payload)
        part = self._jobs.get(order.job)
        part.stop(order.epoch, grace_s=0.0)
        pids = part.start(plan, epoch=order.epoch, limit_s=self._limit_s(order))
        self._movers.nudge()
        return {"pids": {str(rank): pid for rank, pid in pids.items()}, "seconds": _since(began)}

    def _release(self, order: Order) -> Mapping[str, Any]:
        part = self._jobs.find(order.job)
        if part is not None:
            # Memory goes with the container: what is only there moves to the SSD first.
            self._movers.drain(part.folder.memory, order.job, min(self._limit_s(order), DRAIN_LIMIT_S))
            part.release()
            self._jobs.forget(order.job)
        return {}

    def _set_period(self, order: Order) -> Mapping[str, Any]:
        fields = Fields(order.payload, "payload")
        part = self._jobs.find(order.job)
        if part is not None:
            part.folder.write_period(version=fields.integer("plan_version"), plan=list(fields.sequence("period_plan")))
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
