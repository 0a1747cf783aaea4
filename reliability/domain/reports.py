"""What may an agent tell the server, and is this message well formed (docs/protocol.md section 1)?

`parse_batch` and `parse_registration` turn decoded JSON into frozen values or raise InvalidInput with the dotted path
of the first bad field. Nothing here knows whether the sender is who it says or whether its epoch is current.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from reliability.domain import fields as f
from reliability.domain import standing_checks
from reliability.domain.fields import Reader
from reliability.domain.health import NodeRole
from reliability.domain.progress import wire
from reliability.domain.progress.wire import RankWatch
from reliability.domain.snapshots import Tier
from reliability.domain.standing_checks import CheckBeat
from reliability.errors import InvalidInput

MAX_ITEMS = 10_000
RUNTIMES = ("docker", "process")
MOST_HEAD = 90_000
"""Characters of a head in base64: 64 KiB compressed."""


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


_rank = f.integer(most=10_000_000)
_epoch = f.integer(most=2**31 - 1)
_seconds = f.nullable(f.number(least=0, most=1e9))
_code = f.text(most=64, least=1)
_tier = f.one_of(*Tier)
_message = f.nullable(f.cut_text(most=4000), "")


def _required(reader: Reader) -> tuple[Reader, bool]:
    return reader, True


def _optional(reader: Reader, default: Any = None) -> tuple[Reader, bool]:
    return f.nullable(reader, default), False


_ERROR = f.record({"code": _optional(f.text(most=64), ""), "message": (_message, False), "hint": (_message, False)})
_PARTS = f.record(
    {
        "shared_at": _required(f.integer()),
        "shared_bytes": _required(f.integer()),
        "shared_digest": _required(f.text(most=64, least=1)),
        "sharded_bytes": _optional(f.integer(), 0),
        "local_bytes": _optional(f.integer(), 0),
        "group": _optional(f.text(most=120), ""),
    }
)
_SNAPSHOT = {"snapshot_epoch": _required(_epoch), "step": _required(f.integer()), "rank": _required(_rank)}

BODIES: Mapping[str, Reader] = {
    "order_result": f.record(
        {
            "order": _required(f.text(most=64, least=1)),
            "status": _required(f.one_of("done", "failed", "refused")),
            "result": _optional(f.document, {}),
            "error": _optional(_ERROR),
        }
    ),
    "order_refused": f.record(
        {
            "reason": _required(f.one_of("forged", "replayed", "expired", "misdirected", "stale")),
            "message": (_message, False),
            "order": _optional(f.text(most=64), ""),
        }
    ),
    "finding": f.record(
        {
            "code": _required(_code),
            "rank": _optional(_rank),
            "evidence": (_message, False),
            "count": _optional(f.integer(least=1, most=2**31 - 1), 1),
            "fields": _optional(f.plain_values, {}),
            "source": _optional(f.text(most=40), ""),
        }
    ),
    "rank_exit": f.record(
        {
            "rank": _required(_rank),
            "exit_code": _required(f.integer(least=-255, most=2**31 - 1)),
            "signal": _optional(f.integer(most=255), 0),
            "tail": (_message, False),
            "oom_killed": _optional(f.boolean, False),
            "last_step": _optional(f.integer(least=-1)),
        }
    ),
    "container": f.record(
        {
            "event": _required(f.one_of("die", "oom", "stream_ended")),
            "exit_code": _optional(f.integer(least=-255, most=2**31 - 1)),
            "oom_killed": _optional(f.boolean, False),
            "ordered": _optional(f.boolean, False),
            "name": _optional(f.text(most=255), ""),
        }
    ),
    "first_step": f.record(
        {
            "rank": _required(_rank),
            "step": _required(f.integer()),
            "restored_step": _optional(f.integer(least=-1)),
            "plan_version": _optional(f.integer(most=2**31 - 1), 0),
            "skips_read": _optional(f.boolean, False),
        }
    ),
    "snapshot_copy": f.record(
        {
            **_SNAPSHOT,
            "tier": _required(_tier),
            "path": _required(f.text(most=4000, least=1)),
            "size_bytes": _required(f.integer()),
            "digest": _required(f.text(most=140, least=1)),
            "stall_s": (_seconds, False),
            "drain_s": (_seconds, False),
            "superseded": _optional(f.integer(), 0),
            "restored": _optional(f.boolean, False),
            "parts": _optional(_PARTS),
            "head": _optional(f.text(most=MOST_HEAD)),
        }
    ),
    "standstill": wire.STANDSTILL,
    "snapshot_removed": f.record({**_SNAPSHOT, "tier": _required(_tier)}),
    "snapshot_problem": f.record(
        {
            "snapshot_epoch": _optional(_epoch),
            "step": _optional(f.integer()),
            "rank": _optional(_rank),
            "tier": _optional(_tier, ""),
            "code": _required(_code),
            "message": (_message, False),
            "hint": (_message, False),
            "never_whole": _optional(f.boolean, False),
        }
    ),
}
"""Readers of report bodies by kind. A kind that is not here is malformed."""

NEEDS_JOB = frozenset({"rank_exit", "first_step", "snapshot_copy", "snapshot_removed", "standstill"})

_RANK_BEAT = f.record(
    {
        "rank": _required(_rank),
        "step": _optional(f.integer()),
        "step_s": (_seconds, False),
        "loss": _optional(f.number()),
        "phase": _optional(f.text(most=32), ""),
        "progress_age_s": (_seconds, False),
        "plan_version": _optional(f.integer(most=2**31 - 1), 0),
        "watch": _optional(wire.read),
    }
)


def _rank_beat(value: object, path: str) -> RankBeat:
    return RankBeat(**_RANK_BEAT(value, path))


_JOB_BEAT = f.record(
    {
        "job": _required(f.name),
        "epoch": _required(_epoch),
        "slot": _optional(f.integer(most=1_000_000)),
        "container": _optional(f.one_of("running", "warm", "none"), "none"),
        "ranks": _optional(f.list_of(_rank_beat, most=4096), []),
    }
)


def _job_beat(value: object, path: str) -> JobBeat:
    read = _JOB_BEAT(value, path)
    return JobBeat(**{**read, "ranks": tuple(read["ranks"])})


_FAULT_TABLE = f.record(
    {
        "shipped": _optional(f.text(most=64), ""),
        "changes": _optional(f.integer(), 0),
        "refused": _optional(f.integer(least=-1), 0),
    }
)
_HEARTBEAT = f.record(
    {
        "jobs": _optional(f.list_of(_job_beat, most=1000), []),
        "spooled": _optional(f.integer(most=2**31 - 1), 0),
        "disks": _optional(f.document, {}),
        "checks": _optional(standing_checks.read),
        "fault_table": _optional(_FAULT_TABLE),
    }
)


def _heartbeat(value: object, path: str) -> Heartbeat:
    read = _HEARTBEAT(value, path)
    return Heartbeat(**{**read, "jobs": tuple(read["jobs"])})


_ITEM = f.record(
    {
        "seq": _required(f.integer()),
        "kind": _required(f.one_of(*BODIES)),
        "at": _optional(f.number()),
        "job": _optional(f.text(most=80), ""),
        "epoch": _optional(_epoch),
        "body": _optional(f.mapping, {}),
        "incarnation": _optional(f.text(most=64), ""),
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
        "node": _required(f.name),
        "incarnation": _required(f.text(most=64, least=1)),
        "sent_at": _optional(f.number()),
        "heartbeat": _optional(_heartbeat),
        "reports": _optional(f.list_of(_item, most=MAX_ITEMS), []),
    }
)

_CONTAINER = f.record(
    {
        "job": _required(f.name),
        "epoch": _optional(_epoch, 0),
        "name": _optional(f.text(most=255), ""),
        "state": _optional(f.text(most=32), ""),
    }
)

_REGISTRATION = f.record(
    {
        "name": _required(f.name),
        "address": _required(f.text(most=255, least=1)),
        "runtime": _required(f.one_of(*RUNTIMES)),
        "incarnation": _required(f.text(most=64, least=1)),
        "role_hint": _optional(f.one_of(*NodeRole), NodeRole.STANDBY.value),
        "tier": _optional(f.integer(least=1, most=1000), 1),
        "preemptible": _optional(f.boolean, False),
        "failure_domain": _optional(f.text(most=80), ""),
        "hardware_ids": _optional(f.document, {}),
        "host": _optional(f.document, {}),
        "version": _optional(f.text(most=32), ""),
        "containers": _optional(f.list_of(_CONTAINER, most=1000), []),
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
