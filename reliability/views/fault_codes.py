"""The fault-code table: search, families, a line to try, and changes with who, when and why."""

from collections import Counter
from collections.abc import Callable
from typing import Any

from django.contrib.auth.decorators import permission_required
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.views.decorators.http import require_POST, require_safe

from reliability.domain.fault_tables import shipped
from reliability.domain.faults import Origin
from reliability.errors import InvalidInput, ReliabilityError, StaleProposal
from reliability.fault_code_forms import AddForm, ChangeForm, LineForm, ReasonForm, SearchForm
from reliability.mode_forms import code_form
from reliability.models import FaultCodeChange
from reliability.selectors import fault_codes, mode_pages, precision
from reliability.services import fault_codes as changes
from reliability.views.page import reads, render_page, tell, tell_error

edits = permission_required("reliability.edit_fault_codes", raise_exception=True)
RECENT = 20
ADDING = "id_add_%s"
NEW = {"version": 0, "debounce_s": 0, "severity": "warning", "action": "observe", "origin": "output"}


@reads("faultcodechange")
@require_safe
def fault_code_list(request: HttpRequest) -> HttpResponse:
    """Show the families, the codes that are searched for, and what a line would come to."""
    return _list(request)


def _list(request: HttpRequest, *, form: AddForm | None = None, status: int = 200) -> HttpResponse:
    matcher = fault_codes.matcher()
    families = fault_codes.families(matcher.table)
    search, tried = (
        SearchForm(request.GET or None, families=families, auto_id="id_search_%s"),
        LineForm(request.GET or None, auto_id="id_try_%s"),
    )
    asked = search.cleaned_data if search.is_valid() else {}
    rows = fault_codes.searched(matcher.table, **asked) if any(asked.values()) else None
    counts = Counter(row.source for row in matcher.table.values())
    context = {
        "search": search,
        "rows": rows,
        "families": [(name, counts[name]) for name in families],
        "total": len(matcher.table),
        "precision": precision.counts_by_code() if rows is not None else {},
        "changed": set(fault_codes.in_force()),
        "tried": tried,
        "found": _found(tried) if "line" in request.GET and tried.is_valid() else None,
        "otherwise": fault_codes.matching_otherwise(),
        "last_change": fault_codes.last_change(),
        "shipped": shipped(),
        "recent": FaultCodeChange.objects.all()[:RECENT],
        "add": form or AddForm(initial=NEW, auto_id=ADDING),
        "adding": form is not None,
    }
    return render_page(request, "fault_codes/list.html", context, status=status)


def _found(tried: LineForm) -> dict[str, Any]:
    matcher, origin = fault_codes.matcher(), tried.cleaned_data["origin"]
    told = matcher.find(tried.cleaned_data["line"], origin=Origin(origin) if origin else None)
    return {"told": told, "row": matcher.table.lookup(told.code) if told else None}


@reads("faultcodechange")
@require_safe
def fault_code(request: HttpRequest, code: str) -> HttpResponse:
    """Show one code with its lines, examples and history."""
    return _show(request, code)


def _show(request: HttpRequest, code: str, *, form: ChangeForm | None = None, status: int = 200) -> HttpResponse:
    row, history = fault_codes.table().get(code), fault_codes.history(code)
    if row is None and not history:
        raise Http404
    version = history[0].version if history else 0
    phrase = history[0].values.get("phrase", "") if history else ""
    context = {
        "code": code,
        "row": row,
        "history": history,
        "phrase": phrase,
        "changed": bool(history) and history[0].kind != FaultCodeChange.Kind.RESET,
        "form": form or (ChangeForm.of(row, version=version, phrase=phrase) if row else None),
        "reason": ReasonForm(initial={"version": version}, auto_id="id_short_%s"),
        "modes": mode_pages.code_modes(code),
        "mode_changes": precision.changes_of(code),
        "mode_form": code_form(code, groups=precision.groups()),
    }
    address = request.path if request.method == "GET" else ""
    return render_page(request, "fault_codes/page.html", context, status=status, refresh=address)


@edits
@require_POST
def change(request: HttpRequest, code: str) -> HttpResponse:
    """Change what a code means or does."""
    form = ChangeForm(request.POST)
    if not form.is_valid():
        return _show(request, code, form=form, status=400)
    try:
        changes.change(code, values=form.values(), **_by(request, form))
    except InvalidInput as error:
        _blame(form, error)
        return _show(request, code, form=form, status=400)
    except StaleProposal as error:
        tell_error(request, error)
        return _show(request, code, status=409)
    tell(request, f"{code} is changed. It holds for what is found from now on.")
    return redirect("fault-code", code=code)


@edits
@require_POST
def add(request: HttpRequest) -> HttpResponse:
    """Add a code that is new."""
    form = AddForm(request.POST, auto_id=ADDING)
    if not form.is_valid():
        return _list(request, form=form, status=400)
    code = form.cleaned_data["code"]
    try:
        if code in fault_codes.table():
            raise InvalidInput("code", f"{code} is there already", hint="Change it on its own page.")
        changes.change(code, values=form.values(), by=request.user.get_username(), reason=form.cleaned_data["reason"])
    except InvalidInput as error:
        _blame(form, error)
        return _list(request, form=form, status=400)
    tell(request, f"{code} is added.")
    return redirect("fault-code", code=code)


@edits
@require_POST
def switch(request: HttpRequest, code: str) -> HttpResponse:
    """Switch a code off, or on again."""
    on = request.POST.get("on") == "yes"
    done = f"{code} is switched {'on' if on else 'off: no line stands for it any more'}."
    return _with_reason(request, code, done, lambda more: changes.switch(code, on=on, **more))


@edits
@require_POST
def reset(request: HttpRequest, code: str) -> HttpResponse:
    """Take back all changes of a code."""
    return _with_reason(request, code, f"{code} is as shipped again.", lambda more: changes.reset(code, **more))


def _with_reason(
    request: HttpRequest, code: str, done: str, work: Callable[[dict[str, Any]], FaultCodeChange]
) -> HttpResponse:
    form = ReasonForm(request.POST)
    if not form.is_valid():
        tell_error(request, InvalidInput("reason", "is needed", hint="It is kept with the change."))
        return _show(request, code, status=400)
    try:
        work(_by(request, form))
    except ReliabilityError as error:
        tell_error(request, error)
        return _show(request, code, status=409 if isinstance(error, StaleProposal) else 400)
    tell(request, done)
    return redirect("fault-code", code=code)


def _by(request: HttpRequest, form: ReasonForm) -> dict[str, Any]:
    return {
        "by": request.user.get_username(),
        "reason": form.cleaned_data["reason"],
        "seen_version": form.cleaned_data["version"],
    }


def _blame(form: ChangeForm, error: InvalidInput) -> None:
    field = error.field if error.field in form.fields else None
    form.add_error(field, f"{error.message.removeprefix(f'{error.field}: ')}. {error.hint}".strip())
