"""Planned maintenance: calendar and list, one window, planning and ending."""

from django.contrib.auth.decorators import permission_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect
from django.utils import timezone
from django.views.decorators.http import require_POST, require_safe

from reliability.errors import InvalidInput, ReliabilityError
from reliability.maintenance_forms import MaintenanceForm
from reliability.models import MaintenanceWindow
from reliability.selectors import maintenance as selected
from reliability.selectors import maintenance_pages
from reliability.services import maintenance
from reliability.views.page import reads, render_page, tell, tell_error

plans = permission_required("reliability.plan_maintenance", raise_exception=True)
FINDINGS = 50


@reads("maintenancewindow")
@require_safe
def calendar_page(request: HttpRequest) -> HttpResponse:
    """Show a month and the list."""
    return _calendar(request)


def _calendar(request: HttpRequest, *, form: MaintenanceForm | None = None, status: int = 200) -> HttpResponse:
    now = timezone.now()
    first = maintenance_pages.month_of(request.GET.get("month", ""), now)
    context = {
        "month": maintenance_pages.month(first, now),
        "rows": maintenance_pages.listed(now),
        "form": form or MaintenanceForm(),
        "planning": form is not None,
        "names": maintenance_pages.node_names(),
    }
    return render_page(request, "maintenance/calendar.html", context, topics=["maintenance"], status=status)


@reads("maintenancewindow")
@require_safe
def window(request: HttpRequest, pk: int) -> HttpResponse:
    """Show one window."""
    found = get_object_or_404(MaintenanceWindow.objects.prefetch_related("nodes"), pk=pk)
    now = timezone.now()
    context = {
        "row": maintenance_pages.row(found, now),
        "nodes": selected.nodes_of(found),
        "overlapping": [maintenance_pages.row(each, now) for each in maintenance.overlapping(found)],
        "findings": found.findings.select_related("node").order_by("-found_at")[:FINDINGS],
    }
    return render_page(request, "maintenance/window.html", context, topics=["maintenance"])


@plans
@require_POST
def plan(request: HttpRequest) -> HttpResponse:
    """Plan a window."""
    form = MaintenanceForm(request.POST)
    if not form.is_valid():
        return _calendar(request, form=form, status=400)
    try:
        made = maintenance.plan(form.plan(), by=request.user.get_username())
    except InvalidInput as error:
        field = error.field if error.field in form.fields else "muted" if error.field == "observe" else None
        form.add_error(field, f"{error.message.removeprefix(f'{error.field}: ')}. {error.hint}".strip())
        return _calendar(request, form=form, status=400)
    tell(request, f"Planned: {made.reason}.")
    return redirect("maintenance-window", pk=made.pk)


@plans
@require_POST
def end(request: HttpRequest, pk: int) -> HttpResponse:
    """End a window now, or call it off."""
    found = get_object_or_404(MaintenanceWindow, pk=pk)
    try:
        maintenance.end(found, by=request.user.get_username())
    except ReliabilityError as error:
        tell_error(request, error)
    else:
        tell(request, "It is over: from now on what is found of its nodes counts.")
    return redirect("maintenance-window", pk=pk)
