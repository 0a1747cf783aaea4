"""Does the web process live, and does it reach its database?"""

from http import HTTPStatus

from django.conf import settings
from django.contrib.auth.decorators import login_not_required
from django.db import DatabaseError, connection
from django.http import HttpRequest, JsonResponse


@login_not_required
def healthz(_request: HttpRequest) -> JsonResponse:
    """Answer 200, or 503 while the database is away. For probes: no sign-in, nothing but this."""
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1")
    except DatabaseError:
        return JsonResponse({"status": "database away"}, status=HTTPStatus.SERVICE_UNAVAILABLE)
    return JsonResponse({"status": "ok", "version": settings.VERSION})
