"""Routes of the web process. All need a sign-in, except signing in itself."""

from django.contrib import admin
from django.contrib.auth import views as auth
from django.urls import URLPattern, URLResolver, include, path

from reliability.api.health import healthz
from reliability.views import (
    errors,
    failovers,
    fault_codes,
    jobs,
    nodes,
    overview,
    planner,
    reports,
    retention,
    sign_in,
    snapshots,
)

urlpatterns: list[URLPattern | URLResolver] = [
    path("", overview.overview, name="overview"),
    path("sign-in/", sign_in.SignIn.as_view(), name="login"),
    path("sign-out/", auth.LogoutView.as_view(), name="logout"),
    path("jobs/", jobs.job_list, name="jobs"),
    path("jobs/<slug:name>/", jobs.job, name="job"),
    path("jobs/<slug:name>/drill/", jobs.drill, name="job-drill"),
    path("jobs/<slug:name>/propose/", jobs.propose, name="job-propose"),
    path("jobs/<slug:name>/snapshots/", snapshots.job_ledger, name="job-snapshots"),
    path("jobs/<slug:name>/retention/", retention.page, name="job-retention"),
    path("jobs/<slug:name>/retention/rules/", retention.set_rules, name="job-retention-rules"),
    path("jobs/<slug:name>/trial/", retention.try_now, name="job-trial"),
    path("jobs/<slug:name>/trial/schedule/", retention.set_schedule, name="job-trial-schedule"),
    path("jobs/<slug:name>/start/", jobs.start, name="job-start"),
    path("jobs/<slug:name>/stop/", jobs.stop, name="job-stop"),
    path("nodes/", nodes.node_list, name="nodes"),
    path("nodes/<slug:name>/", nodes.node, name="node"),
    path("nodes/<slug:name>/hold/", nodes.hold, name="node-hold"),
    path("nodes/<slug:name>/domain/", nodes.set_domain, name="node-domain"),
    path("nodes/<slug:name>/validate/", nodes.validate, name="node-validate"),
    path("holds/<int:pk>/release/", nodes.release_hold, name="hold-release"),
    path("standbys/", nodes.standbys, name="standbys"),
    path("incidents/", failovers.incident_list, name="incidents"),
    path("incidents/<int:pk>/", failovers.incident, name="incident"),
    path("failovers/", failovers.failover_list, name="failovers"),
    path("failovers/<int:pk>/", failovers.failover, name="failover"),
    path("failovers/<int:pk>/approve/", failovers.approve, name="failover-approve"),
    path("failovers/<int:pk>/reject/", failovers.reject, name="failover-reject"),
    path("failovers/<int:pk>/cancel/", failovers.cancel, name="failover-cancel"),
    path("fault-codes/", fault_codes.fault_code_list, name="fault-codes"),
    path("fault-codes/add/", fault_codes.add, name="fault-code-add"),
    path("fault-codes/<slug:code>/", fault_codes.fault_code, name="fault-code"),
    path("fault-codes/<slug:code>/change/", fault_codes.change, name="fault-code-change"),
    path("fault-codes/<slug:code>/switch/", fault_codes.switch, name="fault-code-switch"),
    path("fault-codes/<slug:code>/reset/", fault_codes.reset, name="fault-code-reset"),
    path("snapshots/", snapshots.over_jobs, name="snapshots"),
    path("snapshots/<int:pk>/", snapshots.snapshot, name="snapshot"),
    path("snapshots/<int:pk>/distrust/", snapshots.distrust, name="snapshot-distrust"),
    path("planner/", planner.plan, name="planner"),
    path("planner/simulation/", planner.simulation, name="planner-simulation"),
    path("planner/csv/<slug:figure>/", planner.figure_csv, name="planner-csv"),
    path("planner/apply/", planner.apply, name="planner-apply"),
    path("planner/automatic/", planner.automatic, name="planner-automatic"),
    path("reports/", reports.reports, name="reports"),
    path("reports/token/", reports.renew_token, name="token-renew"),
    path("reports/token/delete/", reports.delete_token, name="token-delete"),
    path("admin/login/", sign_in.administration, name="admin-sign-in"),
    path("admin/", admin.site.urls),
    path("api/", include("reliability.api.urls")),
    path("healthz", healthz, name="healthz"),
]

handler403 = errors.forbidden
handler404 = errors.not_found
