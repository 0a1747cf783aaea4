"""The OpenAPI schema and the page that shows it, for those who are signed in. The page's assets are our own."""

from typing import Any

from django.contrib.auth.decorators import login_required
from drf_spectacular.utils import extend_schema
from drf_spectacular.views import SpectacularAPIView, SpectacularSwaggerSplitView
from rest_framework.permissions import IsAuthenticated
from rest_framework.request import Request
from rest_framework.response import Response

POLICY = (
    "default-src 'self'; img-src 'self' data:; style-src 'self' 'unsafe-inline'; "
    "object-src 'none'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)
"""The viewer writes styles into the page. Scripts come from files only, as everywhere."""


class SchemaView(SpectacularAPIView):
    """The schema, YAML or JSON."""

    permission_classes = [IsAuthenticated]


class DocumentationView(SpectacularSwaggerSplitView):
    """The page."""

    permission_classes = [IsAuthenticated]

    @extend_schema(exclude=True)
    def get(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        """Return the page or its script."""
        response: Response = super().get(request, *args, **kwargs)  # type: ignore[no-untyped-call]
        response.headers["Content-Security-Policy"] = POLICY
        return response


documentation = login_required(DocumentationView.as_view(url_name="api-schema"))
unversioned_documentation = login_required(DocumentationView.as_view(url_name="api-schema", schema=None))
