"""Which copy of a shard can be trusted, and how does it get into the memory tier?

Sources are tried best first. Every byte is verified against the committed digest, in memory too: nothing
unverified is restored. What does not verify is named, so that nobody tries it again. Where a copy lies is what the
node that made it once reported: only a file with the very name of this shard, in a folder of this job, is opened.
What lies on another node is read from there while that serves it (peer_restoring.py).
"""

import os
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from reliability.agent import peer_restoring
from reliability.agent.desk import OrderFailed
from reliability.agent.payloads import RankRestore, Source
from reliability.agent.peer_restoring import Bringing
from reliability.errors import CopyMissing, DigestMismatch, InvalidInput, TierError, TierFull
from reliability.ports import TierStore
from reliability.tiers import choosing, copying, opening
from reliability.tiers.directory import DATA_SUFFIX, DirectoryTier
from reliability.tiers.shards import Shard

AT_ONCE = 4


@dataclass
class _Outcome:
    """What came of one rank."""

    rank: int
    tier: str = ""
    lent: dict[str, Any] = field(default_factory=dict)
    skipped: list[dict[str, Any]] = field(default_factory=list)
    bad: list[dict[str, Any]] = field(default_factory=list)
    error: TierError | None = None


def restore(
    memory: DirectoryTier, wanted: list[RankRestore], *, node: str, job: str, epoch: int = 0, limit_s: float = 60.0
) -> list[dict[str, Any]]:
    """Have a verified copy of each rank's shard in the memory tier; return per rank where it came from.

    `limit_s`: how long all of it may take; a source on another node gets half of that at most.
    Raises OrderFailed with all bad copies when a rank has no source that verifies.
    """
    bringing = Bringing(memory=memory, node=node, job=job, epoch=epoch, limit_s=limit_s / 2)
    with ThreadPoolExecutor(max_workers=AT_ONCE, thread_name_prefix="restore") as pool:
        outcomes = list(pool.map(lambda item: _restore_rank(bringing, item), wanted))
    failed = [outcome for outcome in outcomes if not outcome.tier]
    ranks = [{"rank": o.rank, "tier": o.tier, "skipped": o.skipped, **o.lent} for o in outcomes]
    if failed:
        cause = failed[0].error or CopyMissing(f"Rank {failed[0].rank} has no copy to restore from.")
        raise OrderFailed(cause, {"ranks": ranks, "bad": [entry for outcome in outcomes for entry in outcome.bad]})
    return ranks


def _restore_rank(bringing: Bringing, wanted: RankRestore) -> _Outcome:
    outcome = _Outcome(wanted.shard.rank)
    for source in wanted.sources:
        lent = _lent(source, wanted.shard)
        try:
            _bring(bringing, wanted, source)
        except TierError as error:
            outcome.error = error
            told = {"tier": source.tier, "code": error.code, "message": error.message, **lent}
            outcome.skipped.append(told)
            outcome.bad.append(
                {"rank": wanted.shard.rank, "tier": source.tier, "path": source.path, "code": error.code, **lent}
            )
        else:
            outcome.tier, outcome.lent = source.tier, lent
            return outcome
    return outcome


def _lent(source: Source, shard: Shard) -> dict[str, Any]:
    """Return whose copy a source is, where it is not this rank's on this node or on storage."""
    if source.peer is None and source.lender is None:
        return {}
    return {"from": {"node": source.node, "rank": source.lender.rank if source.lender else shard.rank}}


def _bring(bringing: Bringing, wanted: RankRestore, source: Source) -> None:
    if source.lender is not None or source.peer is not None:
        _bring_from_others(bringing, wanted, source)
    else:
        _bring_own(bringing.memory, wanted, source, node=bringing.node, job=bringing.job)


def _bring_from_others(bringing: Bringing, wanted: RankRestore, source: Source) -> None:
    """Bring a shard from another node, or put it together with what another rank lends."""
    memory, shard, lender = bringing.memory, wanted.shard, source.lender
    if _already_there(memory, shard.flat_key, source):
        return
    if source.node == bringing.node and source.tier != "memory":
        _checked_place(Shard(shard.epoch, shard.step, lender.rank if lender else shard.rank), source, bringing.job)
    if lender is not None:
        _with_room(memory, shard, lambda: peer_restoring.put_together(bringing, shard, source, lender))
    else:
        _with_room(memory, shard, lambda: peer_restoring.whole(bringing, shard, source))


