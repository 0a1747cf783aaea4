"""What exactly does an order ask for? Each payload of docs/protocol.md section 2 as a checked value."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reliability.agent.fields import Fields
from reliability.agent.peer_store import Peer
from reliability.domain import program_folders
from reliability.domain.policy import LeaseRule
from reliability.domain.program_folders import FolderRule
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
    snapshot_folder: dict[str, Any] | None
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
    skip_steps: Sequence[int] = ()


@dataclass(frozen=True, kw_only=True)
class Lender:
    """Whose replicated part goes into a shard that is put together, and the head that goes before it.

    `digest` is that of the lender's whole shard, in which the replicated part begins at `lender_shared_at`; in the
    shard that comes of it, it begins at `shared_at`. Bytes.
    """

    rank: int
    digest: str
    lender_shared_at: int
    shared_at: int
    shared_bytes: int
    head: str


@dataclass(frozen=True, kw_only=True)
class Source:
    """Where a copy of a shard lies: a path, or an address of an object store. `node` is empty for storage.

    `peer` tells how it is read when it lies on another node; with a `lender` the shard is put together.
    """

    tier: str
    path: str
    digest: str
    node: str
    size_bytes: int = 0
    peer: Peer | None = None
    lender: Lender | None = None


@dataclass(frozen=True, kw_only=True)
class RankRestore:
    """One rank's shard and its copies, best first."""

    shard: Shard
    sources: Sequence[Source]


@dataclass(frozen=True, kw_only=True)
class ProgramRestore:
    """Which step becomes a folder again for which ranks of this node; `all_ranks`: whose files one folder gets."""

    rule: FolderRule
    snapshot: tuple[int, int]
    ranks: Sequence[int]
    all_ranks: Sequence[int]
    job_key: str
    world_size: int


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
        snapshot_folder=program_folders.read(fields.raw.get("snapshot_folder"), "payload.container.snapshot_folder"),
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
        skip_steps=_skip_steps(fields),
    )


def _skip_steps(fields: Fields) -> tuple[int, ...]:
    told = fields.sequence("skip_steps", ())
    return tuple(Fields({"step": step}, "payload.skip_steps").integer("step") for step in told)


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
            sources=tuple(_source(source) for source in item.items("sources")),
        )
        for item in fields.items("ranks")
    ]


def _source(source: Fields) -> Source:
    node, peer, lender = source.text("node", ""), source.optional("peer"), source.optional("replica")
    return Source(
        tier=source.choice("tier", ("memory", "partner", "ssd", "storage")),
        path=source.text("path"),
        digest=source.text("digest"),
        node=node,
        size_bytes=source.integer("size_bytes", 0),
        peer=_peer(peer, node) if peer else None,
        lender=_lender(lender) if lender else None,
    )


def _peer(peer: Fields, node: str) -> Peer:
    return Peer(node=node, address=peer.text("address"), port=peer.integer("port"), token=peer.text("token"))


def _lender(lender: Fields) -> Lender:
    return Lender(
        rank=lender.integer("rank"),
        digest=lender.text("digest"),
        lender_shared_at=lender.integer("lender_shared_at"),
        shared_at=lender.integer("shared_at"),
        shared_bytes=lender.integer("shared_bytes"),
        head=lender.text("head"),
    )


def program_restore(payload: Mapping[str, Any]) -> ProgramRestore | None:
    """Return what a restore order makes a folder of again, None when the program takes no part in it."""
    fields = Fields(payload, "payload")
    rule = program_folders.rule_of(program_folders.read(fields.raw.get("snapshot_folder"), "payload.snapshot_folder"))
    if rule is None:
        return None
    brought = [item.integer("rank") for item in fields.items("ranks")]
    local = [Fields({"rank": rank}, "payload.local_ranks").integer("rank") for rank in fields.sequence("local_ranks")]
    return ProgramRestore(
        rule=rule,
        snapshot=(fields.integer("snapshot_epoch"), fields.integer("step")),
        ranks=tuple(local),
        all_ranks=tuple(brought) if rule.of is program_folders.Whose.JOB else (),
        job_key=fields.text("job_key", ""),
        world_size=fields.integer("world_size", 0),
    )


def drill(payload: Mapping[str, Any]) -> Drill:
    """Return what a drill order breaks."""
    fields = Fields(payload, "payload")
    what = fields.choice("what", DRILLS)
    return Drill(
        what=what,
        rank=fields.integer("rank") if what == "kill_rank" and fields.raw.get("rank") is not None else None,
        seconds=0.0 if what == "kill_rank" else fields.number("seconds", most=MOST_DRILL_S),
    )
