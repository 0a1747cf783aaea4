"""A small world for the services: a clock that moves when told, nodes whose agents answer orders, and time that passes.

The agents here keep no containers: they speak for nodes, through the same parser and the same services as the wire.
"""

import itertools
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

from django.contrib.auth.models import Permission, User

from reliability.domain import orders as envelopes
from reliability.domain.reports import parse_batch, parse_registration
from reliability.models import Failover, FailoverEvent, Job, Node, OrderRecord
from reliability.services import beats, clock, failovers, jobs, nodes, orders, reconcile, reports
from reliability.trainer.schedule import PlanEntry, due, parse

JOIN_TOKEN = "join-token-of-the-tests"
Reply = dict[str, Any]


class Agent:
    """What a node's agent says. `replies` overrides the answer to a kind of order; None means silence."""

    def __init__(self, world: "World", name: str, **facts: Any) -> None:
        self.world, self.name, self.facts = world, name, facts
        self.address = facts.get("address", "127.0.0.1")
        self.alive = True
        self.beating = True
        self.stepping = True
        self.asks_skips = False  # its program asks which batches to skip
        self.stepless = False  # its program is a plain one, which tells nothing of steps
        self.replies: dict[str, Callable[[envelopes.Order], Reply | None]] = {}
        self.done: dict[str, Reply] = {}
        self.ranks: dict[int, int] = {}
        self.period: tuple[int, tuple[PlanEntry, ...]] = (0, ())  # what lies in the job's folder
        self.read: tuple[int, tuple[PlanEntry, ...]] = (0, ())  # what its ranks read at the end of their last step
        self.saved_after: list[int] = []
        self.told: dict[int, Reply] = {}  # what else heartbeats tell of a rank
        self.job, self.epoch = "", 0
        self.bandwidth = 100e6
        self.digest = "right"
        self.bad_paths: set[str] = set()
        self.heard_orders: list[envelopes.Order] = []
        self._incarnations = itertools.count(1)
        self.join()

    def join(self) -> None:
        """Register, as after a start of the agent."""
        self.incarnation = f"{self.name}-{next(self._incarnations)}"
        self._seq = itertools.count(1)
        raw = {"name": self.name, "address": self.address, "runtime": "process", "incarnation": self.incarnation}
        token = getattr(self, "token", JOIN_TOKEN)
        answer = nodes.register(parse_registration({**raw, **self.facts}), token=token, now=clock.now())
        self.token = answer.get("token", token)
        self.key = answer["order_key"]

    @property
    def node(self) -> Node:
        return Node.objects.get(name=self.name)

    def report(self, kind: str, body: Reply, *, epoch: int | None = None, seq: int | None = None) -> list[Reply]:
        """Send one report of the job this agent runs."""
        item = {
            "seq": next(self._seq) if seq is None else seq,
            "kind": kind,
            "job": self.job,
            "epoch": self.epoch if epoch is None else epoch,
            "body": body,
        }
        batch = parse_batch({"node": self.name, "incarnation": self.incarnation, "reports": [item]})
        return reports.accept(self.node, incarnation=self.incarnation, items=batch.items, now=clock.now())

    def beat(self) -> None:
        """Send a heartbeat; ranks that step are a step further."""
        if not (self.alive and self.beating):
            return
        job = {
            "job": self.job,
            "epoch": self.epoch,
            "container": "running",
            "ranks": [
                {"rank": rank, **self.told.get(rank, {})}
                if self.stepless
                else {
                    "rank": rank,
                    "step": step,
                    "step_s": self.world.step_s,
                    "plan_version": self.read[0],
                    **self.told.get(rank, {}),
                }
                for rank, step in self.ranks.items()
            ],
        }
        raw = {
            "node": self.name,
            "incarnation": self.incarnation,
            "heartbeat": {"jobs": [job] if self.job else [], "spooled": 0, "disks": {}},
        }
        beats.remember(self.name, parse_batch(raw).heartbeat, clock.now())

    def train(self) -> None:
        """Make a step on every rank, by the trainer's own rule of when to save."""
        if self.ranks and self.alive and self.stepping:
            self.ranks = {rank: step + 1 for rank, step in self.ranks.items()}
            self.read = self.period
            self.saved_after += [step for step in {*self.ranks.values()} if due(self.read[1], step)]

    def obey(self) -> None:
        """Answer every order that is waiting, once each."""
        if not self.alive:
            return
        waiting = OrderRecord.objects.filter(node__name=self.name, state__in=("pending", "expired")).order_by(
            "created_at"
        )
        for row in waiting:
            if str(row.pk) in self.done or row.expires_at <= clock.now():
                continue
            envelope = orders.envelope(row, self.node, clock.now())
            order = envelopes.unseal(
                envelope, key=self.key, node=self.name, now=clock.now().timestamp(), seen_nonces=()
            )
            self._answer(order)

    def _answer(self, order: envelopes.Order) -> None:
        self.heard_orders.append(order)
        reply = self.replies.get(order.kind, getattr(self, f"_{order.kind}", _done))(order)
        if reply is None:
            return
        self.done[order.id] = reply
        self.report("order_result", {"order": order.id, **reply}, epoch=order.epoch)
        if order.kind == "start" and reply["status"] == "done":
            self._first_steps(order)

    def _stop(self, order: envelopes.Order) -> Reply:
        stopped, self.ranks = list(self.ranks), {}
        self.epoch = max(self.epoch, order.epoch)
        return {"status": "done", "result": {"stopped": stopped, "seconds": 0.01}}

    def _release(self, order: envelopes.Order) -> Reply:
        self.ranks, self.job = {}, ""
        self.period = self.read = (0, ())
        return {"status": "done"}

    def _restore(self, order: envelopes.Order) -> Reply:
        ranks, bad = [], []
        for each in order.payload["ranks"]:
            good = [source for source in each["sources"] if source["path"] not in self.bad_paths]
            spoiled = [source for source in each["sources"] if source["path"] in self.bad_paths]
            notes = [
                {"tier": source["tier"], "code": "digest_mismatch", "message": "wrong digest"} for source in spoiled
            ]
            if good:
                ranks.append({"rank": each["rank"], "tier": good[0]["tier"], "skipped": notes})
            else:
                bad += [{"rank": each["rank"], "path": "", **note} for note in notes]
        if bad:
            error = {"code": "digest_mismatch", "message": "A copy did not verify.", "hint": ""}
            return {"status": "failed", "result": {"bad": bad}, "error": error}
        return {"status": "done", "result": {"ranks": ranks, "seconds": 0.1}}

    def _set_period(self, order: envelopes.Order) -> Reply:
        version, plan = parse({"version": order.payload["plan_version"], "plan": order.payload["period_plan"]})
        if version >= self.period[0]:
            self.period = version, plan
        return {"status": "done"}

    def _start(self, order: envelopes.Order) -> Reply:
        self._set_period(order)
        restored = order.payload["restore"]
        step = restored["step"] if restored else 0
        self.job, self.epoch = order.job, order.epoch
        self.ranks = {each["rank"]: step for each in order.payload["ranks"]}
        return {"status": "done", "result": {"pids": dict.fromkeys(map(str, self.ranks), 1), "seconds": 0.1}}

    def _first_steps(self, order: envelopes.Order) -> None:
        restored = order.payload["restore"]
        if self.stepless or not self.stepping:
            return
        for rank in self.ranks:
            self.ranks[rank] += 1
            body = {"rank": rank, "step": self.ranks[rank], "restored_step": restored["step"] if restored else None}
            self.read = self.period
            self.report("first_step", {**body, "plan_version": self.read[0], "skips_read": self.asks_skips})

    def _peer_serve(self, order: envelopes.Order) -> Reply:
        return {"status": "done", "result": {"port": 24600}}

    def _probe_serve(self, order: envelopes.Order) -> Reply:
        return {"status": "done", "result": {"port": 24000}}

    def _probe_measure(self, order: envelopes.Order) -> Reply:
        speeds = {
            peer["node"]: min(self.bandwidth, self.world.agents[peer["node"]].bandwidth)
            for peer in order.payload["peers"]
        }
        pairs = [{"node": name, "bytes_per_s": [speed] * order.payload["rounds"]} for name, speed in speeds.items()]
        return {"status": "done", "result": {"pairs": pairs}}

    def _probe_sdc(self, order: envelopes.Order) -> Reply:
        digests = [f"{self.digest}-{order.payload['seed']}"] * order.payload["rounds"]
        return {"status": "done", "result": {"digests": digests, "cpu_model": "x", "seconds": 0.1}}

    def save(
        self, step: int, *, tiers: tuple[str, ...] = ("memory", "ssd", "storage"), epoch: int | None = None
    ) -> None:
        """Report copies of every rank's shard."""
        for rank in self.ranks:
            for tier in tiers:
                self.save_one(rank, step, tier, epoch=epoch)

    def save_one(self, rank: int, step: int, tier: str, *, epoch: int | None = None) -> list[Reply]:
        taken = self.epoch if epoch is None else epoch
        body = {
            "snapshot_epoch": taken,
            "step": step,
            "rank": rank,
            "tier": tier,
            "path": f"/{tier}/e{taken}-s{step}-r{rank}",
            "size_bytes": 1000,
            "digest": "blake2b:00",
            "stall_s": 0.02 if tier == "memory" else None,
        }
        return self.report("snapshot_copy", body)

    def rank_dies(self, rank: int, code: int, *, tail: str = "") -> None:
        """A rank ends and the agent reports it."""
        self.ranks.pop(rank, None)
        self.report("rank_exit", {"rank": rank, "exit_code": code, "signal": max(0, code - 128), "tail": tail})

    def power_off(self) -> None:
        """Nothing is heard of the node any more."""
        self.alive = False
        self.ranks = {}

    def power_on(self) -> None:
        """The node comes back, with a new agent and without containers."""
        self.alive, self.job, self.epoch = True, "", 0
        self.period = self.read = (0, ())
        self.join()


