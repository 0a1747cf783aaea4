"""Quarantined hardware and repeat offenders: which machines are refused under any name, and which come back bad?"""

from collections.abc import Callable

from django.contrib.auth.decorators import permission_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect
from django.utils import timezone
from django.views.decorators.http import require_POST, require_safe

from reliability.errors import InvalidInput, ReliabilityError
from reliability.models import Node, Quarantine
from reliability.node_forms import NoteForm
from reliability.selectors import offenders, quarantined
from reliability.services import quarantine
from reliability.views.page import reads, render_page, tell, tell_error

PAST = 20
operates = permission_required("reliability.operate_job", raise_exception=True)
overrides = permission_required("reliability.override_quarantine", raise_exception=True)


@reads("node", "quarantine")
@require_safe
def quarantines(request: HttpRequest) -> HttpResponse:
    """Show what is quarantined, and who had hardware incidents again and again."""
    rows = list(quarantined.standing().select_related("node", "incident").prefetch_related("overrides__node"))
    met = quarantined.carriers(rows)
    context = {
        "lines": [(row, quarantined.spoken(row), met[row.pk]) for row in rows],
        "past": Quarantine.objects.exclude(released_at=None).select_related("node").order_by("-released_at")[:PAST],
        "offenders": offenders.repeat_offenders(timezone.now()),
    }
    return render_page(request, "nodes/quarantine.html", context)


@operates
@require_POST
def release(request: HttpRequest, pk: int) -> HttpResponse:
    """Let hardware be used again after its repair."""
    found = get_object_or_404(Quarantine.objects.select_related("node"), pk=pk)
    done = f"The hardware found bad as {found.found_as} may be used again."
    return _with_note(request, done, lambda by, note: quarantine.release(found, by=by, note=note))


@overrides
@require_POST
def override(request: HttpRequest, pk: int, name: str) -> HttpResponse:
    """Let one node be used in spite of a quarantine."""
    found = get_object_or_404(Quarantine.objects.select_related("node"), pk=pk)
    node = get_object_or_404(Node, name=name)
    done = f"{name} may be used in spite of the quarantine of {found.found_as}."
    return _with_note(request, done, lambda by, note: quarantine.override(found, node, by=by, note=note), then=name)


def _with_note(request: HttpRequest, done: str, work: Callable[[str, str], object], *, then: str = "") -> HttpResponse:
    form = NoteForm(request.POST)
    try:
        if not form.is_valid():
            raise InvalidInput("note", "is needed", hint="Say why; it is kept and shown.")
        work(request.user.get_username(), form.cleaned_data["note"])
    except ReliabilityError as error:
        tell_error(request, error)
    else:
        tell(request, done)
    name = then or request.POST.get("node", "")
    return redirect("node", name=name) if Node.objects.filter(name=name).exists() else redirect("quarantines")
