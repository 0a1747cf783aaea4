"""What would a recovery do now: which slots move where, from which snapshot, and why?

The digest is taken over what decides (kind, class, nodes, standbys), not over the sentences, so that an approval is
refused exactly when something else would happen than what was shown. The restore point is apart: while training goes
on it only rises, and who agrees to lose the work since step N agrees to lose less. It must never fall.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from reliability import conf
from reliability.domain import standby
from reliability.domain.restore import RestorePoint
from reliability.domain.standby import Ranked
from reliability.errors import NoRestorePoint
from reliability.models import Failover, Incident, Job, Rank, Slot
from reliability.selectors import core, standbys
from reliability.services import restores
from reliability.services.failovers import fitness

FROM_NOTHING = "No snapshot is complete on storage yet: the job starts again from step 0."


@dataclass(frozen=True)
class Proposal:
    """What is shown, and the digest an approval binds to."""

    shown: dict[str, Any]
    digest: str
    standby: str
    restore: RestorePoint | None


def candidates(job: Job, *, now: datetime, refused: Sequence[Mapping[str, Any]] = ()) -> list[Ranked]:
    """Return the nodes that could take a slot, best first, those that may not last."""
    names = [str(each["node"]) for each in refused]
    found = standbys.candidates(job, now=now, exclude=names)
    return standby.rank_candidates(found, max_age_s=conf.cluster_policy().validation_max_age_s)


def usable(ranked: Sequence[Ranked]) -> list[Ranked]:
    """Return those that may be used."""
    return [each for each in ranked if each.eligible]


def build(incident: Incident, *, now: datetime, refused: Sequence[Mapping[str, Any]] = ()) -> Proposal:
    """Return what a recovery of this incident would do now."""
    job = incident.job
    if job is None:
        raise ValueError("an incident without a job has no recovery")
    kind = fitness.kind_for(incident, job, refused=refused)
    unfit = fitness.unfit_slots(job, incident=incident, kind=kind, refused=refused)
    ranked = candidates(job, now=now, refused=refused)
    chosen = usable(ranked)[: len(unfit)]
    taken = {slot.index: each for (slot, _), each in zip(unfit, chosen, strict=False)}
    moved = {index: each.candidate.node for index, each in taken.items()}
    point, note = _restore(job, unfit, moved)
    shown = {
        "kind": kind.value,
        "cause": {"code": incident.code, "class": incident.fault_class, "summary": incident.summary},
        "moves": [_move(slot, taken.get(slot.index), why) for slot, why in unfit],
        "missing_standbys": len(unfit) - len(chosen),
        "candidates": [_candidate(each) for each in ranked] if unfit else [],
        "restore": _shown_point(point, note),
    }
    first = chosen[0].candidate.node if chosen else ""
    return Proposal(shown, _digest(incident, shown), first, point)


def _move(slot: Slot, taker: Ranked | None, why: str) -> dict[str, Any]:
    return {
        "slot": slot.index,
        "from": slot.node.name if slot.node else "",
        "to": taker.candidate.node if taker else "",
        "why": why,
        "preempts": taker.candidate.occupied_by if taker and taker.preempts else "",
    }


def _restore(job: Job, unfit: Sequence[tuple[Slot, str]], moved: Mapping[int, str]) -> tuple[RestorePoint | None, str]:
    lost = [slot.node.name for slot, _ in unfit if slot.node]
    slots = dict(Rank.objects.filter(job=job).values_list("rank", "slot__index"))
    placed = {rank: moved.get(slots[rank], node) for rank, node in core.placement(job).items()}
    try:
        point = restores.point(job, placement=placed, lost=lost, before=job.epoch + 1)
    except NoRestorePoint as error:
        return None, error.message
    return point, "" if point else FROM_NOTHING


def _candidate(ranked: Ranked) -> dict[str, Any]:
    each = ranked.candidate
    return {
        "node": each.node,
        "tier": each.tier,
        "eligible": ranked.eligible,
        "fresh": ranked.fresh,
        "warm": each.warm,
        "reasons": list(ranked.reasons),
    }


def _shown_point(point: RestorePoint | None, note: str) -> dict[str, Any]:
    if point is None:
        return {"step": None, "epoch": None, "reasons": [note], "skipped": [], "sources": {}}
    return {
        "step": point.snapshot.step,
        "epoch": point.snapshot.epoch,
        "reasons": list(point.reasons),
        "skipped": list(point.skipped),
        "sources": {str(rank): copies[0].tier.value for rank, copies in point.sources.items()},
    }


def _digest(incident: Incident, shown: Mapping[str, Any]) -> str:
    decides = {
        "incident": incident.pk,
        "kind": shown["kind"],
        "class": incident.fault_class,
        "moves": [[move["slot"], move["from"], move["to"], move["preempts"]] for move in shown["moves"]],
    }
    return hashlib.sha256(json.dumps(decides, sort_keys=True).encode()).hexdigest()


def falls_back(before: Failover, after: Mapping[str, Any]) -> bool:
    """Return whether the restore point is not at least the one that was shown."""
    was, now = before.proposal.get("restore") or {}, after["restore"]
    if was.get("step") is None:
        return False
    return now["step"] is None or now["step"] < was["step"] or now["epoch"] < was["epoch"]


def difference(before: Failover, after: Mapping[str, Any]) -> dict[str, list[Any]]:
    """Return what changed between a request and what would happen now: name -> [before, after]."""
    old = before.proposal
    pairs = {
        "moves": (_told_moves(old), _told_moves(after)),
        "restore step": (old.get("restore", {}).get("step"), after["restore"]["step"]),
        "class": (old.get("cause", {}).get("class"), after["cause"]["class"]),
        "kind": (old.get("kind"), after["kind"]),
    }
    return {name: [was, now] for name, (was, now) in pairs.items() if was != now}


def _told_moves(shown: Mapping[str, Any]) -> list[str]:
    return [_told_move(each) for each in shown.get("moves", [])]


def _told_move(move: Mapping[str, Any]) -> str:
    preempts = f", would preempt job {move['preempts']}" if move.get("preempts") else ""
    return f"slot {move['slot']}: {move['from']} -> {move['to'] or 'none'}{preempts}"
