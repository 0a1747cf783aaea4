"""How often should a job save? Recomputes the period from the target and applies it to a running job."""

import json
from math import log10
from typing import Any
from urllib.parse import urlencode

import plotly.graph_objects as go
from django.contrib.auth.decorators import permission_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_POST, require_safe

from reliability.domain import planner
from reliability.domain.planner import FirstOrderInputs, FirstOrderPlan
from reliability.errors import ReliabilityError
from reliability.forms import PlannerForm, ShownPeriodForm, with_units
from reliability.models import Job
from reliability.selectors import core
from reliability.selectors.plan_pages import DEFAULT_TARGET, planner_values
from reliability.services import plans
from reliability.views.page import reads, render_page, tell, tell_error

POINTS = 161
MUCH_LONGER = 3
TABLE_POINTS = 9
TICKS = {
    "10 ms": 0.01,
    "0.1 s": 0.1,
    "1 s": 1,
    "10 s": 10,
    "1 min": 60,
    "10 min": 600,
    "1 h": 3600,
    "6 h": 21600,
    "1 d": 86400,
    "1 week": 604800,
    "1 month": 2592000,
}
applies = permission_required("reliability.apply_plan", raise_exception=True)


def _figure(inputs: FirstOrderInputs, plan: FirstOrderPlan, present_s: float | None) -> str:
    """Return the Plotly figure as JSON; colours are set in the browser, by theme."""
    points = planner.curve(inputs, POINTS)
    figure = go.Figure()
    figure.add_scatter(
        x=[period for period, _ in points],
        y=[100 * rate for _, rate in points],
        mode="lines",
        name="rate",
        hovertemplate="every %{x:.3~g} s: %{y:.2f} %<extra></extra>",
    )
    figure.add_hline(y=100 * inputs.target, line_dash="dash", name="target")
    if plan.feasible and plan.low_s:
        figure.add_vrect(x0=plan.low_s, x1=plan.high_s or points[-1][0], line_width=0, layer="below")
    if plan.period_s > 0:
        figure.add_scatter(
            x=[plan.period_s],
            y=[100 * plan.rate],
            mode="markers+text",
            text=["best"],
            textposition="top center",
            name="best",
            hoverinfo="skip",
        )
    if present_s:
        figure.add_scatter(
            x=[present_s],
            y=[100 * planner.rate_at(inputs, present_s)],
            mode="markers+text",
            text=["now"],
            textposition="bottom center",
            name="now",
            hoverinfo="skip",
        )
    least = max(0.0, 100 * min(inputs.target, plan.best_rate) - 12)
    figure.update_layout(
        template=None,
        autosize=True,
        showlegend=False,
        height=340,
        margin={"l": 56, "r": 16, "t": 12, "b": 44},
        xaxis={
            "type": "log",
            "title": {"text": "period, start to start"},
            "fixedrange": True,
            "tickvals": list(TICKS.values()),
            "ticktext": list(TICKS),
            "range": [log10(points[0][0]), log10(points[-1][0])],
        },
        yaxis={"range": [least, 101], "title": {"text": "effective training rate, %"}, "fixedrange": True},
    )
    return str(figure.to_json())


def _rate_table(inputs: FirstOrderInputs) -> list[tuple[float, float, bool]]:
    return [(period, rate, rate >= inputs.target) for period, rate in planner.curve(inputs, TABLE_POINTS)]


def _answer(form: PlannerForm, job: Job | None) -> dict[str, Any]:
    inputs = form.inputs()
    if inputs is None:
        return {}
    plan = planner.first_order(inputs)
    # the same time of a step as services.plans applies, so that what is shown is what is ordered
    step_s = core.planner_defaults(job, now=timezone.now())["step_s"]["value"] if job else None
    present_s = job.every_steps * step_s + inputs.save_stall_s if job and step_s else None
    return {
        "inputs": inputs,
        "plan": plan,
        "step_s": step_s,
        "every_steps": planner.steps(plan.period_s, inputs.save_stall_s, step_s) if step_s else None,
        "present_s": present_s,
        "present_rate": planner.rate_at(inputs, present_s) if present_s else None,
        "figure": json.loads(_figure(inputs, plan, present_s)),
        "rates": _rate_table(inputs),
    }


def _chosen_job(request: HttpRequest) -> Job | None:
    name = request.GET.get("job") or request.POST.get("job")
    if name:
        return Job.objects.filter(name=name).first()
    if "job" in request.GET:
        return None
    return Job.objects.filter(state=Job.State.RUNNING).first()


def _form(request: HttpRequest, job: Job | None) -> tuple[PlannerForm, dict[str, Any]]:
    """Return the form with what was entered, else with what is known, and the source of each value."""
    known = planner_values(job, now=timezone.now())
    values = with_units({name: value.seconds for name, value in known.items()})
    values |= {"target": DEFAULT_TARGET, "mtbf_of": "job", "job": job.name if job else ""}
    entered = {name: value for name, value in request.GET.dict().items() if value != ""}
    form = PlannerForm({**values, **entered})
    sources = {name: value.source for name, value in known.items()}
    for name, value in known.items():
        if name in entered and _differs(entered, values, name):
            sources[name] = f"entered; {value.source}"
    return form, sources


def _shown(request: HttpRequest) -> int | None:
    form = ShownPeriodForm(request.POST)
    return form.cleaned_data["every_steps"] if form.is_valid() else 0


def _differs(entered: dict[str, str], values: dict[str, Any], name: str) -> bool:
    unit = f"{name}_unit"
    return entered[name] != str(values[name]) or entered.get(unit, values[unit]) != values[unit]


@reads("job", "plan")
@require_safe
def plan(request: HttpRequest) -> HttpResponse:
    """Show the period for the inputs in the address; a form of any browser fills them in."""
    job = _chosen_job(request)
    form, sources = _form(request, job)
    applied = job.plans.first() if job else None
    answer = _answer(form, job)
    context = {"form": form, "sources": sources, "job": job, "applied": applied, **answer}
    context["warnings"] = _warnings(form, sources, job, answer.get("every_steps"))
    return render_page(request, "planner.html", context)


def _warnings(form: PlannerForm, sources: dict[str, str], job: Job | None, every_steps: int | None) -> list[str]:
    """Return what a person should know before applying."""
    assumed = [str(form.fields[name].label).lower() for name, source in sources.items() if source.startswith("default")]
    told = [f"Not measured but assumed: {', '.join(assumed)}."] if assumed else []
    if job and every_steps and every_steps > MUCH_LONGER * job.every_steps:
        told.append(f"That is {every_steps / job.every_steps:.0f} times as long as now; so is what a fault costs.")
    return told


@applies
@require_POST
def apply(request: HttpRequest) -> HttpResponse:
    """Apply the period of the posted inputs to the job."""
    form = PlannerForm(request.POST)
    inputs = form.inputs()
    job = form.cleaned_data.get("job") if form.is_valid() else None
    if inputs is None or job is None:
        context: dict[str, Any] = {"form": form, "sources": {}, "job": job}
        return render_page(request, "planner.html", context, status=400)
    try:
        applied = plans.apply(job, inputs=inputs, by=request.user.get_username(), shown=_shown(request))
    except ReliabilityError as error:
        tell_error(request, error)
        entered = {name: value for name, value in request.POST.items() if name in form.fields}
        return redirect(f"{reverse('planner')}?{urlencode(entered)}")
    else:
        tell(request, f"Applied: {job} saves every {applied.every_steps} steps from step {applied.from_step} on.")
    return redirect("job", name=job.name)
