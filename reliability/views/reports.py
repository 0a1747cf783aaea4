"""How to take figures out: REST, CSV, OpenAPI, and the person's own token."""

from django.contrib.auth.models import User
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.views.decorators.http import require_POST, require_safe
from rest_framework.authtoken.models import Token

from reliability.views.page import reads, render_page, tell

SHOWN_ONCE = "new_api_token"
EXPORTS = ("nodes", "jobs", "snapshots", "incidents", "failovers", "decisions", "precision", "plans")


@reads("job")
@require_safe
def reports(request: HttpRequest) -> HttpResponse:
    """Show what can be exported and how."""
    assert isinstance(request.user, User)
    token = Token.objects.filter(user=request.user).first()
    context = {
        "token": token,
        "new_token": request.session.pop(SHOWN_ONCE, None),
        "exports": EXPORTS,
        "origin": request.build_absolute_uri("/").rstrip("/"),
    }
    return render_page(request, "reports.html", context)


@reads("job")
@require_POST
def renew_token(request: HttpRequest) -> HttpResponse:
    """Make a token for the signed-in person; an older one stops working."""
    assert isinstance(request.user, User)
    Token.objects.filter(user=request.user).delete()
    request.session[SHOWN_ONCE] = Token.objects.create(user=request.user).key
    tell(request, "A new token was made. It is shown once, below; the one before no longer works.")
    return redirect("reports")


@require_POST
def delete_token(request: HttpRequest) -> HttpResponse:
    """Delete the signed-in person's token."""
    assert isinstance(request.user, User)
    Token.objects.filter(user=request.user).delete()
    tell(request, "Your token is deleted.")
    return redirect("reports")