def _bring_own(memory: DirectoryTier, wanted: RankRestore, source: Source, *, node: str, job: str) -> None:
    if source.tier != "storage" and source.node not in {"", node}:
        raise CopyMissing(f"{source.path} lies on node {source.node}, not on {node}.")
    key = wanted.shard.flat_key
    if source.tier == "memory":
        _verify_in_place(memory, key, source)
        return
    if source.tier == "storage" and choosing.is_url(source.path):
        _bring_from_store(memory, wanted, source, job)
        return
    path = _checked_place(wanted.shard, source, job)
    if path == memory.data_path(key):  # what becomes files again is not brought into memory
        _verify_in_place(memory, key, source)
        return
    beside = DirectoryTier(path.parent)
    _check_record(beside.record(path.stem), source)
    if not _already_there(memory, key, source):
        record = _record(wanted, beside, path.stem, job)
        _with_room(memory, wanted.shard, lambda: memory.put(path, key, digest=source.digest, record=record))


def _bring_from_store(memory: DirectoryTier, wanted: RankRestore, source: Source, job: str) -> None:
    stored = wanted.shard.stored_key
    try:
        tier = choosing.job_tier(choosing.split_place(source.path, job, stored), job)
    except InvalidInput as error:
        raise CopyMissing(error.message) from error
    _check_record(tier.record(stored), source)
    if not _already_there(memory, wanted.shard.flat_key, source):
        record, key = _record(wanted, tier, stored, job), wanted.shard.flat_key
        _with_room(memory, wanted.shard, lambda: memory.adopt(tier, stored, key, digest=source.digest, record=record))


def _with_room(memory: DirectoryTier, shard: Shard, put: Callable[[], object]) -> None:
    """Bring a shard into memory. Where that is full, the slots of the rank that hold nothing give way: it is gone."""
    try:
        put()
    except TierFull:
        empty = list(memory.root.glob(f"slot-{shard.rank}-*"))
        for path in empty:
            with copying.tier_errors(path):
                opening.remove(path)
        if not empty:
            raise
        put()


def _checked_place(shard: Shard, source: Source, job: str) -> Path:
    """Return the path of a copy.

    Raises CopyMissing for one that, as given or with its links followed, is not the place of this shard.
    """
    key = shard.stored_key if source.tier == "storage" else shard.flat_key
    place = Path(job) / f"{key}{DATA_SUFFIX}"
    given = Path(source.path)
    for path in (given, Path(os.path.realpath(given))):  # unlike resolve() it ends on a loop of links
        if not path.is_absolute() or ".." in path.parts or path.parts[-len(place.parts) :] != place.parts:
            raise CopyMissing(f"{source.path} is not where {source.tier} keeps this shard: it must end with {place}.")
    return given


def _verify_in_place(memory: DirectoryTier, key: str, source: Source) -> None:
    _check_record(memory.record(key), source)
    copying.verify(memory.data_path(key), digest=source.digest)


def _check_record(record: Mapping[str, Any], source: Source) -> None:
    """A shard exists through its commit record, which must say what the order says."""
    if record.get("digest") != source.digest:
        raise DigestMismatch(f"{source.path} was committed with {record.get('digest')}, wanted is {source.digest}.")


def _already_there(memory: DirectoryTier, key: str, source: Source) -> bool:
    """Whether the wanted shard lies in memory and verifies; a damaged one is removed to make room for a good one."""
    try:
        _verify_in_place(memory, key, source)
    except CopyMissing:
        return False
    except TierError:
        memory.delete(key)
        return False
    return True


def _record(wanted: RankRestore, tier: TierStore, key: str, job: str) -> Mapping[str, Any]:
    """Return the commit record beside the source, or the parts of it that the order itself vouches for.

    Nobody here saw the shard being saved: without the time of that, no copy of it is taken for a slow one.
    """
    try:
        record = tier.record(key)
    except TierError:
        record = {}
    shard = wanted.shard
    known = {"job": job, "epoch": shard.epoch, "step": shard.step, "rank": shard.rank, "taken_at": 0.0}
    return {"stall_s": 0.0, "format": "stepkeeper-1", **record, **known}
