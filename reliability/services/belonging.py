"""Which findings belong elsewhere than to the incident that is open, or to the one that they would open?

What is told late, of an attempt before or of a job that is over; what a node without a slot tells; what an attempt tore
down when it ended; that something is over which began in another incident; and what a planned time explains.
"""

from datetime import timedelta

from django.db.models import Q, QuerySet

from reliability.domain import faults
from reliability.domain.faults import Action, Origin
from reliability.models import Finding, Incident, Job, Rank
from reliability.selectors import core, fault_codes, maintenance, standing
from reliability.services import clock

TEARDOWN_S = 60.0
"""So long after a fault the kernel's lines about what was torn down may come."""


UNREACHED = ("agent-silent", "engine-lost")
"""What a planned time that is quiet explains away. That a job's rank is gone (node-lost) is told all the same."""


def unjudged() -> QuerySet[Finding]:
    """Return the findings that nobody has judged yet, without those that a planned time explains."""
    return Finding.objects.filter(incident=None, maintenance=None)


def give_away(job: Job) -> None:
    """Give what is not of the job's present attempt to whom it belongs. Under the job's lock, before it is judged."""
    _give_to_their_nodes(job)
    _give_to_the_end_before(job)
    _give_to_what_they_end(job)


def settle_old(job: Job) -> None:
    """Give findings of earlier attempts, or of a job that is over, to the incident they came too late for."""
    late = unjudged().filter(job=job)
    if job.state not in Job.TERMINAL:
        late = late.filter(Q(epoch__lt=job.epoch) | Q(epoch=None))
        late = late.exclude(code__in=standing.awaited_codes(fault_codes.table()))  # it is due later, wherever it stands
    if late.exists():
        late.update(incident=core.incidents_of(job).order_by("-id").first() or _afterwards(job))


def _afterwards(job: Job) -> Incident:
    """Return a closed incident for what is told of a job that had none, when it is over: so it is seen, and settled."""
    now = clock.now()
    return Incident.objects.create(
        job=job,
        epoch=job.epoch,
        fault_class=faults.FaultClass.UNKNOWN,
        action=Action.OBSERVE,
        summary="Told when the attempt that it is about was over.",
        opened_at=now,
        closed_at=now,
        close_reason="Nothing is done about it any more.",
    )


def _give_to_their_nodes(job: Job) -> None:
    """What is found of a node without a slot says something of that node; the job's own nodes are none the worse."""
    part = job.slots.exclude(node=None).values("node_id")
    strangers = unjudged().filter(job=job).exclude(node__in=part)
    strangers.update(job=None, epoch=None, rank=None)


def _give_to_the_end_before(job: Job) -> None:
    """The kernel tells of what an attempt tore down when the next one runs already: it belongs to the end before."""
    ended = Rank.objects.filter(job=job, epoch=job.epoch, state=Rank.State.FAILED).exists()
    if ended or job.epoch < 2 or core.incidents_of(job).filter(closed_at=None).exists():
        return
    table = fault_codes.table()
    fresh = unjudged().filter(job=job, epoch=job.epoch)
    late = [each for each in fresh if (row := table.lookup(each.code)).follow_up and row.origin is Origin.KERNEL]
    if late:
        before = core.incidents_of(job).filter(epoch__lt=job.epoch).order_by("-id").first()
        since = min(each.found_at for each in late) - timedelta(seconds=TEARDOWN_S)
        if before is not None and before.opened_at >= since:
            Finding.objects.filter(pk__in=[each.pk for each in late]).update(incident=before)


def _give_to_what_they_end(job: Job) -> None:
    """That something is over belongs to the incident in which it began, also that of an earlier job: it opens none."""
    ends = {row.code: row.clears for row in fault_codes.table().values() if row.clears}
    for end in unjudged().filter(job=job, code__in=ends):
        what = Finding.objects.filter(node=end.node_id, code=ends[end.code], pk__lt=end.pk)
        began = what.select_related("incident").order_by("-pk").first()
        if began is not None and began.incident is not None and began.incident.job_id != job.pk:
            Finding.objects.filter(pk=end.pk).update(incident=began.incident)


def mute_planned(rows: QuerySet[Finding]) -> None:
    """Findings that only say that a node is not reached, in a planned time that covers it, are no incident at all."""
    for finding in rows.filter(code__in=UNREACHED).select_related("node"):
        window = maintenance.quieting(finding)
        if window is not None:
            Finding.objects.filter(pk=finding.pk).update(maintenance=window)
