"""Nodes and standbys: lists, a node's page, holds, checks."""

from django.contrib.auth.decorators import permission_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect
from django.views.decorators.http import require_POST, require_safe

from reliability.errors import InvalidInput, ReliabilityError
from reliability.filters import NodeFilter
from reliability.forms import DomainForm, HoldForm
from reliability.models import Hold, Node
from reliability.selectors import core
from reliability.selectors.node_pages import node_page, nodes_with_places, standby_lines
from reliability.services import nodes as node_services
from reliability.services import validations
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
    found = get_object_or_404(Node, name=name)
    return render_page(request, "nodes/page.html", _context(found), topics=[f"node:{found.pk}"])


def _context(found: Node, *, hold: HoldForm | None = None, domain: DomainForm | None = None) -> dict[str, object]:
    """Return what the page shows, with the form that was not filled in well, if any."""
    return {
        "node": found,
        "page": node_page(found),
        "hold_form": hold or HoldForm(),
        "domain_form": domain or DomainForm(initial={"domain": found.failure_domain}),
    }


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
        return render_page(request, "nodes/page.html", _context(found, hold=form), status=400)
    node_services.hold(found, owner=request.user.get_username(), reason=form.cleaned_data["reason"])
    tell(request, f"{name} is held: it will not be used until the hold is released.")
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
        return render_page(request, "nodes/page.html", _context(found, domain=form), status=400)
    domain = form.cleaned_data["domain"]
    tell(request, f"{name} fails together with the nodes of {domain}." if domain else f"{name} fails for itself.")
    return redirect("node", name=name)


@operates
@require_POST
def release_hold(request: HttpRequest, pk: int) -> HttpResponse:
    """Let a node be used again."""
    found = get_object_or_404(Hold.objects.select_related("node"), pk=pk)
    try:
        node_services.release_hold(found, by=request.user.get_username())
    except ReliabilityError as error:
        tell_error(request, error)
    else:
        tell(request, f"The hold on {found.node} is released.")
    return redirect("node", name=found.node.name)


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
