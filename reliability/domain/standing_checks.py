"""What does a heartbeat tell of the node's standing checks, and is it well formed (docs/protocol.md section 1)?"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from reliability.domain import fields as f
from reliability.errors import InvalidInput

MOST_CHECKS = 64
MOST_MEASURED = 4000
"""Characters of what one check measured, as JSON."""


@dataclass(frozen=True, kw_only=True)
class CheckBeat:
    """A standing check of the node. `ok` is None without a result, `age_s` None when it never ended; seconds."""

    ok: bool | None
    age_s: float | None
    limit_s: float
    reason: str
    measured: Mapping[str, Any]


def _measured(value: object, path: str) -> dict[str, Any]:
    read = f.document(value, path)
    if len(json.dumps(read)) > MOST_MEASURED:
        raise InvalidInput(path, "is too large", hint=f"At most {MOST_MEASURED} characters of JSON are possible.")
    return read


_CHECK = f.record(
    {
        "ok": (f.nullable(f.boolean), False),
        "age_s": (f.nullable(f.number(least=0, most=1e9)), False),
        "limit_s": (f.number(least=0.1, most=1e7), True),
        "reason": (f.nullable(f.cut_text(most=500), ""), False),
        "measured": (f.nullable(_measured, {}), False),
    }
)
_name = f.text(most=64, least=1)


def read(value: object, path: str) -> dict[str, CheckBeat]:
    """Return name -> check. Raises InvalidInput with the path of the first bad field."""
    given = f.mapping(value, path)
    if len(given) > MOST_CHECKS:
        raise InvalidInput(path, f"has {len(given)} checks", hint=f"At most {MOST_CHECKS} are possible.")
    return {_name(name, path): CheckBeat(**_CHECK(each, f"{path}.{name}"[:200])) for name, each in given.items()}
