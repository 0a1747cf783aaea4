"""How often should a job save? The planner's page, its figures as CSV, the check by simulation, and applying a plan."""

import csv
from typing import Any
from urllib.parse import parse_qsl, urlencode

from django.contrib import messages
from django.contrib.auth.decorators import permission_required
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_POST, require_safe

from reliability.errors import InvalidInput, ReliabilityError
from reliability.models import Job
from reliability.plan_limits_form import AutomaticForm
from reliability.plan_order_form import OrderForm
from reliability.services import plans
from reliability.templatetags.stepkeeper import grouped
from reliability.views.page import (
    FRAGMENT_HEADER,
    SignedInRequest,
    reads,
    render_page,
    tell,
    tell_error,
    wants_fragment,
)
from reliability.views.planner import asked, checked, figures, kept, page
from reliability.views.planner.asked import Asked

KEPT = "kept"
PLANNED = "planned"
"""What the browser asks for in the header of a fragment when a value has changed."""
OPEN = "X-Open"
"""What is folded open in the browser; what is not need not be computed at every key."""
applies = permission_required("reliability.apply_plan", raise_exception=True)


def _shown(request: HttpRequest, found: Asked, *, status: int = 200, **more: Any) -> HttpResponse:
    """Return the page with the answer; where from its live parts come is an address of their own."""
    live = urlencode({"job": found.job.name if found.job else "", "part": KEPT})
    return render_page(
        request,
        "planner.html",
        page.context(request, found) | more,
        topics=[f"job:{found.job.pk}"] if found.job else [],
        status=status,
        refresh=f"{reverse('planner')}?{live}" if request.method == "GET" else "",
    )


@reads("job", "plan")
@require_safe
def plan(request: HttpRequest) -> HttpResponse:
    """Show the answer for the values in the address; a form of any browser fills them in."""
    if wants_fragment(request) and request.GET.get("part") == KEPT:
        job = Job.objects.filter(name=request.GET.get("job", "").replace("\x00", "")).first()
        return render_page(request, "planner.html", kept.context(job) | {"only_kept": True, "job": job})
    changed = request.headers.get(FRAGMENT_HEADER) == PLANNED
    found = asked.read(request, recent=changed)
    if changed:
        response = render(
            request, "planner/planned.html", page.planned(request, found, why="why" in request.headers.get(OPEN, ""))
        )
        response.headers["Cache-Control"] = "no-store"
        return response
    return _shown(request, found)


@reads("job", "plan")
@require_safe
def figure_csv(request: HttpRequest, figure: str) -> HttpResponse:
    """Return the values of a figure for the same query, all of them, in seconds and shares."""
    found = asked.read(request)
    known = figures.all_figures(found.answer) if found.answer else []
    chosen = next((one for one in known if one.name == figure), None)
    if chosen is None:
        raise Http404("There is no such figure for these values.")
    response = HttpResponse(content_type="text/csv; charset=utf-8")
    response.headers["Content-Disposition"] = f'attachment; filename="planner-{chosen.name}.csv"'
    response.headers["Cache-Control"] = "no-store"
    rows = csv.writer(response)
    rows.writerow(chosen.columns)
    rows.writerows(["" if cell is None else cell for cell in row] for row in chosen.values)
    return response


@reads("job", "plan")
@require_safe
def simulation(request: HttpRequest) -> HttpResponse:
    """Show the answer with a simulated run beside it; one at a time."""
    found = asked.read(request)
    simulated = checked.simulated(found.answer) if found.answer else None
    return _shown(request, found, status=409 if simulated and simulated.busy else 200, simulated=simulated)


@applies
@require_POST
def apply(request: SignedInRequest) -> HttpResponse:
    """Apply the period that was shown, or the one a person chose, to the job, and show how the ranks take it over."""
    found = asked.read(request)
    if found.answer is None or found.job is None:
        return _shown(request, found, status=400)
    by, form, pressed = request.user.get_username(), found.form, OrderForm(request.POST)
    if not pressed.is_valid():
        messages.error(request, f"Nothing was applied: {pressed.why}")
        return redirect(f"{reverse('planner')}?{found.address}")
    try:
        applied = plans.apply(
            found.job,
            request=found.answer.request,
            sources=plans.sources(form.known(), form.entered(), by=by),
            by=by,
            **pressed.order(),
        )
    except ReliabilityError as error:
        tell_error(request, error)
    else:
        every, first = grouped(applied.every_steps), grouped(applied.from_step)
        tell(request, f"Announced: every {every} steps from step {first} on. Who follows it stands below.")
    return redirect(f"{reverse('planner')}?{found.address}")


@applies
@require_POST
def automatic(request: SignedInRequest) -> HttpResponse:
    """Turn planning by itself on within limits, or off; what was asked beside it stays as it was."""
    beside = dict(parse_qsl(request.POST.get("address", "")))
    found = asked.answered(beside | {"job": request.POST.get("job", "")}, now=timezone.now())
    job, by = found.job, request.user.get_username()
    if job is None:
        return _shown(request, found, status=400)
    address = f"{reverse('planner')}?{found.address}#automatic"
    if "off" in request.POST:
        plans.stop_auto(job, by=by)
        tell(request, f"Automatic planning of {job.name} is off; its period stays as it is.")
        return redirect(address)
    form = AutomaticForm(request.POST, known=found.form.best_known())
    if form.is_valid():
        try:
            plans.set_auto(job, by=by, **form.limits())
        except InvalidInput as error:
            form.blame(error)
        except ReliabilityError as error:
            tell_error(request, error)
        else:
            tell(request, f"Automatic planning of {job.name} is on, within the limits below.{form.stands_in}")
            return redirect(address)
    return _shown(request, found, status=400, automatic_form=form)
