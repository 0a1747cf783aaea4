"""Of which job, attempt and rank does a report speak, and has its node a part in them?"""

from reliability.domain.orders import OrderKind
from reliability.errors import InvalidInput
from reliability.models import Job, Node, OrderRecord, Rank, Report
from reliability.selectors import core


def job_of(row: Report) -> Job:
    """Return the job a report names. Raises Job.DoesNotExist for one that was never here."""
    return Job.objects.get(name=row.job_name)


def if_taking_part(job: Job | None, node: Node) -> Job | None:
    """Return the job if this node holds a slot of it: nobody else's word changes what happens to it."""
    return job if job is not None and job.slots.filter(node=node).exists() else None


def named_job(row: Report) -> Job | None:
    """Return the job a report speaks of, None when the node has no part in it: then it speaks of the node alone."""
    return if_taking_part(Job.objects.filter(name=row.job_name).first(), row.node) if row.job_name else None


def job_on(node: Node) -> Job | None:
    """Return the job that a node has an active slot of."""
    slot = core.active_slots().filter(node=node, job__epoch__gt=0).select_related("job").first()
    return slot.job if slot else None


def epoch_of(row: Report, job: Job | None) -> int | None:
    """Return the attempt a report belongs to: what it says itself, else the current one of its job."""
    if job is None:
        return None
    return row.epoch if row.job_name and row.epoch is not None else job.epoch


def rank_of(row: Report, job: Job) -> Rank:
    """Return the rank a report names. Raises InvalidInput for one that does not run on the node."""
    rank = Rank.objects.select_related("slot").filter(job=job, rank=row.body["rank"]).first()
    if rank is None or rank.slot.node_id != row.node_id:
        raise InvalidInput("rank", f"{row.body['rank']} of job {job.name} does not run on {row.node.name}")
    return rank


def was_started(job: Job, epoch: int) -> bool:
    """Return whether ranks of this epoch were ordered at all: an end before that is the old attempt's, by our order."""
    return OrderRecord.objects.filter(job=job, kind=OrderKind.START, epoch=epoch).exists()
