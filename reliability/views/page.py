"""The frame of every page: menu counts, live topics, and the same page as a fragment for the browser's refresh."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from django.contrib import messages
from django.contrib.auth.decorators import permission_required
from django.contrib.auth.models import User
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils import timezone

from reliability.errors import ReliabilityError
from reliability.selectors import changes, pages

FRAGMENT_HEADER = "X-Fragment"
NAV_PERMISSIONS = ("reliability.view_failover", "reliability.view_incident")


View = Callable[..., HttpResponse]


def reads(*models: str) -> Callable[[View], View]:
    """Ask for the permission to view these models, as the REST interface does; 403 without it."""
    return permission_required([f"reliability.view_{model}" for model in models], raise_exception=True)


class SignedInRequest(HttpRequest):
    """A request behind the sign-in; for type checkers."""

    user: User


def wants_fragment(request: HttpRequest) -> bool:
    """Return whether only the live regions are asked for."""
    return FRAGMENT_HEADER in request.headers or "fragment" in request.GET


def render_page(
    request: HttpRequest,
    template: str,
    context: Mapping[str, Any] | None = None,
    *,
    topics: Iterable[str] = (),
    status: int = 200,
    refresh: str = "",
) -> HttpResponse:
    """Return a page, or its fragment when the browser refreshes it.

    `topics` are what makes it refresh, `refresh` where from: by itself the address of the page. The answer to a form
    and an error page have no such address, so that they stay as they are unless one is given.
    """
    fragment = wants_fragment(request)
    shown = {
        "now": timezone.now(),
        "base": "fragment.html" if fragment else "base.html",
        "refresh": refresh or (request.get_full_path() if request.method == "GET" and status == 200 else ""),
        "topics": " ".join((changes.OVERVIEW, *topics)),
        "nav": pages.nav_counts() if request.user.has_perms(NAV_PERMISSIONS) else None,
        "section": request.resolver_match.view_name if request.resolver_match else "",
        **(context or {}),
    }
    response = render(request, template, shown, status=status)
    response.headers["Vary"] = f"{FRAGMENT_HEADER}, Cookie"
    response.headers["Cache-Control"] = "no-store"
    return response


def tell(request: HttpRequest, sentence: str) -> None:
    """Show a sentence on the next page."""
    messages.success(request, sentence)


def tell_error(request: HttpRequest, error: ReliabilityError) -> None:
    """Show what went wrong and what to do on the next page."""
    messages.error(request, f"{error.message} {error.hint}".strip())
