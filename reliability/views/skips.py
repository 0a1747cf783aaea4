"""Deciding whether all ranks of a job leave out a batch that always ends it."""

from collections.abc import Callable
from typing import Any

from django.contrib.auth.decorators import permission_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect
from django.views.decorators.http import require_POST

from reliability.errors import ReliabilityError
from reliability.forms import DecisionForm
from reliability.models import BatchSkip
from reliability.services import skips
from reliability.views.page import tell, tell_error

approves = permission_required("reliability.approve_failover", raise_exception=True)


def _decide(request: HttpRequest, name: str, pk: int, decision: Callable[..., Any], sentence: str) -> HttpResponse:
    found = get_object_or_404(BatchSkip, pk=pk, job__name=name)
    form = DecisionForm(request.POST)
    digest = form.cleaned_data.get("digest", "") if form.is_valid() else ""
    try:
        decision(found, by=request.user, digest=digest, note=str(request.POST.get("note", ""))[:1000])
    except ReliabilityError as error:
        tell_error(request, error)
    else:
        tell(request, sentence.format(step=found.step))
    return redirect("job", name=name)


@approves
@require_POST
def approve(request: HttpRequest, name: str, pk: int) -> HttpResponse:
    """Leave the batch out on all ranks; a job that waits is started again."""
    return _decide(request, name, pk, skips.approve, "All ranks leave out the batch of step {step} from now on.")


@approves
@require_POST
def reject(request: HttpRequest, name: str, pk: int) -> HttpResponse:
    """Keep the batch."""
    return _decide(request, name, pk, skips.reject, "The batch of step {step} is kept.")
