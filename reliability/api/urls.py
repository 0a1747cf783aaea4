"""Addresses of the REST interface, below /api/."""

from django.urls import include, path
from rest_framework.renderers import JSONRenderer
from rest_framework.routers import APIRootView, DefaultRouter

from reliability.api import resources
from reliability.api.schema import SchemaView, documentation
from reliability.api.tokens import TokenView


class Root(APIRootView):
    """What there is."""

    renderer_classes = [JSONRenderer]


class Router(DefaultRouter):
    """Routes of all resources; the format is a parameter, not a suffix."""

    include_format_suffixes = False
    APIRootView = Root


router = Router()
router.register("nodes", resources.Nodes, basename="nodes")
router.register("jobs", resources.Jobs, basename="jobs")
router.register("snapshots", resources.Snapshots, basename="snapshots")
router.register("incidents", resources.Incidents, basename="incidents")
router.register("failovers", resources.Failovers, basename="failovers")

urlpatterns = [
    path("token/", TokenView.as_view(), name="api-token"),
    path("schema/", SchemaView.as_view(), name="api-schema"),
    path("docs/", documentation, name="api-docs"),
    path("", include(router.urls)),
]
