"""What may an agent tell the server, and is this message well formed (docs/protocol.md section 1)?

`parse_batch` and `parse_registration` turn decoded JSON into frozen values or raise InvalidInput with the dotted path
of the first bad field. Nothing here knows whether the sender is who it says or whether its epoch is current.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from reliability.domain import fields as f
from reliability.domain import standing_checks
from reliability.domain.health import NodeRole
from reliability.domain.progress import wire
from reliability.domain.progress.wire import RankWatch
from reliability.domain.report_bodies import BODIES, EPOCH, NEEDS_JOB, RANK, SECONDS, optional, required
from reliability.domain.standing_checks import CheckBeat
from reliability.errors import InvalidInput

MAX_ITEMS = 10_000
RUNTIMES = ("docker", "process")


@dataclass(frozen=True, kw_only=True)
class Registration:
    """A node that joins or comes back."""

    name: str
    address: str
    runtime: str
    incarnation: str
    role_hint: str
    tier: int
    preemptible: bool
    failure_domain: str
    hardware_ids: Mapping[str, Any]
    host: Mapping[str, Any]
    version: str
    containers: tuple[Mapping[str, Any], ...]


@dataclass(frozen=True, kw_only=True)
class RankBeat:
    """How far a rank is. `step` is None before its first step; times in seconds. `watch`: None from an older agent."""

    rank: int
    step: int | None
    step_s: float | None
    loss: float | None
    phase: str
    progress_age_s: float | None
    plan_version: int
    watch: RankWatch | None = None


@dataclass(frozen=True, kw_only=True)
class JobBeat:
    """One job on the node. `container` is running, warm or none."""

    job: str
    epoch: int
    slot: int | None
    container: str
    ranks: tuple[RankBeat, ...]


@dataclass(frozen=True, kw_only=True)
class Heartbeat:
    """What a node tells each period. `checks` and `fault_table` are None from one that has none."""

    jobs: tuple[JobBeat, ...]
    spooled: int
    disks: Mapping[str, Any]
    checks: Mapping[str, CheckBeat] | None = None
    fault_table: Mapping[str, Any] | None = None


@dataclass(frozen=True, kw_only=True)
class Item:
    """One report. `at` is the agent's clock; `incarnation` is empty for the batch's own."""

    seq: int
    kind: str
    at: float | None
    job: str
    epoch: int | None
    body: Mapping[str, Any]
    incarnation: str = ""


@dataclass(frozen=True, kw_only=True)
class Batch:
    """What one POST carries."""

    node: str
    incarnation: str
    sent_at: float | None
    heartbeat: Heartbeat | None
    items: tuple[Item, ...] = field(default=())


_RANK_BEAT = f.record(
    {
        "rank": required(RANK),
        "step": optional(f.integer()),
        "step_s": (SECONDS, False),
        "loss": optional(f.number()),
        "phase": optional(f.text(most=32), ""),
        "progress_age_s": (SECONDS, False),
        "plan_version": optional(f.integer(most=2**31 - 1), 0),
        "watch": optional(wire.read),
    }
)


def _rank_beat(value: object, path: str) -> RankBeat:
    return RankBeat(**_RANK_BEAT(value, path))


_JOB_BEAT = f.record(
    {
        "job": required(f.name),
        "epoch": required(EPOCH),
        "slot": optional(f.integer(most=1_000_000)),
        "container": optional(f.one_of("running", "warm", "none"), "none"),
        "ranks": optional(f.list_of(_rank_beat, most=4096), []),
    }
)


def _job_beat(value: object, path: str) -> JobBeat:
    read = _JOB_BEAT(value, path)
    return JobBeat(**{**read, "ranks": tuple(read["ranks"])})


_FAULT_TABLE = f.record(
    {
        "shipped": optional(f.text(most=64), ""),
        "changes": optional(f.integer(), 0),
        "refused": optional(f.integer(least=-1), 0),
    }
)
_HEARTBEAT = f.record(
    {
        "jobs": optional(f.list_of(_job_beat, most=1000), []),
        "spooled": optional(f.integer(most=2**31 - 1), 0),
        "disks": optional(f.document, {}),
        "checks": optional(standing_checks.read),
        "fault_table": optional(_FAULT_TABLE),
    }
)


def _heartbeat(value: object, path: str) -> Heartbeat:
    read = _HEARTBEAT(value, path)
    return Heartbeat(**{**read, "jobs": tuple(read["jobs"])})


_ITEM = f.record(
    {
        "seq": required(f.integer()),
        "kind": required(f.one_of(*BODIES)),
        "at": optional(f.number()),
        "job": optional(f.text(most=80), ""),
        "epoch": optional(EPOCH),
        "body": optional(f.mapping, {}),
        "incarnation": optional(f.text(most=64), ""),
    }
)


def _item(value: object, path: str) -> Item:
    read = _ITEM(value, path)
    read["body"] = BODIES[read["kind"]](read["body"], f"{path}.body")
    if read["job"]:
        f.name(read["job"], f"{path}.job")
        if read["epoch"] is None:
            raise InvalidInput(f"{path}.epoch", "is missing", hint="Every report about a job carries its epoch.")
    elif read["kind"] in NEEDS_JOB:
        raise InvalidInput(f"{path}.job", "is missing", hint=f"A {read['kind']} report belongs to a job.")
    return Item(**read)


_BATCH = f.record(
    {
        "node": required(f.name),
        "incarnation": required(f.text(most=64, least=1)),
        "sent_at": optional(f.number()),
        "heartbeat": optional(_heartbeat),
        "reports": optional(f.list_of(_item, most=MAX_ITEMS), []),
    }
)

_CONTAINER = f.record(
    {
        "job": required(f.name),
        "epoch": optional(EPOCH, 0),
        "name": optional(f.text(most=255), ""),
        "state": optional(f.text(most=32), ""),
    }
)

_REGISTRATION = f.record(
    {
        "name": required(f.name),
        "address": required(f.text(most=255, least=1)),
        "runtime": required(f.one_of(*RUNTIMES)),
        "incarnation": required(f.text(most=64, least=1)),
        "role_hint": optional(f.one_of(*NodeRole), NodeRole.STANDBY.value),
        "tier": optional(f.integer(least=1, most=1000), 1),
        "preemptible": optional(f.boolean, False),
        "failure_domain": optional(f.text(most=80), ""),
        "hardware_ids": optional(f.document, {}),
        "host": optional(f.document, {}),
        "version": optional(f.text(most=32), ""),
        "containers": optional(f.list_of(_CONTAINER, most=1000), []),
    }
)


def parse_batch(raw: object) -> Batch:
    """Return the batch that decoded JSON holds. Raises InvalidInput with the path of the first bad field."""
    read = _BATCH(raw, "")
    return Batch(
        node=read["node"],
        incarnation=read["incarnation"],
        sent_at=read["sent_at"],
        heartbeat=read["heartbeat"],
        items=tuple(read["reports"]),
    )


def parse_registration(raw: object) -> Registration:
    """Return the registration that decoded JSON holds. Raises InvalidInput with the path of the first bad field."""
    read = _REGISTRATION(raw, "")
    return Registration(**{**read, "containers": tuple(read["containers"])})
