"""Is a silent node lost? That takes a second proof: no step anywhere, or peers that lost the connection to it."""

from collections.abc import Iterable, Sequence
from datetime import datetime

from django.db import transaction

from reliability import conf
from reliability.domain import health
from reliability.models import Epoch, Finding, Job, MaintenanceWindow, Node, OrderRecord, Rank, ServiceBeat, Slot
from reliability.selectors import core, maintenance
from reliability.services import beats, clock, incidents, nodes, own_silence

SETTLING_BEATS = 4
"""So many heartbeats after a start a node's account of its containers is taken at its word."""


def look(now: datetime) -> None:
    """Sweep the nodes, and find each silent node of a running attempt that two proofs call lost."""
    _tell_if_away(now)
    since = core.listening_since(now)
    if since is None:
        return
    silent = nodes.sweep(now)
    blamed = nodes.suspected(now, since)
    if blamed:
        own_silence.suspect(now, silent=blamed)
        return
    own_silence.clear(now)
    planned, over = maintenance.current(now, silent), maintenance.ended_lately(now, silent) if silent else {}
    for slot in _slots_of(silent):
        windows = planned.get(slot.node_id or 0, ())
        _judge(slot, silent, now, max(since, over.get(slot.node_id or 0, since)), window=next(iter(windows), None))


def _tell_if_away(now: datetime) -> None:
    """Tell, once, that nothing was taken in from any node for long: that is our own silence and no node's."""
    beat = ServiceBeat.objects.filter(name=core.INGEST_BEAT).first()
    if beat is None or not Node.objects.exists():
        return
    gone_s = (now - beat.beat_at).total_seconds()
    if gone_s > conf.cluster_policy().away_s:
        own_silence.tell_away(now, since=beat.beat_at, seconds=gone_s)
    elif beat.away_since is not None and beat.back_at is not None:
        own_silence.tell_away(now, since=beat.away_since, seconds=(beat.back_at - beat.away_since).total_seconds())


def missing_containers(now: datetime) -> None:
    """Find slots whose node is heard and does not know the job any more, as after a new installation of the machine.

    Such an agent reports the end of nothing; without this the job would wait for its ranks for ever. An agent that
    kept its records compares them with its engine and reports what is missing itself.
    """
    for slot in _silent_about_their_job(now):
        node, job = slot.node, slot.job
        if node is None:
            continue
        mark = f"{job.pk}:{job.epoch}:{node.name}:{node.incarnation}"
        evidence = "The node is heard and knows nothing of the job: it has lost its container and its records."
        incidents.note(node, "container-died", job=job, epoch=job.epoch, evidence=evidence, key=f"missing:{mark}")


def _silent_about_their_job(now: datetime) -> list[Slot]:
    """Return the slots of running jobs whose node does not name the job, after it had time to. Three queries."""
    running = core.active_slots().filter(job__state=Job.State.RUNNING).select_related("job", "node")
    slots = [slot for slot in running if slot.node and slot.job.name not in slot.node.containers]
    if not slots:
        return []
    keys = {f"start:{slot.job_id}:{slot.job.epoch}:{slot.index}": slot.pk for slot in slots}
    told = OrderRecord.objects.filter(key__in=list(keys)).values_list("key", "ended_at")
    started = {keys[key]: ended_at for key, ended_at in told}
    ended = (Rank.State.EXITED, Rank.State.FAILED)
    at_work = set(Rank.objects.filter(slot__in=slots).exclude(state__in=ended).values_list("slot_id", flat=True))
    # Ranks that ended are known already.
    return [slot for slot in slots if slot.pk in at_work and _told_after(slot.node, started.get(slot.pk), now)]


def _told_after(node: Node | None, started: datetime | None, now: datetime) -> bool:
    """Return whether the node's heartbeats speak of the time after its ranks were started, and are fresh."""
    if node is None or node.last_seen_at is None or started is None:
        return False
    heartbeat_s = conf.cluster_policy().heartbeat_s
    fresh = (now - node.last_seen_at).total_seconds() <= 2 * heartbeat_s
    settled = (node.last_seen_at - started).total_seconds() > SETTLING_BEATS * heartbeat_s
    return fresh and (settled or started - now > beats.SET_BACK)


