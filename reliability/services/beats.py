"""How far is each rank and when was each node heard, without one write per heartbeat?

Heartbeats are remembered in the process that took them, the last of each node, and written together in one
transaction a few times a second. What a crash loses is at most the last half second of them.
"""

import threading
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.db import connection, transaction

from reliability import conf
from reliability.domain.reports import Heartbeat, JobBeat, RankBeat
from reliability.models import Job, Node, Rank, ServiceBeat
from reliability.selectors import core
from reliability.services import boundary, dispatch, node_checks

SET_BACK = timedelta(seconds=30)
"""What lies further ahead was written by a clock that was set back since; no two servers differ by as much."""
FACTS = ("pk", "name", "incarnation", "registered_at", "containers", "disks", "spooled", "fault_table")
OUTPUT_SLACK = timedelta(seconds=2)
"""Nodes look at output twice a second and tell it once: what differs by less is the same output."""
ENDED = (Rank.State.EXITED, Rank.State.FAILED)


@dataclass(frozen=True)
class _Heard:
    """The last that a node said. `beat` is None when only reports came."""

    at: datetime
    beat: Heartbeat | None


class Memory:
    """Last heartbeat of each node since the last flush."""

    def __init__(self) -> None:
        self._heard: dict[str, _Heard] = {}
        self._lock = threading.Lock()

    def put(self, name: str, beat: Heartbeat | None, at: datetime) -> None:
        """Remember; a message without a heartbeat keeps the one before it."""
        with self._lock:
            before = self._heard.get(name)
            if beat is None and before is not None:
                beat = before.beat
            self._heard[name] = _Heard(at, beat)

    def take(self) -> dict[str, _Heard]:
        """Return everything remembered and start anew."""
        with self._lock:
            heard, self._heard = self._heard, {}
        return heard

    def give_back(self, heard: dict[str, _Heard]) -> None:
        """Remember again what could not be written, unless something newer came meanwhile."""
        with self._lock:
            self._heard = {**heard, **self._heard}


memory = Memory()


def remember(node_name: str, heartbeat: Heartbeat | None, now: datetime) -> None:
    """Take a heartbeat (or any other sign of life) of a node, received now."""
    memory.put(node_name, heartbeat, now)


def flush(now: datetime) -> int:
    """Write what was remembered, and that ingest listens; returns the number of nodes written."""
    # What was heard before the clock was set back counts as heard now: written as it is it would lie in the future.
    heard = {name: _Heard(min(told.at, now), told.beat) for name, told in memory.take().items()}
    try:
        with transaction.atomic():
            _beat(now)
            _write_nodes(heard)
        # Apart, so that nobody who holds a rank and wants a node can wait for us in a circle.
        with transaction.atomic():
            _write_ranks(heard)
    except BaseException:
        memory.give_back(heard)
        raise
    return len(heard)


def _beat(now: datetime) -> None:
    """Note that ingest listens. After a gap the count of listening starts anew."""
    beat, created = ServiceBeat.objects.get_or_create(
        name=core.INGEST_BEAT, defaults={"started_at": now, "beat_at": now}
    )
    set_back = beat.beat_at - now > SET_BACK
    if created or (beat.beat_at >= now and not set_back):
        return
    if set_back:
        _put_right(now)
    gap = (now - beat.beat_at).total_seconds() > core.LISTENING_GAP_S
    values: dict[str, Any] = {"beat_at": now}
    if gap or set_back:
        values["started_at"] = now
    if (now - beat.beat_at).total_seconds() > conf.cluster_policy().away_s:
        values |= {"away_since": beat.beat_at, "back_at": now}
    ServiceBeat.objects.filter(pk=beat.pk).update(**values)


def _put_right(now: datetime) -> None:
    """This machine's clock was set back: what was heard lies in the future, and would hide a silence until then."""
    ahead = now + SET_BACK
    Node.objects.filter(last_seen_at__gt=ahead).update(last_seen_at=now)
    Rank.objects.filter(progress_at__gt=ahead).update(progress_at=now)
    Rank.objects.filter(moved_at__gt=ahead).update(moved_at=now)


def _write_nodes(heard: dict[str, _Heard]) -> None:
    # One statement with many parameter sets: an ORM update for each node costs ten times as much.
    table = Node._meta.db_table
    # Always in the order of names: two processes that write the same nodes then wait in line, not in a circle.
    rows = [(_sql_time(told.at), name, _sql_time(told.at)) for name, told in sorted(heard.items())]
    if rows:
        with connection.cursor() as cursor:
            cursor.executemany(
                f"UPDATE {table} SET last_seen_at = %s WHERE name = %s AND (last_seen_at IS NULL OR last_seen_at < %s)",  # noqa: S608 (no value in it)
                rows,
            )
    beats = {name: told.beat for name, told in heard.items() if told.beat is not None}
    _write_facts(beats, {name: told.at for name, told in heard.items()})


