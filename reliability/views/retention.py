"""What the tiers of a job keep, what is about to go, and trial restores: one page, and what can be set on it."""

from typing import Any

from django.contrib.auth.decorators import permission_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect
from django.utils import timezone
from django.views.decorators.http import require_POST, require_safe

from reliability.errors import InvalidInput, ReliabilityError
from reliability.models import Job, Snapshot, TrialSchedule
from reliability.retention_forms import RetentionForm, ScheduleForm
from reliability.selectors import retention as selected
from reliability.selectors import trials
from reliability.services import retention, trial_restores
from reliability.views.page import reads, render_page, tell, tell_error

SHOWN = 50
operates = permission_required("reliability.operate_job", raise_exception=True)


@reads("job", "snapshot")
@require_safe
def page(request: HttpRequest, name: str) -> HttpResponse:
    """Show what each tier keeps and what would go now, and the trials."""
    return _page(request, get_object_or_404(Job, name=name))


def _page(
    request: HttpRequest,
    job: Job,
    *,
    form: RetentionForm | None = None,
    schedule: ScheduleForm | None = None,
    status: int = 200,
) -> HttpResponse:
    kept = TrialSchedule.objects.filter(job=job).first()
    initial = {"every_hours": kept.every_hours, "every_snapshots": kept.every_snapshots} if kept else {}
    outlook = selected.outlook(job, timezone.now(), most=SHOWN)
    context: dict[str, Any] = {
        "job": job,
        "uses": outlook.uses,
        "going": outlook.going,
        "planned": outlook.planned,
        "form": form or RetentionForm(rules=selected.rules_of(job)),
        "schedule": schedule or ScheduleForm(initial=initial),
        "scheduled": kept,
        "trials": trials.trials_of(job),
        "newest": trials.newest_stored(job),
    }
    return render_page(request, "retention/page.html", context, topics=[f"job:{job.pk}"], status=status)


@operates
@require_POST
def set_rules(request: HttpRequest, name: str) -> HttpResponse:
    """Set what the tiers keep."""
    job = get_object_or_404(Job, name=name)
    form = RetentionForm(request.POST, rules=selected.rules_of(job))
    if form.is_valid():
        try:
            retention.set_rules(job, form.rules(), by=request.user.get_username())
        except InvalidInput as error:
            form.refuse(error)
        else:
            tell(request, f"{name} keeps its snapshots by these rules from now on.")
            return redirect("job-retention", name=name)
    return _page(request, job, form=form, status=400)


@operates
@require_POST
def set_schedule(request: HttpRequest, name: str) -> HttpResponse:
    """Set when snapshots are tried by themselves."""
    job = get_object_or_404(Job, name=name)
    form = ScheduleForm(request.POST)
    if not form.is_valid():
        return _page(request, job, schedule=form, status=400)
    given = form.cleaned_data
    kept = trial_restores.set_schedule(
        job,
        every_hours=given["every_hours"],
        every_snapshots=given["every_snapshots"],
        by=request.user.get_username(),
    )
    tell(request, "Snapshots are tried by this schedule." if kept else "Snapshots are tried only when asked for.")
    return redirect("job-retention", name=name)


@operates
@require_POST
def try_now(request: HttpRequest, name: str) -> HttpResponse:
    """Have a standby try a snapshot: the one that is named, or the newest stored one."""
    job = get_object_or_404(Job, name=name)
    try:
        chosen = _named(request, job)
        trial = trial_restores.begin(job, by=request.user.get_username(), snapshot=chosen)
    except ReliabilityError as error:
        tell_error(request, error)
    else:
        tell(request, f"{trial.node.name} loads step {trial.snapshot.step} now; what comes of it stands below.")
    return redirect("job-retention", name=name)


def _named(request: HttpRequest, job: Job) -> Snapshot | None:
    given = request.POST.get("snapshot", "")
    if not given:
        return None
    found = Snapshot.objects.filter(job=job, pk=given).first() if given.isdecimal() and len(given) < 19 else None
    if found is None:
        raise InvalidInput("snapshot", "is none of this job", hint="Choose one from its ledger.")
    return found
