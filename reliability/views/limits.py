"""Limits of silence and of many nodes at once: what holds, who set it, and the form that refuses false alarms."""

from django.contrib.auth.decorators import permission_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.views.decorators.http import require_POST, require_safe

from reliability import conf
from reliability.domain import retrying
from reliability.errors import InvalidInput, StaleProposal
from reliability.limits_forms import LimitsForm
from reliability.models import LimitChange
from reliability.services import limits
from reliability.views.page import reads, render_page, tell

sets = permission_required("reliability.set_limits", raise_exception=True)
RECENT = 20


@reads("limitchange")
@require_safe
def page(request: HttpRequest) -> HttpResponse:
    """Show the limits."""
    return _show(request, LimitsForm.of_now())


def _show(request: HttpRequest, form: LimitsForm, *, status: int = 200) -> HttpResponse:
    policy = conf.cluster_policy()
    context = {
        "policy": policy,
        "schedule": retrying.schedule(heartbeat_s=policy.heartbeat_s, silence_s=policy.silence_s),
        "least_s": retrying.least_silence_s(policy.heartbeat_s),
        "form": form,
        "changes": LimitChange.objects.all()[:RECENT],
    }
    return render_page(request, "limits/page.html", context, topics=["limits"], status=status)


@sets
@require_POST
def set_limits(request: HttpRequest) -> HttpResponse:
    """Set the limits, or say why they cannot be."""
    form = LimitsForm(request.POST)
    if not form.is_valid():
        return _show(request, form, status=400)
    given = form.cleaned_data
    try:
        limits.set_limits(form.values(), by=request.user.get_username(), reason=given["reason"], seen=given["seen"])
    except StaleProposal:
        return _show(request, form.again(request.POST), status=409)
    except InvalidInput as error:
        field = error.field if error.field in form.fields else None
        told = error.message.removeprefix(f"{error.field}: ") if field else error.message
        form.add_error(field, f"{told}. {error.hint}".strip())
        return _show(request, form, status=400)
    tell(request, "The limits hold from now on.")
    return redirect("limits")
