"""Jobs: the list, a job's page, its drills, its end."""

from django.contrib.auth.decorators import permission_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect
from django.utils import timezone
from django.views.decorators.http import require_http_methods, require_safe

from reliability.domain.failover import State
from reliability.errors import ReliabilityError
from reliability.filters import JobFilter
from reliability.forms import DrillForm
from reliability.models import Drill, Job
from reliability.selectors.job_pages import job_page
from reliability.selectors.progress import job_lines
from reliability.services import drills, failovers
from reliability.services import jobs as job_services
from reliability.views.page import reads, render_page, tell, tell_error

operates = permission_required("reliability.operate_job", raise_exception=True)


@reads("job")
@require_safe
def job_list(request: HttpRequest) -> HttpResponse:
    """Show all jobs with how far they are."""
    listed = JobFilter(request.GET, Job.objects.all())
    lines = job_lines(listed.qs, now=timezone.now())
    return render_page(request, "jobs/list.html", {"lines": lines, "filter": listed})


@reads("job")
@require_safe
def job(request: HttpRequest, name: str) -> HttpResponse:
    """Show one job."""
    found = get_object_or_404(Job, name=name)
    context = {"page": job_page(found, now=timezone.now()), "job": found}
    return render_page(request, "jobs/page.html", context, topics=[f"job:{found.pk}"])


@operates
@require_http_methods(["GET", "HEAD", "POST"])
def drill(request: HttpRequest, name: str) -> HttpResponse:
    """Ask before a node is broken on purpose; break it on POST."""
    found = get_object_or_404(Job, name=name)
    form = DrillForm(request.POST or None, job=found)
    silent = {what: drills.seconds(what) for what in Drill.What.values}
    if request.method == "POST" and form.is_valid():
        what, node = form.cleaned_data["what"], form.cleaned_data["node"]
        try:
            drills.start(found, node=node, what=what, by=request.user.get_username())
        except ReliabilityError as error:
            tell_error(request, error)
        else:
            tell(request, f"The drill runs: {form.what_label} on {node}. Watch the recovery below.")
        return redirect("job", name=name)
    return render_page(request, "jobs/drill.html", {"job": found, "form": form, "silent": silent})


@operates
@require_http_methods(["GET", "HEAD", "POST"])
def stop(request: HttpRequest, name: str) -> HttpResponse:
    """Ask before a job is ended; end it on POST."""
    found = get_object_or_404(Job, name=name)
    if request.method == "POST":
        try:
            job_services.stop(found, by=request.user.get_username())
        except ReliabilityError as error:
            tell_error(request, error)
        else:
            tell(request, f"{name} is being stopped; its snapshots stay.")
        return redirect("job", name=name)
    line = job_lines([found], now=timezone.now())[0]
    return render_page(request, "jobs/stop.html", {"job": found, "line": line})


@require_http_methods(["POST"])
def propose(request: HttpRequest, name: str) -> HttpResponse:
    """Ask for a recovery of a job that waits and for which none is open."""
    found = get_object_or_404(Job, name=name)
    try:
        made = failovers.propose_again(found, by=request.user)
    except ReliabilityError as error:
        tell_error(request, error)
        return redirect("job", name=name)
    if made.state == State.AWAITING_APPROVAL:
        tell(request, "Proposed again: this is what would be done now.")
    return redirect("failover", pk=made.pk)


@operates
@require_http_methods(["POST"])
def start(request: HttpRequest, name: str) -> HttpResponse:
    """Start a job that waits for its start."""
    found = get_object_or_404(Job, name=name)
    try:
        job_services.start(found, by=request.user.get_username())
    except ReliabilityError as error:
        tell_error(request, error)
    else:
        tell(request, f"{name} is being started.")
    return redirect("job", name=name)
