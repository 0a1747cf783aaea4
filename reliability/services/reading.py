"""What does a report of each kind change, and what must be looked at because of it?

A reader writes what the report says and returns follow-ups: (what, id). Follow-ups run after the report is done, each
behind its own boundary, and reconciliation would do the same a moment later.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

from reliability.domain import faults
from reliability.domain.failover import State
from reliability.domain.orders import OrderKind
from reliability.domain.parts import Difference
from reliability.domain.snapshots import SnapshotId, Tier
from reliability.errors import InvalidInput
from reliability.models import Job, Node, OrderRecord, Rank, Report
from reliability.selectors import core, fault_codes, fault_context
from reliability.services import (
    boundary,
    duplicates,
    failovers,
    incidents,
    jobs,
    launch,
    node_incidents,
    orders,
    parts,
    retention,
    snapshots,
    spoken_of,
    trial_restores,
    validations,
    watching,
)

FollowUp = tuple[Literal["judge", "judge_node", "recover", "drive", "check", "trial", "watch", "copied"], int]
Reader = Callable[[Report], list[FollowUp]]
PROBES = (OrderKind.PROBE_SERVE, OrderKind.PROBE_MEASURE, OrderKind.PROBE_SDC)


def follow_up(each: FollowUp) -> None:
    """Do one follow-up behind a boundary."""
    what, pk = each
    work: Mapping[str, Callable[[int], object]] = {
        "judge": judge,
        "judge_node": node_incidents.judge_node,
        "recover": failovers.advance,
        "drive": jobs.drive,
        "check": check,
        "trial": trial_restores.drive,
        "watch": watching.look_at,
        "copied": copied,
    }
    with fault_codes.held():
        boundary.apart(f"Follow-up {what}", work[what], pk, id=pk)


def judge(job_id: int) -> None:
    """Judge a job's findings and go on with the recovery that answers them."""
    incidents.judge(job_id)
    standing = core.open_failover(Job.objects.get(pk=job_id))
    if standing is not None:
        failovers.advance(standing.pk)


def copied(job_id: int) -> None:
    """Go on with the recovery of a job that waits until its copies are in the ledger."""
    standing = core.open_failover(Job.objects.get(pk=job_id))
    if standing is not None and standing.state == State.RESTORING:
        failovers.advance(standing.pk)


def check(node_id: int) -> None:
    """Go on with a node's checks, and with the recoveries that waited for them."""
    for failover_id in validations.drive(node_id):
        failovers.advance(failover_id)


def _order_result(row: Report) -> list[FollowUp]:
    order = orders.record_result(row.node, row.body, at=row.received_at)
    if order is None:
        raise InvalidInput("order", f"{row.body['order']} was never given to {row.node.name}")
    return _after_order(order)


def _after_order(order: OrderRecord) -> list[FollowUp]:
    if order.kind in PROBES:
        return [("check", node_id) for node_id in validations.running_nodes()]
    trial = trial_restores.trial_of(order)
    following: list[FollowUp] = [] if trial is None else [("trial", trial)]
    if order.job_id:
        standing = core.open_failover(Job.objects.get(pk=order.job_id))
        following = [("recover", standing.pk)] if standing else [("drive", order.job_id)]
    return following


def _order_refused(row: Report) -> list[FollowUp]:
    """A refusal belongs to the attempt that the order was for, when the node has a part in it; else to the node."""
    reason = row.body["reason"]
    message = row.body.get("message") or ""
    order = orders.find(row.node, row.body["order"]) if row.body.get("order") else None
    job = spoken_of.if_taking_part(order.job if order else None, row.node)
    epoch = order.epoch if order and job else None
    incidents.note(row.node, f"order-{reason}", job=job, epoch=epoch, evidence=message, report=row)
    judged = _judged(job, row.node)
    if order is None or reason != "stale":
        return judged
    refused = {"order": str(order.pk), "status": "refused", "error": {"code": "stale", "message": message, "hint": ""}}
    orders.record_result(row.node, refused, at=row.received_at)
    return [*judged, *_after_order(order)]


def _judged(job: Job | None, node: Node) -> list[FollowUp]:
    return [("judge", job.pk)] if job is not None else [("judge_node", node.pk)]


def _finding(row: Report) -> list[FollowUp]:
    """A collector or monitor saw a code. The same line again only counts up."""
    body = row.body
    if duplicates.ends_nothing(row.node, body["code"]):
        return []
    job = spoken_of.named_job(row)
    if not row.job_name and not _of_another_process(body):
        job = spoken_of.job_on(row.node)
    where: dict[str, Any] = {
        "job": job,
        "epoch": spoken_of.epoch_of(row, job),
        "rank": body.get("rank"),
        "evidence": body.get("evidence") or "",
        "count": row.count,
        "fields": body.get("fields") or {},
        "source": body.get("source") or "",
    }
    if not duplicates.counted_up(row.node, body["code"], **where, now=row.received_at):
        incidents.note(row.node, body["code"], **where, report=row)
    return _judged(job, row.node)


