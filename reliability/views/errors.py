"""Pages for what went wrong, with the frame and the way on."""

from django.http import HttpRequest, HttpResponse

from reliability.views.page import render_page


def forbidden(request: HttpRequest, exception: Exception | None = None) -> HttpResponse:
    """Say which right is missing."""
    return render_page(request, "errors/403.html", {"reason": str(exception or "")}, status=403)


def bad_form(request: HttpRequest, reason: str = "") -> HttpResponse:
    """Say that the form was not sent by this site, or is too old."""
    return render_page(request, "errors/403_csrf.html", {"reason": reason}, status=403)


def not_found(request: HttpRequest, exception: Exception | None = None) -> HttpResponse:
    """Say that there is no such page."""
    return render_page(request, "errors/404.html", status=404)
