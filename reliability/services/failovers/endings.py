"""How did an attempt end? Kept once for each attempt, from what was found; the restart budget is counted from it."""

import re
from typing import Any

from reliability.domain import budget
from reliability.domain.failover import Kind
from reliability.domain.faults import Action, FaultClass, FaultCode
from reliability.models import AttemptEnd, Drill, Epoch, Failover, Finding, Incident, Job, Rank
from reliability.selectors import core, fault_codes
from reliability.selectors.fault_context import LAST_LINE
from reliability.services import clock

_NUMBERS = re.compile(r"0x[0-9a-fA-F]+|\d+")
RESTORE_MISMATCH = "exit-86"
"""The end of a rank whose restore file did not verify: another snapshot is tried, and the program did nothing."""


def of_incident(job: Job, incident: Incident, *, kind: str, failover: Failover | None = None) -> AttemptEnd:
    """Keep that the present attempt of a job ended with an incident, and as what."""
    root = incident.findings.filter(code=incident.code, epoch=job.epoch).order_by("id").first()
    lost = kind == Kind.FAILOVER and incident.fault_class == FaultClass.HARDWARE
    row = fault_codes.table().lookup(incident.code)
    return _keep(
        job,
        job.epoch,
        row=row,
        fault_class=incident.fault_class,
        root=root,
        node=incident.node.name if incident.node else "",
        counts=not lost and not _drilled(job, incident),
        why=incident.summary,
        failover=failover,
    )


def of_rank(failover: Failover, rank: Rank) -> AttemptEnd:
    """Keep that a recovery's own attempt ended before every rank had made a step, with the end of one rank."""
    found = _decisive(failover, rank)
    row = fault_codes.table().lookup(found.code if found else f"exit-{rank.exit_code}")
    node = found.node.name if found else rank.slot.node.name if rank.slot.node else ""
    drilled = Drill.objects.filter(failover=failover).exists()
    return _keep(
        failover.job,
        failover.to_epoch,
        row=row,
        fault_class=row.fault_class,
        root=found,
        node=node,
        counts=row.code != RESTORE_MISMATCH and not drilled,
        why=f"Rank {rank.rank} ended with {rank.exit_code}. {row.meaning}",
        failover=failover,
    )


def _decisive(failover: Failover, rank: Rank) -> Finding | None:
    """Return the earliest finding of the attempt that is no consequence; that of the rank where all are."""
    table = fault_codes.table()
    found = Finding.objects.filter(job_id=failover.job_id, epoch=failover.to_epoch).select_related("node")
    own = [each for each in found.order_by("id") if each.rank is not None]
    plain = [each for each in own if not table.lookup(each.code).follow_up]
    return next(iter(plain), None) or next((each for each in own if each.rank == rank.rank), None)


def is_consequence(end: AttemptEnd) -> bool:
    """Return whether the end is that of a rank that suffered from another's."""
    return fault_codes.table().lookup(end.code).follow_up


def held_by_table(end: AttemptEnd) -> str:
    """Return why no restart helps against this end, '' where one may."""
    row = fault_codes.table().lookup(end.code)
    return f"{end.why} {row.advice}" if row.action is Action.HOLD else ""


def _drilled(job: Job, incident: Incident) -> bool:
    """Return whether a fault on this node was made on purpose, and the drill is still under way."""
    running = Drill.objects.filter(job=job, state=Drill.State.RUNNING)
    return any(incident.node_id in (None, drill.node_id) for drill in running)


def _keep(job: Job, number: int, *, row: FaultCode, fault_class: str, root: Finding | None, **more: Any) -> AttemptEnd:
    epoch = Epoch.objects.filter(job=job, number=number).first()
    before = AttemptEnd.objects.filter(job=job, number=number).values_list("saved", flat=True).first()
    saved = core.newest_complete_step(job)
    values = {
        "at": root.found_at if root else clock.now(),
        "code": row.code[:64],
        "cause": budget.cause_of(fault_class, row),
        "signature": signature(row.code, root.evidence if root else ""),
        "rank": root.rank if root else None,
        "start_epoch": epoch.restored_epoch if epoch else None,
        "start_step": epoch.restored_step if epoch else None,
        "reached": core.newest_step_reached(job),
        "last_step": _last_step(root),
        # A snapshot that is doubted since was taken all the same: saving it anew is no progress.
        "saved": max((each for each in (saved, before) if each is not None), default=None),
        **more,
    }
    return AttemptEnd.objects.update_or_create(job=job, number=number, defaults=values)[0]


def _last_step(root: Finding | None) -> int | None:
    """Return what a rank told as its own last step with its end, or the step before the one it names as bad.

    No other step is as exact: ranks that had not noticed yet may be one further.
    """
    if root is None:
        return None
    told = (root.report.body if root.report else {}).get("last_step")
    bad = root.fields.get("step")
    if not isinstance(told, int) and isinstance(bad, int) and bad > 0:
        told = bad - 1
    return told if isinstance(told, int) and told >= 0 else None


def signature(code: str, evidence: str) -> str:
    """Return what tells one error from another: its code and last line, without the numbers in it."""
    line = evidence.rpartition(LAST_LINE)[2] if LAST_LINE in evidence else ""
    return f"{code} {_NUMBERS.sub('#', line.strip())}".strip()[:200]
