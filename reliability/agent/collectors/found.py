"""How does a finding of a collector become a report?"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from reliability.agent.collectors import saying
from reliability.agent.collectors.checking import Found

Ready = tuple[dict[str, Any], str, int]
"""Body of a `finding` report, job, epoch."""


class Reports(Protocol):
    """What takes findings."""

    def report_found(self, found: Sequence[Ready], *, source: str, place: str | None) -> None:
        """Keep findings and up to where their source is told, all of it or nothing."""


@dataclass(frozen=True)
class Whose:
    """Whom a finding is about: an attempt of a job, and a rank where that is known. No job: the node itself."""

    job: str = ""
    epoch: int = 0
    rank: int | None = None


NODE = Whose()


def body_of(found: Found, whose: Whose) -> dict[str, Any]:
    """Return the body of a `finding` report."""
    rank = found.rank if whose.rank is None else whose.rank
    return {
        "code": found.code,
        "rank": rank,
        "evidence": found.evidence[: saying.EVIDENCE],
        "count": found.count,
        "fields": dict(found.fields),
    }


def heard(said: Any) -> Found | None:
    """Return a finding that a child told, None for what is none."""
    if not isinstance(said, Mapping) or not saying.text(said, "code"):
        return None
    count, rank, fields = said.get("count"), said.get("rank"), said.get("fields")
    return Found(
        code=saying.text(said, "code")[:64],
        evidence=saying.text(said, "evidence"),
        count=count if isinstance(count, int) and count > 0 else 1,
        rank=rank if isinstance(rank, int) and rank >= 0 else None,
        fields=fields if isinstance(fields, dict) else {},
    )