def _of_another_process(body: Mapping[str, Any]) -> bool:
    """Whether the agent is certain that the process which a line of the kernel names is none of a job."""
    return (body.get("fields") or {}).get("process_of") == "other"


def _rank_exit(row: Report) -> list[FollowUp]:
    job = spoken_of.job_of(row)
    rank = spoken_of.rank_of(row, job)
    if row.epoch != job.epoch or not spoken_of.was_started(job, job.epoch):
        return []
    code = row.body["exit_code"]
    done = code == 0
    Rank.objects.filter(pk=rank.pk).update(
        state=Rank.State.EXITED if done else Rank.State.FAILED,
        epoch=row.epoch,
        exit_code=code,
        step=_last_step(rank, row),
    )
    if done:
        standing = core.open_failover(job)
        return [("recover", standing.pk)] if standing else [("drive", job.pk)]
    tail = row.body.get("tail") or ""
    found = faults.code_for_exit(code, tail, oom_killed=bool(row.body.get("oom_killed")), matcher=fault_codes.matcher())
    incidents.note(
        row.node,
        found,
        job=job,
        epoch=row.epoch,
        rank=rank.rank,
        evidence=_evidence(row.body, tail, found),
        report=row,
    )
    return [("judge", job.pk)]


def _last_step(rank: Rank, row: Report) -> int | None:
    """The exit tells the very last step; heartbeats are up to a second behind it."""
    told: int | None = row.body.get("last_step")
    if told is None or told < 0:
        return rank.step
    return max(told, rank.step or 0) if rank.epoch == row.epoch else told


def _evidence(body: Mapping[str, Any], tail: str, code: str) -> str:
    """What is told of an end: its number, its last line, and the line that decided when that is another one."""
    signal = f" (signal {body['signal']})" if body.get("signal") else ""
    last = f" after step {body['last_step']}" if body.get("last_step") is not None else ""
    lines = [line for line in tail.strip().splitlines() if line.strip()]
    printed = f" {fault_context.LAST_LINE}{lines[-1][-500:]}" if lines else ""
    return f"Exit code {body['exit_code']}{signal}{last}.{printed}{_telling(lines, code)}"


def _telling(lines: Sequence[str], code: str) -> str:
    matcher = fault_codes.matcher()
    saying = [line for line in lines if (told := matcher.find(line, origin=faults.Origin.OUTPUT)) and told.code == code]
    if not saying or saying[-1] == lines[-1]:
        return ""
    return f" {fault_context.TELLING_LINE}{saying[-1][-500:]}"


def _container(row: Report) -> list[FollowUp]:
    """The engine says that a container ended. What we ordered is no finding; a standby's is only not warm any more."""
    body, job = row.body, Job.objects.filter(name=row.job_name).first() if row.job_name else None
    if body.get("ordered"):
        return []
    if job is not None and body["event"] == "die":
        launch.container_gone(job, row.node)
    code, concerned = _container_code(body), spoken_of.if_taking_part(job, row.node)
    if job is not None and concerned is None and code != "engine-lost":
        return []
    epoch = spoken_of.epoch_of(row, concerned)
    if concerned is not None and body["event"] == "die":
        _end_ranks(row, concerned)
    incidents.note(row.node, code, job=concerned, epoch=epoch, evidence=_container_evidence(body), report=row)
    return _judged(concerned, row.node)


def _end_ranks(row: Report, job: Job) -> None:
    """No rank outlives its container: those of this node that had not finished have failed with it."""
    if row.epoch != job.epoch or not spoken_of.was_started(job, job.epoch):
        return
    ended = Rank.objects.filter(job=job, slot__node=row.node).exclude(epoch=row.epoch, state=Rank.State.EXITED)
    ended.update(state=Rank.State.FAILED, epoch=row.epoch, exit_code=row.body.get("exit_code"))


def _container_code(body: Mapping[str, Any]) -> str:
    if body["event"] == "oom" or body.get("oom_killed"):
        return "oom"
    return "engine-lost" if body["event"] == "stream_ended" else "container-died"


def _container_evidence(body: Mapping[str, Any]) -> str:
    if body["event"] == "stream_ended":
        return "The engine's event stream ended."
    return f"Container {body.get('name') or ''}: {body['event']}, exit code {body.get('exit_code')}."


