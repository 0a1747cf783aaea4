"""What else is known when findings are judged: earlier findings of the nodes, earlier ends of the job, who is where."""

from collections.abc import Mapping, Sequence
from datetime import timedelta

from reliability.domain import faults
from reliability.domain.faults.words import Value
from reliability.models import Failover, Finding, Job, Node, Rank
from reliability.selectors import core

LAST_LINE = "Last line: "
SHOWN = 200
HISTORY_ROWS = 300
ATTEMPTS = 20
PATIENCE_S = 15.0
PATIENCE_STEPS = 3.0
"""So many of its own steps, and at least PATIENCE_S, without a new step: then training does not go on."""


def fields_of(code: str, evidence: str, matcher: faults.Matcher) -> Mapping[str, Value]:
    """Return what the line behind a finding carries; nothing when its evidence is no line of that code."""
    told = matcher.find(evidence.rpartition(LAST_LINE)[2])
    return told.fields if told is not None and told.code == code else {}


def found(finding: Finding, matcher: faults.Matcher) -> faults.Finding:
    """Return a finding as the domain judges it."""
    return faults.Finding(
        code=finding.code,
        node=finding.node.name,
        at=finding.found_at.timestamp(),
        order=finding.pk,
        rank=finding.rank,
        epoch=finding.epoch,
        evidence=finding.evidence[-SHOWN:],
        job=finding.job.name if finding.job else "",
        count=finding.count,
        fields=fields_of(finding.code, finding.evidence, matcher),
    )


def history(findings: Sequence[Finding], matcher: faults.Matcher) -> tuple[faults.Finding, ...]:
    """Return earlier findings of the same nodes with those codes whose repetition means something."""
    rules = {each.code: rule for each in findings if (rule := matcher.table.lookup(each.code).repeat) is not None}
    if not rules:
        return ()
    since = min(each.found_at for each in findings) - timedelta(seconds=max(rule.window_s for rule in rules.values()))
    rows = Finding.objects.filter(code__in=rules, node__in={each.node_id for each in findings}, found_at__gte=since)
    earlier = rows.exclude(pk__in=[each.pk for each in findings]).select_related("node", "job").order_by("-id")
    return tuple(found(each, matcher) for each in earlier[:HISTORY_ROWS])


def of_job(job: Job, findings: Sequence[Finding], matcher: faults.Matcher) -> faults.Context:
    """Return the context of a job's findings."""
    slots = core.slots_of(job)
    ranks = list(Rank.objects.filter(job=job, epoch=job.epoch))
    seen = [rank.progress_at.timestamp() for rank in ranks if rank.progress_at is not None]
    return faults.Context(
        ranks_ended=not ranks or any(rank.state in (Rank.State.EXITED, Rank.State.FAILED) for rank in ranks),
        progress_at=min(seen) if len(seen) == job.world_size else None,
        patience_s=max(PATIENCE_S, PATIENCE_STEPS * max((rank.step_s or 0.0 for rank in ranks), default=0.0)),
        history=history(findings, matcher),
        attempts=_attempts(job),
        step=core.newest_step_reached(job),
        ranks=job.world_size,
        rank_nodes=core.placement(job),
        addresses={slot.node.address: slot.node.name for slot in slots if slot.node},
    )


def of_node(findings: Sequence[Finding], matcher: faults.Matcher) -> faults.Context:
    """Return the context of findings that belong to no job."""
    return faults.Context(history=history(findings, matcher))


def _attempts(job: Job) -> tuple[faults.Attempt, ...]:
    """Return how earlier attempts of a job ended: the root's code and node, and the newest step that was reached."""
    rows = Failover.objects.filter(job=job, from_epoch__lt=job.epoch, fault_step__isnull=False)
    ends = rows.order_by("-id").values_list("incident__code", "incident__node", "fault_step")[:ATTEMPTS]
    names = dict(Node.objects.filter(pk__in=[node for _, node, _ in ends if node]).values_list("pk", "name"))
    return tuple(
        faults.Attempt(code=code, nodes=frozenset({names[node]}), step=step)
        for code, node, step in ends
        if node in names and step is not None
    )
