"""Which snapshots must a recovery not go back to, because what they hold is no number any more (docs/progress.md)?

Only a recovery that is made says so: where such a loss is only observed, everything that was saved stays good.
"""

from reliability.domain.faults import Action
from reliability.domain.modes import Mode
from reliability.domain.snapshots import SnapshotId
from reliability.models import Finding, Incident, Job, Snapshot
from reliability.selectors import fault_codes, fault_context, maintenance, precision
from reliability.services import snapshots

NO_NUMBER = "loss-no-number"


def distrust(incident: Incident, job: Job) -> None:
    """Distrust what was saved since a loss was no number, where that is among what a job is recovered from.

    Idempotent, and asked before every choice of a restore point: saves may arrive after the fault.
    """
    for finding in incident.findings.filter(code=NO_NUMBER).select_related("node"):
        first = finding.fields.get("step")
        if isinstance(first, int) and _recovered_from(finding, incident, job):
            _distrust_since(job, finding, first)


def _recovered_from(finding: Finding, incident: Incident, job: Job) -> bool:
    """Return whether it is what the recovery is for, or would be were nothing worse found."""
    if incident.code == NO_NUMBER:
        return incident.action != Action.OBSERVE
    policy = fault_context.class_actions(job).get(finding.fault_class)
    if Action.OBSERVE in (finding.action, policy) or _is_planned(finding):
        return False
    return precision.mode_for(NO_NUMBER, precision.group_of(finding.node)) is not Mode.SHADOW


def _is_planned(finding: Finding) -> bool:
    told = fault_context.found(finding, fault_codes.matcher())
    return any(each.observe and each.covers(told) for each in maintenance.of_findings([finding]))


def _distrust_since(job: Job, finding: Finding, first: int) -> None:
    since = Snapshot.objects.filter(job=job, epoch=finding.epoch or 0, step__gte=first, distrusted=False)
    reason = f"The loss was no number from step {first} on (rank {finding.rank})."
    for epoch, step in since.values_list("epoch", "step"):
        snapshots.distrust(job, SnapshotId(epoch, step), reason=reason)
