"""What exactly does an order ask for? Each payload of docs/protocol.md section 2 as a checked value."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reliability.agent.fields import Fields
from reliability.domain.policy import LeaseRule
from reliability.ports import Mount
from reliability.tiers.shards import Shard

MOST_DRILL_S = 3600.0
DRILLS = ("kill_rank", "kill_node", "stop_heartbeats")


@dataclass(frozen=True, kw_only=True)
class ContainerPlan:
    """The container of a job on one node. Bytes and cores; 0 means no limit."""

    image: str
    program: Sequence[str]
    mode: str
    preload: Sequence[str]
    env: Mapping[str, str]
    workdir: str
    memory_bytes: int
    cpus: float
    shm_bytes: int
    mounts: Sequence[Mount]
    raw: Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class RankPlace:
    """A rank and its place among the node's ranks."""

    rank: int
    local_rank: int


@dataclass(frozen=True, kw_only=True)
class StartPlan:
    """One attempt of a job as this node takes part in it."""

    container: ContainerPlan
    slot: int
    ranks: Sequence[RankPlace]
    world_size: int
    nodes: int
    master_addr: str
    master_port: int
    restore: tuple[int, int] | None
    period_plan: Sequence[Any]
    plan_version: int
    lease_rule: LeaseRule
    storage_dir: str
    job_key: str


@dataclass(frozen=True, kw_only=True)
class Source:
    """Where a copy of a shard lies: a path, or an address of an object store. `node` is empty for storage."""

    tier: str
    path: str
    digest: str
    node: str


@dataclass(frozen=True, kw_only=True)
class RankRestore:
    """One rank's shard and its copies, best first."""

    shard: Shard
    sources: Sequence[Source]


@dataclass(frozen=True, kw_only=True)
class Drill:
    """What is to be broken, and for how long."""

    what: str
    rank: int | None
    seconds: float


def container(fields: Fields) -> ContainerPlan:
    """Return the container plan of an order."""
    return ContainerPlan(
        image=fields.text("image", ""),
        program=fields.texts("program"),
        mode=fields.choice("mode", ("fork", "plain"), "fork"),
        preload=fields.texts("preload", ()),
        env=fields.text_map("env"),
        workdir=fields.text("workdir", ""),
        memory_bytes=fields.integer("memory_bytes", 0),
        cpus=fields.number("cpus", 0.0),
        shm_bytes=fields.integer("shm_bytes", 0),
        mounts=tuple(
            Mount(
                source=Path(item.text("source")), target=item.text("target"), read_only=bool(item.raw.get("read_only"))
            )
            for item in (fields.items("mounts") if "mounts" in fields.raw else ())
        ),
        raw=dict(fields.raw),
    )


def start(payload: Mapping[str, Any]) -> StartPlan:
    """Return the plan of a start order."""
    fields = Fields(payload, "payload")
    restored = fields.optional("restore")
    return StartPlan(
        container=container(fields.inner("container")),
        slot=fields.integer("slot"),
        ranks=tuple(
            RankPlace(rank=item.integer("rank"), local_rank=item.integer("local_rank"))
            for item in fields.items("ranks")
        ),
        world_size=fields.integer("world_size"),
        nodes=_nodes(fields),
        master_addr=fields.text("master_addr"),
        master_port=fields.integer("master_port"),
        restore=(restored.integer("snapshot_epoch"), restored.integer("step")) if restored else None,
        period_plan=fields.sequence("period_plan", ()),
        plan_version=fields.integer("plan_version", 0),
        lease_rule=LeaseRule(fields.choice("lease_rule", tuple(LeaseRule), LeaseRule.STOP_WHEN_STUCK)),
        storage_dir=fields.text("storage_dir", ""),
        job_key=fields.text("job_key", ""),
    )


def _nodes(fields: Fields) -> int:
    value = fields.raw.get("nodes", 1)
    return len(value) if isinstance(value, list) else fields.integer("nodes", 1)


def restore(payload: Mapping[str, Any]) -> list[RankRestore]:
    """Return what a restore order wants to have in the memory tier."""
    fields = Fields(payload, "payload")
    epoch, step = fields.integer("snapshot_epoch"), fields.integer("step")
    return [
        RankRestore(
            shard=Shard(epoch, step, item.integer("rank")),
            sources=tuple(
                Source(
                    tier=source.choice("tier", ("memory", "ssd", "storage")),
                    path=source.text("path"),
                    digest=source.text("digest"),
                    node=source.text("node", ""),
                )
                for source in item.items("sources")
            ),
        )
        for item in fields.items("ranks")
    ]


def drill(payload: Mapping[str, Any]) -> Drill:
    """Return what a drill order breaks."""
    fields = Fields(payload, "payload")
    what = fields.choice("what", DRILLS)
    return Drill(
        what=what,
        rank=fields.integer("rank") if what == "kill_rank" and fields.raw.get("rank") is not None else None,
        seconds=0.0 if what == "kill_rank" else fields.number("seconds", most=MOST_DRILL_S),
    )
