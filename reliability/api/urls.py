"""Addresses of the REST interface, below /api/: version 1, and the same without a version, as they were before it.

The addresses without a version only read; they are not in the schema, and what is new is not there.
"""

from typing import Any

from django.urls import URLPattern, URLResolver, include, path, re_path
from rest_framework.renderers import JSONRenderer
from rest_framework.routers import APIRootView, DefaultRouter, Route

from reliability.api import (
    decisions,
    distrust,
    fault_codes,
    incidents,
    ingest_monitors,
    limits,
    maintenance,
    modes,
    monitor_tokens,
    node_acts,
    node_records,
    plans,
    resources,
    restarts,
    retention,
    snapshots,
    watching,
)
from reliability.api.resources import NUMBER
from reliability.api.schema import SchemaView, documentation, unversioned_documentation
from reliability.api.tokens import TokenView

RESOURCES: dict[str, Any] = {
    "nodes": resources.Nodes,
    "jobs": resources.Jobs,
    "snapshots": snapshots.Snapshots,
    "incidents": incidents.Incidents,
    "failovers": resources.Failovers,
}

INCIDENT_ACTIONS: dict[str, Any] = {
    "close": incidents.Close,
    "reopen": incidents.Reopen,
    "note": incidents.Note,
    "release": incidents.Release,
}


class Root(APIRootView):
    """What there is."""

    renderer_classes = [JSONRenderer]


class Router(DefaultRouter):
    """Routes of all resources; the format is a parameter, not a suffix."""

    include_format_suffixes = False
    APIRootView = Root


class UnversionedRouter(Router):
    """The same routes, kept out of the schema."""

    routes = [
        route._replace(initkwargs={**route.initkwargs, "schema": None})
        for route in Router.routes
        if isinstance(route, Route)
    ]

    def get_api_root_view(self, api_urls: Any = None) -> Any:
        """Return the list of resources."""
        names = {prefix: f"{basename}-list" for prefix, _, basename in self.registry}
        return Root.as_view(api_root_dict=names, schema=None)


def versioned() -> list[URLPattern | URLResolver]:
    """Return the addresses below /api/v1/."""
    router = Router()
    for name, resource in {
        **RESOURCES,
        "plans": plans.Plans,
        "decisions": decisions.Decisions,
        "maintenance": maintenance.Windows,
        "node-events": node_records.NodeEvents,
        "holds": node_records.Holds,
        "quarantines": node_records.Quarantines,
    }.items():
        router.register(name, resource, basename=name)
    return [
        path("token/", TokenView.as_view(), name="api-token"),
        path("schema/", SchemaView.as_view(), name="api-schema"),
        path("docs/", documentation, name="api-docs"),
        path("modes/", modes.ModeRules.as_view(), name="api-modes"),
        path("precision/", modes.CodePrecision.as_view(), name="api-precision"),
        re_path(f"^decisions/(?P<pk>{NUMBER})/verdict/$", decisions.GiveVerdict.as_view(), name="api-decision-verdict"),
        re_path(f"^decisions/(?P<pk>{NUMBER})/do/$", decisions.CarryOut.as_view(), name="api-decision-do"),
        *(
            re_path(f"^incidents/(?P<pk>{NUMBER})/{name}/$", view.as_view(), name=f"api-incident-{name}")
            for name, view in INCIDENT_ACTIONS.items()
        ),
        re_path(
            f"^incidents/(?P<pk>{NUMBER})/findings/$",
            incidents.Findings.as_view({"get": "list"}, basename="incident-findings"),
            name="api-incident-findings",
        ),
        re_path(f"^maintenance/(?P<pk>{NUMBER})/end/$", maintenance.End.as_view(), name="api-maintenance-end"),
        path("nodes/<slug:name>/hold/", node_acts.HoldNode.as_view(), name="api-node-hold"),
        path("nodes/<slug:name>/quarantine/", node_acts.QuarantineNode.as_view(), name="api-node-quarantine"),
        re_path(f"^holds/(?P<pk>{NUMBER})/release/$", node_acts.ReleaseHold.as_view(), name="api-hold-release"),
        re_path(
            f"^quarantines/(?P<pk>{NUMBER})/release/$",
            node_acts.ReleaseQuarantine.as_view(),
            name="api-quarantine-release",
        ),
        re_path(
            f"^quarantines/(?P<pk>{NUMBER})/override/$", node_acts.Override.as_view(), name="api-quarantine-override"
        ),
        path("offenders/", node_acts.Offenders.as_view(), name="api-offenders"),
        path("limits/", limits.Limits.as_view(), name="api-limits"),
        path("fault-codes/", fault_codes.FaultCodes.as_view(), name="api-fault-codes"),
        path("fault-codes/judge/", fault_codes.FaultCodeTrial.as_view(), name="api-fault-code-trial"),
        path("fault-codes/<slug:code>/", fault_codes.FaultCodeOne.as_view(), name="api-fault-code"),
        path("monitors/", monitor_tokens.Monitors.as_view(), name="api-monitors"),
        re_path(f"^monitors/(?P<pk>{NUMBER})/$", monitor_tokens.MonitorOne.as_view(), name="api-monitor"),
        path("monitors/findings/", ingest_monitors.MonitorFindings.as_view(), name="api-monitor-findings"),
        path("jobs/<slug:name>/risk/", snapshots.WorkAtRisk.as_view(), name="job-risk"),
        path("jobs/<slug:name>/restarts/", restarts.Restarts.as_view(), name="api-job-restarts"),
        path("jobs/<slug:name>/progress/", watching.Progress.as_view(), name="api-job-progress"),
        path("jobs/<slug:name>/retention/", retention.Retention.as_view(), name="api-job-retention"),
        path("jobs/<slug:name>/trials/", retention.Trials.as_view(), name="api-job-trials"),
        path("jobs/<slug:name>/trials/schedule/", retention.Schedule.as_view(), name="api-job-trial-schedule"),
        re_path(f"^snapshots/(?P<pk>{NUMBER})/distrust/$", distrust.Distrust.as_view(), name="api-snapshot-distrust"),
        path("plans/preview/", plans.Preview.as_view(), name="plan-preview"),
        path("", include(router.urls)),
    ]


def unversioned() -> list[URLPattern | URLResolver]:
    """Return the addresses below /api/ for programs that were written before there were versions."""
    router = UnversionedRouter()
    for name, resource in RESOURCES.items():
        router.register(name, resource, basename=f"unversioned-{name}")
    return [
        path("token/", TokenView.as_view(schema=None)),
        path("schema/", SchemaView.as_view(schema=None)),
        path("docs/", unversioned_documentation),
        path("", include(router.urls)),
    ]


urlpatterns = [path("v1/", include(versioned())), path("", include(unversioned()))]
