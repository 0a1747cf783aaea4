"""The ledger of snapshots: over all jobs, of one job, and one step with every rank and tier."""

from typing import Any
from urllib.parse import urlencode

from django.contrib.auth.decorators import permission_required
from django.core.paginator import Paginator
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect
from django.utils import timezone
from django.views.decorators.http import require_POST, require_safe

from reliability.domain.ledger import MEANING
from reliability.errors import InvalidInput
from reliability.filters import JobFilter, LedgerFilter
from reliability.models import Job, Snapshot
from reliability.retention_forms import DistrustForm
from reliability.selectors import ledger_pages
from reliability.selectors.ledger_rows import newest_rows
from reliability.selectors.progress import job_lines
from reliability.selectors.rooms import warnings
from reliability.services import snapshots
from reliability.tables import NearestPage
from reliability.views.page import reads, render_page, tell

NEWEST = 40
STEPS_A_PAGE = 50
operates = permission_required("reliability.operate_job", raise_exception=True)


@reads("job", "snapshot")
@require_safe
def over_jobs(request: HttpRequest) -> HttpResponse:
    """Show from what each job could go on, and the newest snapshots over all jobs."""
    listed = JobFilter(request.GET, Job.objects.all())
    jobs = list(listed.qs)
    context = {
        "ledger": newest_rows(jobs, limit=NEWEST),
        "lines": job_lines(jobs, now=timezone.now()),
        "warnings": warnings(),
        "filter": listed,
    }
    return render_page(request, "snapshots/list.html", context)


@reads("job", "snapshot")
@require_safe
def job_ledger(request: HttpRequest, name: str) -> HttpResponse:
    """Show from what a job could go on now, and its snapshots, newest first."""
    job = get_object_or_404(Job, name=name)
    taken = Snapshot.objects.filter(job=job)
    listed = LedgerFilter(request.GET, taken, jobs=[job.pk])
    rows = listed.qs.select_related("job").order_by("-step", "-epoch")
    page = NearestPage(rows, STEPS_A_PAGE).page(request.GET.get("page", 1))
    ledger = ledger_pages.job_ledger(job, page.object_list, now=timezone.now())
    context = {
        "job": job,
        "filter": listed,
        "page": page,
        "hidden": 0 if any(listed.data.get(name) for name in listed.filters) else taken.count() - page.paginator.count,
        "others": _without(request, "page", "open"),
        "csv": _same_rows(job, listed),
        "meanings": MEANING,
        "opened": ledger_pages.opened(request.GET.get("open", ""), ledger.rows),
        "ledger": ledger,
    }
    return render_page(request, "snapshots/job.html", context, topics=[f"job:{job.pk}"])


@reads("job", "snapshot")
@require_safe
def snapshot(request: HttpRequest, pk: int) -> HttpResponse:
    """Show one step: every rank on every tier, and what happened to it."""
    return _page(request, get_object_or_404(Snapshot.objects.select_related("job"), pk=pk), DistrustForm())


@operates
@require_POST
def distrust(request: HttpRequest, pk: int) -> HttpResponse:
    """Say that a step must never be restored, and why."""
    found = get_object_or_404(Snapshot.objects.select_related("job"), pk=pk)
    form = DistrustForm(request.POST)
    if not form.is_valid():
        return _page(request, found, form, status=400)
    try:
        snapshots.distrust_by_hand(found, reason=form.cleaned_data["reason"], by=request.user.get_username())
    except InvalidInput as error:
        form.add_error("reason" if error.field == "reason" else None, f"{error.message} {error.hint}".strip())
        return _page(request, found, form, status=400)
    tell(request, f"Step {found.step} is never restored again.")
    return redirect("snapshot", pk=pk)


def _page(request: HttpRequest, found: Snapshot, form: DistrustForm, status: int = 200) -> HttpResponse:
    ranks = Paginator(range(found.job.world_size), ledger_pages.RANKS_A_PAGE)
    shown = ranks.get_page(request.GET.get("page"))
    context = {
        "snapshot": found,
        "page": ledger_pages.snapshot_page(found, list(shown.object_list)),
        "ranks": shown,
        "meanings": MEANING,
        "distrust_form": form,
    }
    return render_page(request, "snapshots/page.html", context, topics=[f"job:{found.job_id}"], status=status)


def _same_rows(job: Job, listed: LedgerFilter) -> str:
    """Return the query by which REST lists what the page lists."""
    asked = {name: value for name in ("tier", "state", "since_step", "removed") if (value := listed.data.get(name))}
    asked["up_to_step"] = asked.pop("since_step", "")
    if not asked.pop("removed", "") and "state" not in asked:
        asked["removed"] = "false"
    return urlencode({"job": job.name, **{name: value for name, value in asked.items() if value}, "format": "csv"})


def _without(request: HttpRequest, *names: str) -> str:
    """Return the query of the address without these, for links that set them."""
    query: Any = request.GET.copy()
    for name in names:
        query.pop(name, None)
    return str(query.urlencode())
