"""What is known of the ranks of a job now, as the rules of progress look at it (docs/progress.md)?"""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from django.conf import settings

from reliability import conf
from reliability.domain.failover import State
from reliability.domain.progress import Computed, Output, RankView, wire
from reliability.domain.progress.wire import RankWatch
from reliability.models import Failover, Job, Node, Rank, Snapshot

HEARD_BEATS = 3.0
"""A node that was silent for so many heartbeats tells nothing of its ranks."""


def live_ranks(job: Job) -> list[Rank]:
    """Return the ranks of the present attempt that have not ended well, with their nodes."""
    rows = Rank.objects.filter(job=job).exclude(epoch=job.epoch, state=Rank.State.EXITED)
    return list(rows.select_related("slot__node").order_by("rank"))


def views(job: Job, ranks: Sequence[Rank], *, now: datetime, since: datetime) -> list[RankView]:
    """Return what is known of each rank; time before `since`, when nobody listened, counts for nobody."""
    return [_view(job, rank, wire.restored(rank.watched), now, since) for rank in ranks]


def _view(job: Job, rank: Rank, told: RankWatch, now: datetime, since: datetime) -> RankView:
    begun = rank.epoch == job.epoch
    return RankView(
        rank=rank.rank,
        node=rank.slot.node.name if rank.slot.node else "",
        step=rank.step if begun else None,
        still_s=_still_s(rank, rank.slot.node, now, since) if begun else None,
        phase=rank.phase,
        phase_limit_s=told.phase_limit_s,
        pace=told.pace,
        waits=told.waits,
        state=told.state,
    )


def _still_s(rank: Rank, node: Node | None, now: datetime, since: datetime) -> float | None:
    """Return for how long a rank has not moved, up to when its node was last heard; None where nothing is known.

    A heartbeat stands for one period more, so that what is due is found by the one that comes with it.
    """
    if node is None or node.last_seen_at is None or rank.moved_at is None:
        return None
    beat = timedelta(seconds=conf.cluster_policy().heartbeat_s)
    if now - node.last_seen_at > HEARD_BEATS * beat:
        return None
    return max(0.0, (min(now, node.last_seen_at + beat) - max(rank.moved_at, since)).total_seconds())


def outputs(job: Job, ranks: Sequence[Rank], *, now: datetime, since: datetime) -> list[Output]:
    """Return since when each rank of a program that tells of no steps has written nothing."""
    return [
        Output(
            rank=rank.rank,
            quiet_s=_still_s(rank, rank.slot.node, now, since) if rank.epoch == job.epoch else None,
            longest_s=wire.restored(rank.watched).output_longest_s,
        )
        for rank in ranks
    ]


def tells_steps(ranks: Sequence[Rank]) -> bool:
    """Return whether the program tells of its steps."""
    return any(rank.step is not None for rank in ranks)


def snapshot_age_s(job: Job, *, now: datetime) -> float | None:
    """Return how long ago the newest snapshot of the present attempt was told of, None without any."""
    rows = Snapshot.objects.filter(job=job, epoch=job.epoch).order_by("-created_at")
    newest = rows.values_list("created_at", flat=True).first()
    return None if newest is None else (now - newest).total_seconds()


def computed(ranks: Sequence[Rank]) -> dict[int, Computed]:
    """Return how long each rank computes before it meets the others, for those that tell."""
    told = {rank.rank: wire.restored(rank.watched) for rank in ranks}
    return {rank: Computed(each.compute_s, each.role) for rank, each in told.items() if each.compute_s is not None}


def newcomers(job: Job, *, now: datetime) -> frozenset[str]:
    """Return the nodes that took a place in the job by a recovery that ended a short while ago."""
    after = now - timedelta(seconds=settings.NEWCOMER_S)
    recent = Failover.objects.filter(job=job, state=State.COMPLETED, ended_at__gt=after)
    moves: Sequence[Sequence[Mapping[str, Any]]] = list(recent.values_list("moves", flat=True))
    return frozenset(str(move["to"]) for each in moves for move in each if move.get("to"))
