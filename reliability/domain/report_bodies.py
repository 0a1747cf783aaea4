"""What does the body of a report of each kind hold (docs/protocol.md section 1)? Read field by field."""

from collections.abc import Mapping
from typing import Any

from reliability.domain import fields as f
from reliability.domain.fields import Reader
from reliability.domain.progress import wire
from reliability.domain.snapshots import Tier

MOST_HEAD = 90_000
"""Characters of a head in base64: 64 KiB compressed."""

RANK = f.integer(most=10_000_000)
EPOCH = f.integer(most=2**31 - 1)
SECONDS = f.nullable(f.number(least=0, most=1e9))
_code = f.text(most=64, least=1)
_tier = f.one_of(*Tier)
_message = f.nullable(f.cut_text(most=4000), "")


def required(reader: Reader) -> tuple[Reader, bool]:
    """Return a field that must be there, as `fields.record` takes it."""
    return reader, True


def optional(reader: Reader, default: Any = None) -> tuple[Reader, bool]:
    """Return a field that may be missing or null, and is `default` then."""
    return f.nullable(reader, default), False


_ERROR = f.record({"code": optional(f.text(most=64), ""), "message": (_message, False), "hint": (_message, False)})
_PARTS = f.record(
    {
        "shared_at": required(f.integer()),
        "shared_bytes": required(f.integer()),
        "shared_digest": required(f.text(most=64, least=1)),
        "sharded_bytes": optional(f.integer(), 0),
        "local_bytes": optional(f.integer(), 0),
        "group": optional(f.text(most=120), ""),
    }
)
MOST_SHARD_BYTES = 2**45
"""32 TiB: what all ranks of a job have together can still be counted."""
REFUSALS = ("forged", "replayed", "expired", "misdirected", "stale")
"""Why a node does not obey an order; each is a fault code with `order-` before it."""
_SNAPSHOT = {"snapshot_epoch": required(EPOCH), "step": required(f.integer()), "rank": required(RANK)}

BODIES: Mapping[str, Reader] = {
    "order_result": f.record(
        {
            "order": required(f.text(most=64, least=1)),
            "status": required(f.one_of("done", "failed", "refused")),
            "result": optional(f.document, {}),
            "error": optional(_ERROR),
        }
    ),
    "order_refused": f.record(
        {
            "reason": required(f.one_of(*REFUSALS)),
            "message": (_message, False),
            "order": optional(f.text(most=64), ""),
        }
    ),
    "finding": f.record(
        {
            "code": required(_code),
            "rank": optional(RANK),
            "evidence": (_message, False),
            "count": optional(f.integer(least=1, most=2**31 - 1), 1),
            "fields": optional(f.plain_values, {}),
            "source": optional(f.text(most=40), ""),
        }
    ),
    "rank_exit": f.record(
        {
            "rank": required(RANK),
            "exit_code": required(f.integer(least=-255, most=2**31 - 1)),
            "signal": optional(f.integer(most=255), 0),
            "tail": (_message, False),
            "oom_killed": optional(f.boolean, False),
            "last_step": optional(f.integer(least=-1)),
        }
    ),
    "container": f.record(
        {
            "event": required(f.one_of("die", "oom", "stream_ended")),
            "exit_code": optional(f.integer(least=-255, most=2**31 - 1)),
            "oom_killed": optional(f.boolean, False),
            "ordered": optional(f.boolean, False),
            "name": optional(f.text(most=255), ""),
        }
    ),
    "first_step": f.record(
        {
            "rank": required(RANK),
            "step": required(f.integer()),
            "restored_step": optional(f.integer(least=-1)),
            "plan_version": optional(f.integer(most=2**31 - 1), 0),
            "skips_read": optional(f.boolean, False),
        }
    ),
    "snapshot_copy": f.record(
        {
            **_SNAPSHOT,
            "tier": required(_tier),
            "path": required(f.text(most=4000, least=1)),
            "size_bytes": required(f.integer(most=MOST_SHARD_BYTES)),
            "digest": required(f.text(most=140, least=1)),
            "stall_s": (SECONDS, False),
            "drain_s": (SECONDS, False),
            "superseded": optional(f.integer(), 0),
            "restored": optional(f.boolean, False),
            "parts": optional(_PARTS),
            "head": optional(f.text(most=MOST_HEAD)),
        }
    ),
    "standstill": wire.STANDSTILL,
    "snapshot_removed": f.record({**_SNAPSHOT, "tier": required(_tier)}),
    "snapshot_problem": f.record(
        {
            "snapshot_epoch": optional(EPOCH),
            "step": optional(f.integer()),
            "rank": optional(RANK),
            "tier": optional(_tier, ""),
            "code": required(_code),
            "message": (_message, False),
            "hint": (_message, False),
            "never_whole": optional(f.boolean, False),
        }
    ),
}
"""Readers of report bodies by kind. A kind that is not here is malformed."""

OF_COPIES = frozenset({"snapshot_copy", "snapshot_removed", "snapshot_problem"})
"""Tell of copies of snapshots. They are many, and nothing is decided sooner by reading them before what else came."""
NEEDS_JOB = frozenset({"rank_exit", "first_step", "snapshot_copy", "snapshot_removed", "standstill"})
"""Kinds that belong to a job."""
