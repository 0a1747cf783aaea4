"""Pages for what went wrong, with the frame and the way on."""

import sys
from http import HTTPStatus

from django.http import HttpRequest, HttpResponse, JsonResponse
from django.template.loader import render_to_string
from django.views.defaults import server_error

from reliability.services.database_trouble import Trouble, trouble
from reliability.views.page import render_page

TRY_AGAIN_S = 5
NOTHING_CHANGED = "Nothing was changed. Try again in a moment."
NOT_KNOWN = "Look whether it was done before you send it again."


def forbidden(request: HttpRequest, exception: Exception | None = None) -> HttpResponse:
    """Say which right is missing."""
    return render_page(request, "errors/403.html", {"reason": str(exception or "")}, status=403)


def bad_form(request: HttpRequest, reason: str = "") -> HttpResponse:
    """Say that the form was not sent by this site, or is too old."""
    return render_page(request, "errors/403_csrf.html", {"reason": reason}, status=403)


def not_found(request: HttpRequest, exception: Exception | None = None) -> HttpResponse:
    """Say that there is no such page; to programs, that there is no such route."""
    if _of_a_program(request):
        told = f"There is no {request.path}. /api/ lists what there is."
        return JsonResponse({"detail": told, "code": "not_found"}, status=404)
    return render_page(request, "errors/404.html", status=404)


def failed(request: HttpRequest) -> HttpResponse:
    """Say that the database is busy or away, or that the reason is in the log. Called while the error is handled."""
    found = trouble(sys.exc_info()[1])
    return server_error(request) if found is None else _database(request, found)


def _of_a_program(request: HttpRequest) -> bool:
    return request.path.startswith("/api/")


def _database(request: HttpRequest, found: Trouble) -> HttpResponse:
    """Answer 503 without the frame of the pages, which needs the database."""
    reads = request.method in {"GET", "HEAD", "OPTIONS"}
    what = "Try again in a moment." if reads else NOTHING_CHANGED if found is Trouble.BUSY else NOT_KNOWN
    title = f"The database is {found}"
    if _of_a_program(request):
        answer: HttpResponse = JsonResponse({"detail": f"{title}. {what}", "code": f"database_{found}"})
    else:
        answer = HttpResponse(render_to_string("errors/503.html", {"title": title, "what": what, "sent": not reads}))
    answer.status_code = HTTPStatus.SERVICE_UNAVAILABLE
    answer.headers["Retry-After"] = str(TRY_AGAIN_S)
    answer.headers["Cache-Control"] = "no-store"
    return answer