def _slots_of(silent: Iterable[Node]) -> list[Slot]:
    slots = core.active_slots().filter(node__in=list(silent), job__epoch__gt=0)
    return list(slots.select_related("job", "node").order_by("job_id", "index"))


def _judge(
    slot: Slot, silent: Sequence[Node], now: datetime, since: datetime, *, window: MaintenanceWindow | None
) -> None:
    """Judge the silence of a slot's node. In a planned time it is told only when the job stands still because of it;
    a node that stays away after it counts as silent from its end on."""
    node, job = slot.node, slot.job
    if node is None or node.last_seen_at is None:
        return
    policy = conf.cluster_policy()
    if (now - max(node.last_seen_at, since)).total_seconds() <= policy.silence_s:
        return
    with transaction.atomic():
        job = Job.objects.select_for_update(no_key=True).get(pk=job.pk)
        if not job.slots.filter(pk=slot.pk, node=node).exists():
            return  # a recovery gave the slot to another node before the job was locked
        now = clock.now()  # the lock may have been awaited for long, and the node heard again meanwhile
        node.refresh_from_db(fields=["last_seen_at"])
        if node.last_seen_at is None or (now - max(node.last_seen_at, since)).total_seconds() <= policy.silence_s:
            return
        alone = not _others_heard(job, silent)
        planned = f":planned{window.pk}" if window else ""
        mark = f"{job.pk}:{job.epoch}:{node.name}:{node.last_seen_at.timestamp():.3f}{planned}"
        silent_s = (now - max(node.last_seen_at, since)).total_seconds()
        evidence = f"Nothing heard for {silent_s:.1f} s."
        if window is None or not window.quiet:
            incidents.note(node, "agent-silent", job=job, epoch=job.epoch, evidence=evidence, key=f"silent:{mark}")
        proofs = health.two_proofs(
            silent_for_s=silent_s,
            silence_s=policy.silence_s,
            no_progress_for_s=None if alone else _no_progress_s(job, silent, now),
            proof_s=policy.proof_s,
            peers_report_gone=_peers_report_gone(job, node),
            lone_s=policy.lone_node_s if alone else None,
        )
        if proofs:
            evidence = " ".join(proofs)
            incidents.note(node, "node-lost", job=job, epoch=job.epoch, evidence=evidence, key=f"lost:{mark}")
    if proofs:
        incidents.judge(job.pk)


def _others_heard(job: Job, silent: Sequence[Node]) -> bool:
    """Return whether a rank that has not finished runs on a node that is heard: only such a one tells of progress."""
    heard = Rank.objects.filter(job=job).exclude(slot__node=None).exclude(slot__node__in=list(silent))
    return heard.exclude(epoch=job.epoch, state=Rank.State.EXITED).exists()


def _no_progress_s(job: Job, silent: Sequence[Node], now: datetime) -> float | None:
    """Return for how long no rank on a node that is heard made a step; what silent nodes do cannot be known."""
    heard = Rank.objects.filter(job=job, epoch=job.epoch).exclude(slot__node__in=list(silent))
    current = heard.exclude(state=Rank.State.EXITED)
    steps = [at for at in current.values_list("progress_at", flat=True) if at is not None]
    began = Epoch.objects.filter(job=job, number=job.epoch).values_list("started_at", flat=True).first()
    # What lies in the future is of before the clock was set back.
    newest = max((at for at in [*steps, began] if at is not None and at <= now), default=None)
    return (now - newest).total_seconds() if newest else None


def _peers_report_gone(job: Job, node: Node) -> bool:
    complaints = Finding.objects.filter(job=job, epoch=job.epoch, code="peer-closed").exclude(node=node)
    return complaints.filter(found_at__gte=node.last_seen_at).exists()
