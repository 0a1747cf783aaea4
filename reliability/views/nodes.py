"""Nodes and standbys: lists, a node's page, holds, checks. Every answer to a form that is wrong is the page again."""

from typing import Any

from django.contrib.auth.decorators import permission_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect
from django.utils import timezone
from django.views.decorators.http import require_POST, require_safe

from reliability.errors import InvalidInput, ReliabilityError
from reliability.filters import NodeFilter
from reliability.models import Hold, Node
from reliability.node_forms import DomainForm, HoldForm, NoteForm, QuarantineForm
from reliability.selectors import core, maintenance
from reliability.selectors.node_pages import node_page, nodes_with_places, standby_lines
from reliability.services import nodes as node_services
from reliability.services import quarantine, validations
from reliability.tables import NodeTable
from reliability.views.page import reads, render_page, tell, tell_error

operates = permission_required("reliability.operate_job", raise_exception=True)


@reads("node")
@require_safe
def node_list(request: HttpRequest) -> HttpResponse:
    """Show all nodes."""
    listed = NodeFilter(request.GET, nodes_with_places())
    table = NodeTable(listed.qs).configured(request)
    return render_page(request, "nodes/list.html", {"table": table, "filter": listed})


@reads("node")
@require_safe
def node(request: HttpRequest, name: str) -> HttpResponse:
    """Show one node."""
    return show(request, get_object_or_404(Node, name=name))


def show(request: HttpRequest, found: Node, *, status: int = 200, **forms: Any) -> HttpResponse:
    """Show the page of a node, with the forms that were not filled in well, by the names the template uses."""
    context = {
        "node": found,
        "page": node_page(found, now=timezone.now()),
        "windows": maintenance.of_node(found, timezone.now()),
        "hold_form": HoldForm(),
        "domain_form": DomainForm(initial={"domain": found.failure_domain}),
        "quarantine_form": QuarantineForm(auto_id="id_quarantine_%s"),
        **forms,
    }
    return render_page(request, "nodes/page.html", context, topics=[f"node:{found.pk}"], status=status)


@reads("node")
@require_safe
def standbys(request: HttpRequest) -> HttpResponse:
    """Show the standbys in the order in which they would be used."""
    busy = set(core.active_slots().values_list("node", flat=True))
    lines = standby_lines(Node.objects.all(), busy=busy)
    return render_page(request, "standbys/list.html", {"lines": lines})


@operates
@require_POST
def hold(request: HttpRequest, name: str) -> HttpResponse:
    """Keep a node from being used."""
    found = get_object_or_404(Node, name=name)
    form = HoldForm(request.POST)
    if not form.is_valid():
        return show(request, found, hold_form=form, status=400)
    until = form.until(timezone.now())
    node_services.hold(found, owner=request.user.get_username(), reason=form.cleaned_data["reason"], until=until)
    ends = "its time is over or the hold is released" if until else "the hold is released"
    tell(request, f"{name} is held: it will not be used until {ends}.")
    return redirect("node", name=name)


@operates
@require_POST
def set_domain(request: HttpRequest, name: str) -> HttpResponse:
    """Say what fails together with a node."""
    found = get_object_or_404(Node, name=name)
    form = DomainForm(request.POST)
    if form.is_valid():
        try:
            node_services.set_failure_domain(found, form.cleaned_data["domain"])
        except InvalidInput as error:
            form.add_error("domain", error.message)
    if not form.is_valid():
        return show(request, found, domain_form=form, status=400)
    domain = form.cleaned_data["domain"]
    tell(request, f"{name} fails together with the nodes of {domain}." if domain else f"{name} fails for itself.")
    return redirect("node", name=name)


@operates
@require_POST
def release_hold(request: HttpRequest, pk: int) -> HttpResponse:
    """Let a node be used again."""
    found = get_object_or_404(Hold.objects.select_related("node"), pk=pk)
    form = NoteForm(request.POST)
    if not form.is_valid():
        tell_error(request, InvalidInput("note", "is needed", hint="Say why the hold is released; it is kept with it."))
        return redirect("node", name=found.node.name)
    try:
        stood = node_services.release_hold(found, by=request.user.get_username(), note=form.cleaned_data["note"])
    except ReliabilityError as error:
        tell_error(request, error)
    else:
        tell(request, f"The hold on {found.node} {'is released' if stood else 'was released already'}.")
    return redirect("node", name=found.node.name)


@operates
@require_POST
def put_in_quarantine(request: HttpRequest, name: str) -> HttpResponse:
    """Have the hardware of a node refused under any name."""
    found = get_object_or_404(Node, name=name)
    form = QuarantineForm(request.POST, auto_id="id_quarantine_%s")
    if not form.is_valid():
        return show(request, found, quarantine_form=form, status=400)
    try:
        quarantine.put_by_hand(found, reason=form.cleaned_data["reason"], by=request.user.get_username())
    except ReliabilityError as error:
        tell_error(request, error)
    else:
        tell(request, f"The hardware of {name} is quarantined: it is refused under any name.")
    return redirect("node", name=name)


@operates
@require_POST
def validate(request: HttpRequest, name: str) -> HttpResponse:
    """Check a standby now."""
    found = get_object_or_404(Node, name=name)
    try:
        validations.begin(found)
    except ReliabilityError as error:
        tell_error(request, error)
    else:
        tell(request, f"{name} is being checked: bandwidth to its peers, then silent corruption.")
    return redirect("node", name=name)
