"""Failovers: the list, the card to decide on, the decision."""

from collections.abc import Callable

from django.contrib.auth.decorators import permission_required
from django.contrib.auth.models import User
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_POST, require_safe

from reliability.errors import ReliabilityError, StaleProposal
from reliability.filters import FailoverFilter
from reliability.forms import DecisionForm
from reliability.models import Failover
from reliability.selectors.failover_pages import failover_page
from reliability.services import failovers
from reliability.tables import FailoverTable
from reliability.views.page import reads, render_page, tell, tell_error

approves = permission_required("reliability.approve_failover", raise_exception=True)
RELATED = ("job", "incident", "slot", "failed_node", "standby", "superseded_by")


@reads("failover")
@require_safe
def failover_list(request: HttpRequest) -> HttpResponse:
    """Show all recoveries."""
    rows = Failover.objects.select_related("job", "failed_node", "standby").prefetch_related("drills")
    listed = FailoverFilter(request.GET, rows)
    table = FailoverTable(listed.qs).configured(request)
    waiting = [row for row in rows.filter(ended_at=None) if row.state == "awaiting_approval"]
    return render_page(request, "failovers/list.html", {"table": table, "filter": listed, "waiting": waiting})


def _show(
    request: HttpRequest, found: Failover, *, form: DecisionForm | None = None, status: int = 200
) -> HttpResponse:
    context = {
        "failover": found,
        "page": failover_page(found, now=timezone.now()),
        "form": form or DecisionForm(initial={"digest": found.digest}),
        "stale": status == 409,
    }
    topics = [f"failover:{found.pk}", f"job:{found.job_id}"]
    address = reverse("failover", args=[found.pk])
    return render_page(request, "failovers/page.html", context, topics=topics, status=status, refresh=address)


@reads("failover")
@require_safe
def failover(request: HttpRequest, pk: int) -> HttpResponse:
    """Show one recovery; while it waits, as the card to decide on."""
    return _show(request, get_object_or_404(Failover.objects.select_related(*RELATED), pk=pk))


def _newest_request(found: Failover) -> Failover:
    """Follow what took this request's place."""
    fresh = Failover.objects.select_related(*RELATED).get(pk=found.pk)
    seen = {fresh.pk}
    while fresh.superseded_by_id and fresh.superseded_by_id not in seen:
        seen.add(fresh.superseded_by_id)
        fresh = Failover.objects.select_related(*RELATED).get(pk=fresh.superseded_by_id)
    return fresh


Decision = Callable[[Failover, User, DecisionForm], str]


def _decide(request: HttpRequest, pk: int, decision: Decision) -> HttpResponse:
    found = get_object_or_404(Failover.objects.select_related(*RELATED), pk=pk)
    form = DecisionForm(request.POST)
    if not form.is_valid() or not isinstance(request.user, User):
        return _show(request, found, form=form, status=400)
    try:
        sentence = decision(found, request.user, form)
    except StaleProposal as error:
        tell_error(request, error)
        return _show(request, _newest_request(found), status=409)
    except ReliabilityError as error:
        tell_error(request, error)
    else:
        tell(request, sentence)
    return redirect("failover", pk=pk)


@approves
@require_POST
def approve(request: HttpRequest, pk: int) -> HttpResponse:
    """Approve exactly what was shown."""

    def decision(found: Failover, by: User, form: DecisionForm) -> str:
        failovers.approve(found, by=by, digest=form.cleaned_data["digest"], note=form.cleaned_data["note"])
        return f"Approved. The recovery of {found.job} runs; its stages appear below."

    return _decide(request, pk, decision)


@approves
@require_POST
def reject(request: HttpRequest, pk: int) -> HttpResponse:
    """Reject what was shown; nothing is touched."""

    def decision(found: Failover, by: User, form: DecisionForm) -> str:
        failovers.reject(found, by=by, digest=form.cleaned_data["digest"], note=form.cleaned_data["note"])
        return "Rejected. Nothing was touched."

    return _decide(request, pk, decision)


@approves
@require_POST
def cancel(request: HttpRequest, pk: int) -> HttpResponse:
    """Withdraw a recovery."""
    found = get_object_or_404(Failover, pk=pk)
    try:
        failovers.cancel(found, by=request.user)
    except ReliabilityError as error:
        tell_error(request, error)
    else:
        tell(request, "The recovery is cancelled.")
    return redirect("failover", pk=pk)