def _first_step(row: Report) -> list[FollowUp]:
    job = spoken_of.job_of(row)
    rank = spoken_of.rank_of(row, job)
    if row.epoch != job.epoch:
        return []
    body = row.body
    fields: dict[str, Any] = {
        "first_step_epoch": row.epoch,
        "first_step": body["step"],
        "restored_step": body.get("restored_step"),
        "plan_version": body.get("plan_version") or 0,
    }
    if rank.epoch != row.epoch or (rank.step or 0) < body["step"]:
        at = row.received_at
        fields |= {"epoch": row.epoch, "step": body["step"], "progress_at": at, "moved_at": at}
    if rank.epoch != row.epoch or rank.state not in (Rank.State.EXITED, Rank.State.FAILED):
        fields["state"] = Rank.State.RUNNING
    Rank.objects.filter(pk=rank.pk).update(**fields)
    if body.get("skips_read"):
        launch.note_skips_read(job, rank)
    standing = core.open_failover(job)
    return [("recover", standing.pk)] if standing else [("drive", job.pk)]


def _standstill(row: Report) -> list[FollowUp]:
    """A node says that its ranks stand still: the job is looked at now and not in its turn."""
    job = spoken_of.named_job(row)
    return [] if job is None or row.epoch != job.epoch else [("watch", job.pk)]


def _snapshot_copy(row: Report) -> list[FollowUp]:
    job = spoken_of.job_of(row)
    copy = snapshots.record_copy(job, row.node, row.body, at=row.received_at)
    following: list[FollowUp] = [("copied", job.pk)]
    if not row.body.get("parts") or copy.tier != Tier.MEMORY:
        return following
    different = parts.record(job, copy.snapshot, row.body)
    if row.body.get("head"):  # it is kept in its own place, and no longer than that
        row.body = {**row.body, "head": None}
        row.save(update_fields=["body"])
    return following if different is None else [*following, *_differing(row, job, copy.snapshot_id, different)]


def _differing(row: Report, job: Job, snapshot: int, different: Difference) -> list[FollowUp]:
    """What should be the same on all ranks of a group is not: told once for each snapshot."""
    key = f"replica-differs:{job.pk}:{snapshot}:{different.group}"
    where: dict[str, Any] = {"job": job, "epoch": job.epoch, "rank": different.ranks[0]}
    incidents.note(row.node, "replica-differs", **where, evidence=different.sentence, key=key, report=row)
    return _judged(job, row.node)


def _snapshot_removed(row: Report) -> list[FollowUp]:
    job = Job.objects.filter(name=row.job_name).first()
    if job is None:
        raise InvalidInput("job", f"{row.job_name} is no job here")
    retention.note_gone(job, row.node, row.body)
    return []


_OF_STORAGE = {"tier_unreachable": "store-unreachable"}
_BAD_COPY = frozenset({"digest_mismatch", "corrupt", "copy_missing", "doubted_step"})
_OF_ANY = {"tier_full": "disk-full", "tier_conflict": "store-conflict"}


def _code_of_problem(body: Mapping[str, Any]) -> str:
    """Return the fault code of a trouble with snapshots; where it is told apart by tier, it is the storage's."""
    said = str(body["code"])
    if body.get("tier") == Tier.STORAGE and said in _OF_STORAGE:
        return _OF_STORAGE[said]
    return _OF_ANY.get(said, said if said in faults.TABLE else "snapshot-problem")


def _snapshot_problem(row: Report) -> list[FollowUp]:
    """A save or copy failed: shown, and never a reason to blame a node."""
    body, job = row.body, spoken_of.named_job(row)
    named = [f"{name} {body[name]}" for name in ("step", "rank") if body.get(name) is not None]
    where = f"{' '.join([*named, 'on', body.get('tier') or 'a tier']).capitalize()}: "
    code = _code_of_problem(body)
    incidents.note(
        row.node,
        code,
        job=job,
        epoch=spoken_of.epoch_of(row, job),
        rank=body.get("rank"),
        evidence=f"{where}{body['code']}: {body.get('message') or ''} {body.get('hint') or ''}".rstrip(),
        report=row,
    )
    if job is not None and body["code"] in _BAD_COPY and body.get("step") is not None:
        snapshot = SnapshotId(body.get("snapshot_epoch") or 0, body["step"])
        snapshots.mark_bad(job, snapshot, [body], node=row.node)
    return _judged(job, row.node)


READERS: Mapping[str, Reader] = {
    "order_result": _order_result,
    "order_refused": _order_refused,
    "finding": _finding,
    "rank_exit": _rank_exit,
    "container": _container,
    "first_step": _first_step,
    "snapshot_copy": _snapshot_copy,
    "standstill": _standstill,
    "snapshot_removed": _snapshot_removed,
    "snapshot_problem": _snapshot_problem,
}
"""One reader for every kind of report (reliability/domain/report_bodies.py)."""
