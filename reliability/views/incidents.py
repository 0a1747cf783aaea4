"""Incidents: the list, the page of one with its timeline, and what people do with it."""

from collections.abc import Callable

from django.contrib.auth.decorators import permission_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect
from django.urls import reverse
from django.views.decorators.http import require_POST, require_safe

from reliability.errors import InvalidInput, ReliabilityError
from reliability.filters import IncidentFilter
from reliability.forms import IncidentNoteForm
from reliability.models import Incident
from reliability.selectors import incident_pages, mode_pages
from reliability.services import by_hand, incident_closing
from reliability.tables import IncidentTable
from reliability.views.page import reads, render_page, tell, tell_error

closes = permission_required(incident_closing.CLOSING, raise_exception=True)
releases = permission_required(incident_closing.RELEASING, raise_exception=True)
Work = Callable[[Incident, str], str]


@reads("incident")
@require_safe
def incident_list(request: HttpRequest) -> HttpResponse:
    """Show all incidents."""
    rows = Incident.objects.select_related("job", "node").prefetch_related("decisions__verdicts")
    listed = IncidentFilter(request.GET, rows)
    table = IncidentTable(listed.qs).configured(request)
    return render_page(request, "incidents/list.html", {"table": table, "filter": listed})


@reads("incident")
@require_safe
def incident(request: HttpRequest, pk: int) -> HttpResponse:
    """Show one incident with its evidence."""
    return _show(request, get_object_or_404(Incident.objects.select_related("job", "node"), pk=pk))


def _show(
    request: HttpRequest, found: Incident, *, form: IncidentNoteForm | None = None, status: int = 200
) -> HttpResponse:
    context = {
        "incident": found,
        "page": incident_pages.page(found, number=request.GET.get("page", "1")),
        "decided": [(each, by_hand.may_be_done(each)) for each in mode_pages.of_incident(found)],
        "form": form or IncidentNoteForm(),
        "release_form": IncidentNoteForm(auto_id="id_release_%s", needed=False),
    }
    topics = [f"incident:{found.pk}", *([f"job:{found.job_id}"] if found.job_id else [])]
    address = request.get_full_path() if request.method == "GET" else reverse("incident", args=[found.pk])
    return render_page(request, "incidents/page.html", context, topics=topics, status=status, refresh=address)


def _with_note(request: HttpRequest, pk: int, work: Work, *, needed: bool = True) -> HttpResponse:
    found = get_object_or_404(Incident.objects.select_related("job", "node"), pk=pk)
    form = IncidentNoteForm(request.POST, needed=needed)
    if not form.is_valid():
        return _show(request, found, form=form, status=400)
    try:
        tell(request, work(found, form.cleaned_data["note"]))
    except InvalidInput as error:
        form.add_error("note", f"{error.message}. {error.hint}")
        return _show(request, found, form=form, status=400)
    except ReliabilityError as error:
        tell_error(request, error)
    return redirect("incident", pk=pk)


@closes
@require_POST
def close(request: HttpRequest, pk: int) -> HttpResponse:
    """Close an incident with a note."""

    def work(found: Incident, note: str) -> str:
        incident_closing.close(found, by=request.user, note=note)
        return f"Incident {pk} is closed."

    return _with_note(request, pk, work)


@closes
@require_POST
def reopen(request: HttpRequest, pk: int) -> HttpResponse:
    """Open an incident again."""

    def work(found: Incident, note: str) -> str:
        incident_closing.reopen(found, by=request.user, note=note)
        return f"Incident {pk} is open again."

    return _with_note(request, pk, work)


@closes
@require_POST
def add_note(request: HttpRequest, pk: int) -> HttpResponse:
    """Keep a note."""

    def work(found: Incident, note: str) -> str:
        incident_closing.add_note(found, by=request.user, note=note)
        return "The note is kept."

    return _with_note(request, pk, work)


@releases
@require_POST
def release(request: HttpRequest, pk: int) -> HttpResponse:
    """Have done after all what was held back."""

    def work(found: Incident, note: str) -> str:
        incident_closing.release(found, by=request.user, note=note)
        return "Released: every node that shows it is treated as faulty itself."

    return _with_note(request, pk, work, needed=False)