def _sql_time(at: datetime) -> Any:
    return connection.ops.adapt_datetimefield_value(at)


def _write_facts(beats: dict[str, Heartbeat], heard: dict[str, datetime]) -> None:
    """Write what changes seldom (containers, disks, spool, standing checks) only where it changed."""
    nodes = list(Node.objects.filter(name__in=list(beats)).order_by("name").only(*FACTS))
    for node in nodes:
        beat = beats[node.name]
        facts = {
            "containers": {job.job: {"epoch": job.epoch, "container": job.container} for job in beat.jobs},
            "disks": dict(beat.disks),
            "spooled": beat.spooled,
            "fault_table": dict(beat.fault_table or {}),
        }
        if any(getattr(node, field) != value for field, value in facts.items()):
            Node.objects.filter(pk=node.pk).update(**facts)
    told = {name: node_checks.Told(at, beats[name].checks) for name, at in heard.items() if name in beats}
    # Behind a boundary: whatever is wrong with a check, that its node was heard is kept.
    boundary.apart("Keeping standing checks", node_checks.write, told, nodes)


def _write_ranks(heard: dict[str, _Heard]) -> None:
    told = {
        (name, job.job, beat.rank): (job, beat, said.at)
        for name, said in heard.items()
        if said.beat is not None
        for job in said.beat.jobs
        for beat in job.ranks
    }
    if not told:
        return
    ranks = _ranks_named(told)
    # Read after the locks were taken: an epoch that began before them is seen, a later one waits for this to end.
    epochs = dict(Job.objects.filter(pk__in={rank.job_id for rank in ranks}).values_list("pk", "epoch"))
    moved = set()
    for rank in ranks:
        found = told.get((rank.slot.node.name if rank.slot.node else "", rank.job.name, rank.rank))
        if found is not None and _advance(rank, epochs[rank.job_id], *found):
            moved.add(rank.job_id)
    for job_id in moved:
        dispatch.changed("overview", f"job:{job_id}")


def _ranks_named(told: Iterable[tuple[str, str, int]]) -> list[Rank]:
    """Lock and return the ranks of these jobs. One that somebody else is writing is left to the next heartbeat."""
    names = {job for _, job, _ in told}
    rows = Rank.objects.select_for_update(of=("self",), skip_locked=True, no_key=True)
    return list(rows.filter(job__name__in=names).select_related("job", "slot__node").order_by("pk"))


def _advance(rank: Rank, epoch: int, job: JobBeat, beat: RankBeat, at: datetime) -> bool:
    """Write one rank's progress. An attempt that is not the current one, or that ended, changes nothing."""
    if job.epoch != epoch or (rank.epoch == epoch and rank.state in ENDED):
        return False
    fields: dict[str, Any] = {
        "epoch": job.epoch,
        "step_s": beat.step_s,
        "loss": beat.loss,
        "phase": beat.phase,
        "plan_version": beat.plan_version,
        "watched": beat.watch.kept() if beat.watch else {},
    }
    stepped = beat.step is not None and (rank.step != beat.step or rank.epoch != job.epoch)
    if stepped:
        fields |= {"step": beat.step, "progress_at": at, "state": Rank.State.RUNNING}
    fields["moved_at"] = _moved_at(rank, job, beat, at) or rank.moved_at
    if all(getattr(rank, name) == value for name, value in fields.items()):
        return False
    # The rank's own columns alone: PostgreSQL looks at them again when the row changed since it was read.
    current = Rank.objects.filter(pk=rank.pk).exclude(epoch=epoch, state__in=ENDED)
    if rank.progress_at is not None:
        current = current.exclude(progress_at__gt=at)
    return current.update(**fields) == 1


def _moved_at(rank: Rank, job: JobBeat, beat: RankBeat, at: datetime) -> datetime | None:
    """Return when a rank moved, by its node's account; None when it has not moved since that was written.

    Of one that tells of no step its output is the only sign of life.
    """
    watch, first = beat.watch, rank.moved_at is None or rank.epoch != job.epoch
    if beat.step is None and watch is not None and watch.output_age_s is not None:
        wrote_at = at - timedelta(seconds=watch.output_age_s)
        later = rank.moved_at is None or wrote_at - rank.moved_at > OUTPUT_SLACK
        return wrote_at if first or later else None
    moves = rank.watched.get("moves", 0), watch.moves if watch else 0
    if not first and (rank.step, rank.phase, moves[0]) == (beat.step, beat.phase, moves[1]):
        return None
    age_s = (watch.moved_age_s if watch else None) or beat.progress_age_s or 0.0
    return at - timedelta(seconds=age_s)
