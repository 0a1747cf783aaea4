"""Does training get on? Looks at every running job, and notes hangs, stragglers, drops of speed and broken losses.

The rules are those of domain/progress (docs/progress.md). One finding for each episode, and one more when it is over:
keys make both idempotent, so that it does not matter how often or by whom a job is looked at.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from statistics import median
from typing import Any

from django.db import transaction

from reliability import conf
from reliability.domain.faults import Action
from reliability.domain.faults.families.progress import HANG_CODES
from reliability.domain.progress import (
    Computed,
    SpeedRule,
    StragglerRule,
    find_hang,
    find_quiet,
    find_stragglers,
    judge_speed,
    wire,
)
from reliability.models import Incident, Job, Node, Rank, Watch
from reliability.selectors import core, watching
from reliability.services import belonging, boundary, clock, dispatch, incidents
from reliability.services.failovers.spoilt import NO_NUMBER

WINDOW_S = 15.0
WINDOW_STEPS = 16
"""A window is at least so long, and at least so many steps."""
WINDOWS_KEPT = 240
LEAST_TIMED = 10
WATCHED = (Job.State.RUNNING, Job.State.WAITING)
SPIKE_COOL_DOWN = timedelta(seconds=600)
SPEED = SpeedRule()
STRAGGLERS = StragglerRule()
OVER = "progress-again"


@dataclass
class _Look:
    """One look at one job: what is known, and the row that keeps what was found."""

    job: Job
    ranks: list[Rank]
    kept: Watch
    now: datetime
    since: datetime

    def node_of(self, rank: int | None) -> Node | None:
        """Return the node of a rank, or the first one."""
        nodes = {each.rank: each.slot.node for each in self.ranks}
        return nodes.get(rank if rank is not None else -1) or next((each for each in nodes.values() if each), None)

    def note(
        self, code: str, evidence: str, *, key: str, rank: int | None = None, fields: Mapping[str, int] | None = None
    ) -> None:
        """Keep one finding of this attempt."""
        node = self.node_of(rank)
        if node is not None:
            where: dict[str, Any] = {"job": self.job, "epoch": self.job.epoch, "rank": rank}
            incidents.note(node, code, **where, evidence=evidence, key=key, fields=fields)


def look(now: datetime) -> None:
    """Look at every job that may train. While nobody listens to the nodes nothing is known, and nothing is found."""
    since = core.listening_since(now)
    if since is None:
        return
    for job_id in Job.objects.filter(state__in=WATCHED).order_by("pk").values_list("pk", flat=True):
        boundary.apart("Watching a job", watch, job_id, now, since, job=job_id)


def look_at(job_id: int) -> None:
    """Look at one job at once: one of its nodes says that its ranks stand still."""
    now = clock.now()
    since = core.listening_since(now)
    if since is not None:
        watch(job_id, now, since)


def watch(job_id: int, now: datetime, since: datetime) -> None:
    """Look at one job; what is found is judged at once."""
    with transaction.atomic():
        job = Job.objects.select_for_update(no_key=True).get(pk=job_id)
        if job.state not in WATCHED or _recovering(job):
            return
        kept, _ = Watch.objects.get_or_create(job=job)
        before = _content(kept)
        if kept.epoch != job.epoch:
            kept.epoch, kept.windows, kept.hang, kept.slow, kept.stragglers = job.epoch, [], {}, {}, {}
        seen = _Look(job, watching.live_ranks(job), kept, now, since)
        _look_for_hang(seen)
        _look_at_losses(seen)
        if _new_window(seen):
            _look_at_speed(seen)
            _look_for_stragglers(seen)
        if _content(kept) != before:
            kept.save()
            dispatch.changed(f"job:{job.pk}")
    if belonging.unjudged().filter(job=job_id).exists():
        incidents.judge(job_id)


def _recovering(job: Job) -> bool:
    """Return whether a recovery is at work or a rank has failed: then standing still is its consequence.

    A job that waits for a person may train all the same: what stands still after that is found as ever.
    """
    if job.state == Job.State.WAITING:
        return not core.goes_on(job)
    failed = Rank.objects.filter(job=job, epoch=job.epoch, state=Rank.State.FAILED)
    return core.open_failover(job) is not None or failed.exists()


def _content(kept: Watch) -> tuple[Any, ...]:
    stragglers = sorted(kept.stragglers.items())
    last = kept.windows[-1]["at"] if kept.windows else None
    return (kept.epoch, last, len(kept.windows), dict(kept.hang), dict(kept.slow), stragglers, kept.found_at)


def _look_for_hang(seen: _Look) -> None:
    job, rule = seen.job, conf.progress_rule()
    if not watching.tells_steps(seen.ranks):
        _look_for_quiet(seen)
        return
    views = watching.views(job, seen.ranks, now=seen.now, since=seen.since)
    if find_hang(views, rule) is None:
        _hang_over(seen)
        return
    hang = find_hang(views, rule, newcomers=watching.newcomers(job, now=seen.now))
    if hang is None:
        return
    suspicion = hang.suspicion
    rank = suspicion.ranks[0] if suspicion.ranks else None
    code = "hang-newcomer" if suspicion.newcomer else "hang" if suspicion.node else "hang-somewhere"
    if job.nodes == 1:  # there is no other node to differ from
        code = "hang-somewhere"
    moves = sum(wire.restored(each.watched).moves for each in seen.ranks)
    key = f"hang:{job.pk}:{job.epoch}:{hang.standing.step}:{moves}"
    if seen.kept.hang.get("key") == key:
        return
    seen.kept.hang = {"key": key, "at": seen.now.timestamp(), "evidence": hang.evidence, "code": code}
    seen.note(code, hang.evidence, key=key, rank=rank)


def _look_for_quiet(seen: _Look) -> None:
    outputs = watching.outputs(seen.job, seen.ranks, now=seen.now, since=seen.since)
    age_s = watching.snapshot_age_s(seen.job, now=seen.now)
    quiet = find_quiet(outputs, snapshot_s=age_s, rule=conf.progress_rule())
    if quiet is None:
        _hang_over(seen)
    elif not seen.kept.hang:
        key = f"quiet:{seen.job.pk}:{seen.job.epoch}:{seen.now.timestamp():.0f}"
        seen.kept.hang = {"key": key, "at": seen.now.timestamp(), "evidence": quiet.evidence, "code": "no-progress"}
        seen.note("no-progress", quiet.evidence, key=key)


def _hang_over(seen: _Look) -> None:
    """Note that what stood still goes on, and close what was only observed of it."""
    stood = seen.kept.hang
    moved = [each.moved_at.timestamp() for each in seen.ranks if each.moved_at is not None]
    if not stood or max(moved, default=0.0) <= stood["at"]:
        return
    seen.kept.hang = {}
    lasted_s = seen.now.timestamp() - stood["at"]
    told = f"Training goes on, {lasted_s:.0f} s after it was found to stand still."
    seen.note(OVER, told, key=f"{stood['key']}:over")
    open_ones = Incident.objects.filter(job=seen.job, closed_at=None, action=Action.OBSERVE)
    open_ones.filter(code__in=(*HANG_CODES, "no-progress")).update(closed_at=seen.now, close_reason=told)


def _look_at_losses(seen: _Look) -> None:
    told = {each.rank: wire.restored(each.watched) for each in seen.ranks if each.epoch == seen.job.epoch}
    bad = {rank: each.bad_loss for rank, each in told.items() if each.bad_loss is not None}
    if bad:
        _no_numbers(seen, bad)
    spikes = {rank: each.spike for rank, each in told.items() if each.spike is not None and each.spike.step is not None}
    cool = seen.kept.found_at is not None and seen.now - seen.kept.found_at < SPIKE_COOL_DOWN
    if spikes and not cool:
        _spiked(seen, spikes)


def _no_numbers(seen: _Look, bad: Mapping[int, wire.BadLoss]) -> None:
    """Tell once in an attempt of losses that are no numbers; a recovery from it distrusts what was saved since."""
    rank = min(bad, key=lambda each: (bad[each].first or 0, each))
    first = bad[rank].first or 0
    others = len(bad) - 1
    evidence = (
        f"Rank {rank} reports a loss that is no number at step {first}; so far {bad[rank].count} of them, the last at "
        f"step {bad[rank].last}. {others} other rank{'s' if others != 1 else ''} report the like."
    )
    key = f"nan:{seen.job.pk}:{seen.job.epoch}"
    seen.note(NO_NUMBER, evidence, key=key, rank=rank, fields={"step": first})


def _spiked(seen: _Look, spikes: Mapping[int, wire.Spike]) -> None:
    rank = max(spikes, key=lambda each: (spikes[each].step or 0, -each))
    spike = spikes[rank]
    key = f"spike:{seen.job.pk}:{seen.job.epoch}:{spike.step}"
    if seen.job.findings.filter(key=key).exists():
        return
    seen.kept.found_at = seen.now
    loss, usual = spike.loss or 0.0, spike.usual or 0.0
    evidence = (
        f"Rank {rank} reports a loss of {loss:.4g} after step {spike.step}; usual were {usual:.4g}. "
        f"{spike.count} such jump{'s' if spike.count != 1 else ''} in this attempt."
    )
    seen.note("loss-spike", evidence, key=key, rank=rank)


def _new_window(seen: _Look) -> bool:
    """Add a window when enough time and steps have passed since the last one; return whether there is a new one."""
    pace = [each for each in (wire.restored(rank.watched).pace for rank in seen.ranks) if each is not None]
    steps = [rank.step for rank in seen.ranks if rank.step is not None and rank.epoch == seen.job.epoch]
    if not pace or len(pace) < len(seen.ranks) or len(steps) < len(seen.ranks):
        return False
    if min(each.timed for each in pace) < LEAST_TIMED:
        return False
    at, windows = seen.now.timestamp(), list(seen.kept.windows)
    last = windows[-1] if windows else None
    if last and (min(steps) < last["step"] + WINDOW_STEPS or 0 <= at - last["at"] < WINDOW_S):
        return False
    computed = {str(rank): [each.seconds, each.role] for rank, each in watching.computed(seen.ranks).items()}
    step_s = median(each.median_s for each in pace)
    windows.append({"at": at, "step": min(steps), "step_s": step_s, "computed": computed})
    for old in windows[: -STRAGGLERS.windows]:
        old.pop("computed", None)
    seen.kept.windows = windows[-WINDOWS_KEPT:]
    return True


def _look_at_speed(seen: _Look) -> None:
    drop = judge_speed([each["step_s"] for each in seen.kept.windows], SPEED)
    stands = bool(seen.kept.slow)
    if drop is not None and not stands:
        key = f"slow:{seen.job.pk}:{seen.job.epoch}:{seen.kept.windows[-1]['step']}"
        seen.kept.slow = {"key": key, "at": seen.now.timestamp(), "evidence": drop.evidence}
        seen.note("throughput-drop", drop.evidence, key=key)
    elif drop is None and stands:
        seen.note(OVER, "Steps take as long as usual again.", key=f"{seen.kept.slow['key']}:over")
        seen.kept.slow = {}


def computed_windows(windows: Sequence[Mapping[str, Any]]) -> list[dict[int, Computed]]:
    """Return the windows of computing times that are kept, the oldest first."""
    return [
        {int(rank): Computed(*each) for rank, each in window["computed"].items()}
        for window in windows
        if window.get("computed")
    ]


def _look_for_stragglers(seen: _Look) -> None:
    found = {each.rank: each for each in find_stragglers(computed_windows(seen.kept.windows), STRAGGLERS)}
    standing = dict(seen.kept.stragglers)
    for rank, straggler in found.items():
        if str(rank) not in standing:
            key = f"straggler:{seen.job.pk}:{seen.job.epoch}:{rank}:{seen.kept.windows[-1]['step']}"
            node = seen.node_of(rank)
            evidence = f"{straggler.evidence} It runs on {node.name if node else 'no node'}."
            standing[str(rank)] = {"key": key, "at": seen.now.timestamp(), "evidence": evidence}
            seen.note("straggler", evidence, key=key, rank=rank)
    for rank in [each for each in standing if int(each) not in found]:
        seen.note(OVER, f"Rank {rank} computes as long as the others.", key=f"{standing.pop(rank)['key']}:over")
    seen.kept.stragglers = standing
