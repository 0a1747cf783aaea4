"""Which findings are the same, so that one with a count may stand for all of them on the way to their judgement?

The same is: same job, attempt, code, rank and source, at the same place; without a place, with the same evidence. Only
what lies within EVENT_GAP_S is merged, since a line at the same place later is an event of its own. Where the meaning
depends on the order, as of a link that goes down and up, only neighbours are merged.
"""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from reliability.domain.faults.places import place_of
from reliability.domain.faults.weighing import EVENT_GAP_S
from reliability.domain.faults.words import Value

MERGED_WITHIN_S = EVENT_GAP_S


def sameness(job: str, epoch: int | None, body: Mapping[str, Any], fields: Mapping[str, Value]) -> str:
    """Return a digest (32 hex digits) that two findings share when they are the same.

    `body` is the body of a report of kind finding, `fields` what its line carries.
    """
    place = place_of(fields) if fields else body.get("evidence") or ""
    told = [job, epoch, body.get("code"), body.get("rank"), body.get("source") or "", place]
    return hashlib.blake2b(json.dumps(told).encode("utf-8", "replace"), digest_size=16).hexdigest()
