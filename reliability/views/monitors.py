"""Foreign monitors: which may send what they see, and how one is connected."""

from django.contrib.auth.decorators import permission_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect
from django.views.decorators.http import require_POST, require_safe

from reliability.errors import InvalidInput, ReliabilityError
from reliability.models import MonitorState, MonitorToken
from reliability.monitor_forms import MonitorTokenForm
from reliability.selectors import monitors as reads_of
from reliability.services import monitors
from reliability.views.page import reads, render_page, tell, tell_error

gives = permission_required("reliability.manage_monitor_tokens", raise_exception=True)
SHOWN_ONCE = "new_monitor_token"
MOST_HEARD = 100


@reads("monitortoken")
@require_safe
def page(request: HttpRequest) -> HttpResponse:
    """Show the tokens, and which nodes monitors told of."""
    return _page(request)


def _page(request: HttpRequest, *, form: MonitorTokenForm | None = None, status: int = 200) -> HttpResponse:
    context = {
        "tokens": reads_of.tokens(),
        "heard": MonitorState.objects.select_related("node").order_by("-seen_at")[:MOST_HEARD],
        "form": form or MonitorTokenForm(),
        "new_token": request.session.pop(SHOWN_ONCE, None) if request.method == "GET" else None,
        "origin": request.build_absolute_uri("/").rstrip("/"),
    }
    return render_page(request, "monitors.html", context, status=status)


@gives
@require_POST
def give(request: HttpRequest) -> HttpResponse:
    """Make a token for a monitor; it is shown once."""
    form = MonitorTokenForm(request.POST)
    if not form.is_valid():
        return _page(request, form=form, status=400)
    try:
        token, text = monitors.give_token(
            form.cleaned_data["name"], node=form.cleaned_data["node"], by=request.user.get_username()
        )
    except InvalidInput as error:
        form.add_error("name", f"{error.message.removeprefix('name: ')}. {error.hint}")
        return _page(request, form=form, status=400)
    request.session[SHOWN_ONCE] = text
    tell(request, f"{token.name} has a token. It is shown once, below.")
    return redirect("monitors")


@gives
@require_POST
def revoke(request: HttpRequest, pk: int) -> HttpResponse:
    """Take a token back."""
    token = get_object_or_404(MonitorToken, pk=pk)
    try:
        monitors.revoke(token, by=request.user.get_username())
    except ReliabilityError as error:
        tell_error(request, error)
    else:
        tell(request, f"The token of {token.name} is revoked: nothing is taken with it any more.")
    return redirect("monitors")