def _done(order: envelopes.Order) -> Reply:
    return {"status": "done"}


class World:
    """Nodes, jobs and time."""

    def __init__(self, set_time: Callable[[datetime], None]) -> None:
        self.agents: dict[str, Agent] = {}
        self.step_s = 0.1
        self._set_time = set_time

    def pass_time(self, seconds: float) -> None:
        """Move the clock."""
        self._set_time(clock.now() + timedelta(seconds=seconds))

    def node(self, name: str, role: str = "standby", **facts: Any) -> Agent:
        """Add a node that answers."""
        agent = Agent(self, name, role_hint=role, **facts)
        self.agents[name] = agent
        return agent

    def tick(self, seconds: float = 0.1, *, reconcile_too: bool = True) -> None:
        """Let a little time pass: agents train, beat and obey, and the controller looks at everything."""
        self.pass_time(seconds)
        for agent in self.agents.values():
            agent.train()
            agent.beat()
        beats.flush(clock.now())
        for agent in self.agents.values():
            agent.obey()
        reports.process_new()
        if reconcile_too:
            reconcile.run(clock.now())

    def until(self, reached: Callable[[], bool], *, seconds: float = 30.0, tick_s: float = 0.5) -> None:
        """Let time pass until something is so, or fail."""
        for _ in range(int(seconds / tick_s)):
            if reached():
                return
            self.tick(tick_s)
        assert reached(), f"not reached within {seconds} s of the world's time; {self.told()}"

    def told(self) -> str:
        """Return how things stand, for a test that failed."""
        recoveries = [(each.pk, each.state, each.refused_standbys) for each in Failover.objects.all()]
        open_orders = [str(order) for order in OrderRecord.objects.filter(state="pending")]
        events = list(FailoverEvent.objects.values_list("event", "detail"))[-4:]
        states = list(Job.objects.values_list("state", "state_reason"))
        return f"{states=}, {recoveries=}, {open_orders=}, {events=}"

    def running_job(self, name: str = "lm", **spec: Any) -> Job:
        """Submit and start a job on the nodes that are there, and wait until it runs."""
        job = self.submit(name, **spec)
        jobs.start(job, by="ann")
        self.until(lambda: self.job(name).state == Job.State.RUNNING)
        return self.job(name)

    def submit(self, name: str = "lm", **spec: Any) -> Job:
        base = {
            "name": name,
            "nodes": 3,
            "runtime": "process",
            "program": ["train.py"],
            "storage_dir": "/nowhere/mounted/here",
            "approval": "automatic",
        }
        return jobs.submit({**base, **spec}, by="ann")

    def job(self, name: str = "lm") -> Job:
        return Job.objects.get(name=name)

    def save(self, step: int, *, tiers: tuple[str, ...] = ("memory", "ssd", "storage")) -> None:
        """Have every rank's shard of a step committed."""
        for agent in self.agents.values():
            if agent.alive:
                agent.save(step, tiers=tiers)
        reports.process_new()

    def failover(self) -> Failover:
        """Return the newest recovery."""
        return Failover.objects.order_by("-pk")[0]

    def recover(self, *, seconds: float = 30.0) -> Failover:
        """Let time pass until there is a recovery and it is over."""
        self.until(lambda: Failover.objects.exists() and self.failover().ended_at is not None, seconds=seconds)
        return self.failover()

    def starts(self) -> list[tuple[str, int]]:
        """Return (node, epoch) of every start order that an agent obeyed."""
        return [
            (agent.name, order.epoch)
            for agent in self.agents.values()
            for order in agent.heard_orders
            if order.kind == "start"
        ]

    def step(self) -> bool:
        """Take one step of the newest recovery, as a controller does that dies right after it."""
        return failovers.step(self.failover().pk)


def approver(name: str = "ada") -> User:
    """Return a person who may approve."""
    user = User.objects.create_user(name, password="a-long-password")
    user.user_permissions.add(Permission.objects.get(codename="approve_failover"))
    return User.objects.get(pk=user.pk)
