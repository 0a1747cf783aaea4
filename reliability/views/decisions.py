"""Decisions and whether they were right; how much is done by itself, and what evidence allows it."""

from collections.abc import Callable

from django.contrib.auth.decorators import permission_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect
from django.urls import reverse
from django.utils.http import url_has_allowed_host_and_scheme
from django.views.decorators.http import require_POST, require_safe

from reliability.domain.modes import Reach
from reliability.errors import InvalidInput, ReliabilityError, StaleProposal
from reliability.filters import DecisionFilter
from reliability.mode_forms import ModeForm, ScopeForm, VerdictForm, code_form, wide_form
from reliability.models import Decision
from reliability.selectors import fault_codes, mode_pages, precision
from reliability.services import by_hand, decisions, modes
from reliability.tables import DecisionTable
from reliability.views.page import reads, render_page, tell, tell_error

judges = permission_required(decisions.PERMISSION, raise_exception=True)
operates = permission_required(by_hand.OPERATE, raise_exception=True)
sets = permission_required("reliability.set_action_modes", raise_exception=True)
RELATED = ("job", "node", "incident", "rule")
FIELDS = {"needed_precision": "needed_percent"}


@reads("decision")
@require_safe
def decision_list(request: HttpRequest) -> HttpResponse:
    """Show all decisions, those without a verdict first when asked for."""
    rows = Decision.objects.select_related(*RELATED).prefetch_related("verdicts")
    listed = DecisionFilter(request.GET, rows)
    table = DecisionTable(listed.qs).configured(request)
    return render_page(request, "decisions/list.html", {"table": table, "filter": listed})


def _back(request: HttpRequest, otherwise: str) -> HttpResponse:
    """Return to the page of this site that the form was on."""
    to = request.POST.get("next", "")
    safe = url_has_allowed_host_and_scheme(to, allowed_hosts=None) and to.startswith("/")
    return redirect(to if safe else otherwise)


@judges
@require_POST
def verdict(request: HttpRequest, pk: int) -> HttpResponse:
    """Say whether a decision was right."""
    found = get_object_or_404(Decision.objects.select_related(*RELATED), pk=pk)
    form = VerdictForm(request.POST)
    try:
        if not form.is_valid():
            raise InvalidInput("verdict", "is needed", hint="Right, wrong or unclear, and a short note.")
        decisions.give_verdict(found, form.cleaned_data["verdict"], by=request.user, note=form.cleaned_data["note"])
    except ReliabilityError as error:
        tell_error(request, error)
    else:
        tell(request, f"Decision {pk} is marked as {found.verdict}.")
    return _back(request, reverse("decisions"))


@operates
@require_POST
def carry_out(request: HttpRequest, pk: int) -> HttpResponse:
    """Do by hand what was only observed."""
    found = get_object_or_404(Decision.objects.select_related(*RELATED), pk=pk)
    try:
        failover = by_hand.carry_out(found, by=request.user)
    except ReliabilityError as error:
        tell_error(request, error)
        return _back(request, reverse("incident", args=[found.incident_id]))
    if failover is None:
        tell(request, "It is held.")
        return redirect("incident", pk=found.incident_id)
    tell(request, "This is what would be done: approve it as it is shown.")
    return redirect("failover", pk=failover.pk)


@reads("moderule")
@require_safe
def mode_list(request: HttpRequest) -> HttpResponse:
    """Show the rules in force, their changes, and a form for families and all codes."""
    return _list(request)


def _list(request: HttpRequest, *, form: ModeForm | None = None, status: int = 200) -> HttpResponse:
    groups = precision.groups()
    rules = [(rule, precision.counts(rule.reach, rule.name, rule.group)) for rule in precision.in_force()]
    context = {
        "rules": rules,
        "changes": mode_pages.latest_changes(),
        "form": form or wide_form(groups=groups),
        "seen": precision.newest_change(),
    }
    return render_page(request, "decisions/modes.html", context, status=status)


def _scope(form: ScopeForm | ModeForm) -> modes.Scope:
    given = form.cleaned_data
    return modes.read_scope(given["reach"], given["name"] if given["reach"] != Reach.ALL else "", given["group"])


def _where(request: HttpRequest) -> HttpResponse:
    name = request.POST.get("name", "")
    of_code = request.POST.get("reach") == Reach.CODE and name in fault_codes.table()
    return redirect("fault-code", code=name) if of_code else redirect("modes")


@sets
@require_POST
def set_mode(request: HttpRequest) -> HttpResponse:
    """Say how much is done by itself."""
    code = request.POST.get("name", "") if request.POST.get("reach") == Reach.CODE else ""
    groups = precision.groups()
    form = code_form(code, groups=groups, bound=request.POST) if code else wide_form(groups=groups, bound=request.POST)
    if not form.is_valid():
        return _refused(request, form)
    try:
        scope, given = _scope(form), form.cleaned_data
        rule = modes.set_mode(
            scope,
            mode=given["mode"],
            need=form.need(),
            unlocks_itself=given["unlocks_itself"],
            by=request.user.get_username(),
            reason=given["reason"],
            seen_version=precision.version_seen(scope.keys(), given["seen"]),
        )
    except InvalidInput as error:
        field = FIELDS.get(error.field, error.field)
        shown = {item.name for item in form.visible_fields()}
        form.add_error(field if field in shown else None, _sentence(error))
        return _refused(request, form)
    except StaleProposal as error:
        tell_error(request, error)
        return _where(request)
    tell(request, f"{scope.name or 'All codes'}: {rule.get_mode_display()} from now on.")
    return _where(request)


def _sentence(error: InvalidInput) -> str:
    return f"{error.message.removeprefix(f'{error.field}: ').capitalize()}. {error.hint}".strip()


def _refused(request: HttpRequest, form: ModeForm) -> HttpResponse:
    """Show the page of all rules with the form as it was filled in; it has the same fields for a code."""
    return _list(request, form=form, status=400)


def _with_scope(request: HttpRequest, work: Callable[[modes.Scope, ScopeForm], str]) -> HttpResponse:
    form = ScopeForm(request.POST, groups=precision.groups())
    if not form.is_valid():
        tell_error(request, InvalidInput("reason", "is needed", hint="It is kept with the change."))
        return _where(request)
    try:
        tell(request, work(_scope(form), form))
    except ReliabilityError as error:
        tell_error(request, error)
    return _where(request)


@sets
@require_POST
def take_back(request: HttpRequest) -> HttpResponse:
    """Take a rule back."""

    def work(scope: modes.Scope, form: ScopeForm) -> str:
        given = form.cleaned_data
        seen = precision.version_seen(scope.keys(), given["seen"])
        modes.take_back(scope, by=request.user.get_username(), reason=given["reason"], seen_version=seen)
        return "The rule is taken back."

    return _with_scope(request, work)


@sets
@require_POST
def unlock(request: HttpRequest) -> HttpResponse:
    """Allow automatic action that the evidence allows."""

    def work(scope: modes.Scope, form: ScopeForm) -> str:
        modes.unlock(scope, by=request.user.get_username(), reason=form.cleaned_data["reason"])
        return f"{scope.name} is automatic from now on. A wrong decision locks it again."

    return _with_scope(request, work)
