"""The OpenAPI schema and the page that shows it, for those who are signed in. The page's assets are our own."""

from django.contrib.auth.decorators import login_required
from drf_spectacular.views import SpectacularAPIView, SpectacularSwaggerView
from rest_framework.permissions import IsAuthenticated


class SchemaView(SpectacularAPIView):
    """The schema, YAML or JSON."""

    permission_classes = [IsAuthenticated]


class DocumentationView(SpectacularSwaggerView):
    """The page."""

    permission_classes = [IsAuthenticated]


documentation = login_required(DocumentationView.as_view(url_name="api-schema"))
