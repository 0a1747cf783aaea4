"""The planner's page: what is asked, what is answered, what stands beside it, and how it is applied."""

import csv
import html
import json
import random
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import plotly.graph_objects as go
import pytest
from django.test import Client

from reliability import models
from reliability.domain.planner import exact
from reliability.domain.planner.durations import spoken
from reliability.domain.planner.inputs import Inputs
from reliability.templatetags.stepkeeper import grouped as in_groups
from reliability.views.planner import checked
from tests.web import rows

FRAGMENT = {"X-Fragment": "planned"}
VALUES = {
    "save_stall": "6",
    "mtbf": "7.9h",
    "recovery": "90",
    "downtime": "0",
    "drain": "0",
    "drain_ssd": "0",
    "target": "0.97",
}
PLAN = {"job": "gpt-small", **VALUES}
INPUTS = Inputs(save_stall_s=6, mtbf_s=28440, recovery_s=90, target=0.97)


@pytest.fixture
def job(db: None) -> models.Job:
    """A job that trains on two nodes and has saved."""
    made = rows.job("gpt-small", [rows.node("n1"), rows.node("n2")])
    rows.snapshot(made, 1220)
    return made


def page(client: Client, query: dict[str, str], **headers: str) -> str:
    answer = client.get("/planner/", query, headers=headers)
    assert answer.status_code == 200
    return str(answer.content.decode())


def words(text: str) -> str:
    """Return what a reader of the page reads, without scripts."""
    return " ".join(html.unescape(re.sub(r"<script.*?</script>|<[^>]*>", " ", text, flags=re.DOTALL)).split())


def grouped(count: int) -> str:
    """Return a number as `words` shows it."""
    return words(in_groups(count))


def value_of(text: str, name: str) -> str:
    found = re.search(rf'id="id_{name}" name="{name}" value="([^"]*)"', text)
    assert found, name
    return html.unescape(found[1])


def source_of(text: str, name: str) -> tuple[str, str]:
    """Return what is chosen as source of a value, and the sentence at its field."""
    told = re.search(rf'id="source-{name}">([^<]*)<', text)
    menu = re.search(rf'<select class="from" id="from-{name}".*?</select>', text, re.DOTALL)
    assert told
    assert menu
    chosen = re.search(r'value="(\w+)" selected', menu[0])
    assert chosen
    return chosen[1], html.unescape(told[1])


def error_at(text: str, name: str) -> str:
    found = re.search(rf'id="error-{name}">(.*?)</div>', text, re.DOTALL)
    assert found, name
    return words(found[1])


def figures_of(text: str) -> dict[str, Any]:
    found = re.search(r'id="figure-data" type="application/json">(.*?)</script>', text, re.DOTALL)
    assert found
    return dict(json.loads(found[1], parse_constant=pytest.fail))


# -- the answer ------------------------------------------------------------------------------------------


def test_it_says_how_often_to_save_what_that_gives_and_what_to_improve_first(client_of: Any, job: models.Job) -> None:
    text = words(page(client_of("viewer"), PLAN))
    plan = exact.plan(INPUTS)
    assert plan.period_s is not None
    every = round((plan.period_s - 6) / 0.32)
    assert f"every {grouped(every)} steps of" in text
    assert "Save every 9 min 46 s" in text
    assert f"{100 * plan.ettr_max:.2f} %" in text
    assert "0.97 is reachable" in text
    low_s, high_s = plan.interval_s or (0.0, 0.0)
    assert f"with any period from {spoken(low_s)} to {spoken(high_s or 0.0)}" in text
    first = (
        r"Improve first: save stall\. Halving it gives \+0\.5\d points; then recovery \+0\.1\d points, failure rate \+"
    )
    assert re.search(first, text)
    assert "Now every 20 steps, 12.4 s: 51" in text


def test_what_cannot_be_reached_says_what_it_would_take(client_of: Any, job: models.Job) -> None:
    text = words(page(client_of("operator"), PLAN | {"target": "0.99"}))
    assert "0.99 is not reachable" in text
    assert "Apply to gpt-small" not in text
    assert "Apply the best there is (target missed): every 1" in text
    assert "The target is missed whatever is applied" in text
    assert "What would it take for 0.99? Each lever alone, then the two together" in text
    limit_s = exact.plan(replace(INPUTS, target=0.99)).limits.save_stall_s
    assert f"Save stall , at most 6 s {spoken(limit_s or 0.0)}" in text
    assert "Recovery , at most 1 min 30 s not enough alone" in text


def test_the_lost_time_of_a_day_is_split_and_adds_up(client_of: Any, job: models.Job) -> None:
    text = page(client_of("viewer"), PLAN)
    shown = re.search(r"Of a day, (.*?) are lost, the largest part to (\w+)", text)
    assert shown
    widths = [float(width) for width in re.findall(r'<rect x="[\d.]+" width="([\d.]+)" height="40"', text)]
    assert len(widths) == 4
    assert sum(widths) == pytest.approx(1000, abs=0.3)


def test_the_first_order_formula_explains_the_period_with_the_numbers_of_the_job(
    client_of: Any, job: models.Job
) -> None:
    text = words(page(client_of("viewer"), PLAN))
    assert "= √(2 · 6 s · 7 h 54 min) = 9 min 44 s" in text
    for rule in ("Young", "Daly", "Saxena", "Meta"):
        assert rule in text
    assert "early after a start (Weibull, shape 0.7) 97." in text


def test_each_tier_says_how_often_it_gets_a_copy_where_faults_differ(client_of: Any, job: models.Job) -> None:
    classes = {"node_share": "0.5", "memory_share": "0.2", "drain": "20 min", "drain_ssd": "20"}
    text = words(page(client_of("viewer"), PLAN | classes))
    assert "memory 30 %" in text
    assert re.search(r"storage 50 % 20 min \d+ min", text)
    assert "How often each tier gets a copy" not in words(page(client_of("viewer"), PLAN))


def test_counted_faults_give_a_credible_range_and_a_probability(client_of: Any, job: models.Job) -> None:
    for _ in range(3):
        rows.completed(
            rows.incident(job, models.Node.objects.get(name="n2")), rows.node(f"s{models.Node.objects.count()}")
        )
    text = page(client_of("viewer"), {"job": "gpt-small"})
    assert re.search(r"% likely to be reachable; with 90 % probability a fault comes every \S+ \w+ to", words(text))
    low, high, *_ = figures_of(text)["rate"]["data"]
    assert low.get("visible", True) is True
    assert all(a <= b for a, b in zip(low["y"], high["y"], strict=True))
    without = figures_of(page(client_of("viewer"), PLAN))["rate"]["data"]
    assert without[0]["visible"] is False


def test_without_faults_it_says_so_and_nothing_is_unknown(client_of: Any, job: models.Job) -> None:
    text = words(page(client_of("viewer"), PLAN | {"mtbf": "none"}))
    assert "with any period from 3 min 20 s on" in text
    assert "No faults: not more often than every" in text
    assert "not enough alone" not in text
    best = figures_of(page(client_of("viewer"), PLAN | {"mtbf": "none"}))["rate"]["data"][4]
    assert not best.get("x")
    assert "Without faults every save is only a cost" in text


# -- sources ---------------------------------------------------------------------------------------------


def test_every_value_says_where_it_comes_from(client_of: Any, job: models.Job) -> None:
    text = page(client_of("viewer"), {"job": "gpt-small"})
    kind, told = source_of(text, "save_stall")
    assert kind == "measured"
    assert told.startswith("measured from gpt-small over the last 2 h")
    kind, told = source_of(text, "recovery")
    assert (kind, told[:8]) == ("default", "default:")
    kind, told = source_of(text, "nodes")
    assert (kind, value_of(text, "nodes")) == ("measured", "2")


def test_what_is_typed_is_entered_and_what_is_measured_stays_in_sight(client_of: Any, job: models.Job) -> None:
    shown = value_of(page(client_of("viewer"), {"job": "gpt-small"}), "save_stall")
    typed = {"job": "gpt-small", "save_stall": "9 s", "save_stall_from": "measured", "save_stall_shown": shown}
    text = page(client_of("viewer"), typed)
    assert source_of(text, "save_stall") == ("entered", f"entered by you; measured is {shown}")
    assert value_of(text, "save_stall") == "9 s"
    untouched = typed | {"save_stall": shown}
    assert source_of(page(client_of("viewer"), untouched), "save_stall")[0] == "measured"


def test_switching_back_restores_what_is_measured_and_the_default(client_of: Any, job: models.Job) -> None:
    entered = {"job": "gpt-small", "save_stall": "9 s", "save_stall_shown": "9 s"}
    measured = page(client_of("viewer"), entered | {"save_stall_from": "measured"})
    assert source_of(measured, "save_stall")[0] == "measured"
    assert value_of(measured, "save_stall") == "21 ms"
    default = page(client_of("viewer"), entered | {"save_stall_from": "default"})
    assert source_of(default, "save_stall") == ("default", "default: none measured yet")
    assert value_of(default, "save_stall") == "0.5 s"


def test_a_source_that_does_not_exist_cannot_be_chosen_and_says_why(client_of: Any, job: models.Job) -> None:
    text = page(client_of("viewer"), {"job": "gpt-small", "recovery_from": "measured"})
    assert '<option value="measured" disabled>measured: nothing yet</option>' in text
    assert source_of(text, "recovery")[0] == "default"


def test_the_unit_of_the_failure_rate_converts_what_was_entered(client_of: Any, job: models.Job) -> None:
    before = PLAN | {"mtbf_shown": "7.9h", "mtbf_was": "mtbf"}
    per_day = page(client_of("viewer"), before | {"mtbf_unit": "failures_per_day"})
    assert value_of(per_day, "mtbf") == "3.038"
    per_node = page(client_of("viewer"), before | {"mtbf_unit": "per_1000_node_days"})
    assert value_of(per_node, "mtbf") == "1519"
    assert "Save every 9 min 46 s" in words(per_day)
    assert "Save every 9 min 46 s" in words(per_node)
    typed = before | {"mtbf_unit": "failures_per_day", "mtbf": "6"}
    assert value_of(page(client_of("viewer"), typed), "mtbf") == "6"


def test_the_address_is_short_and_asks_the_same_again(client_of: Any, job: models.Job) -> None:
    long = PLAN | {"recovery_from": "entered", "nodes": "2", "nodes_from": "measured", "nodes_shown": "2"}
    text = page(client_of("viewer"), long | {"step_time_from": "default"})
    address = html.unescape(re.search(r'data-address="([^"]*)"', text)[1])  # type: ignore[index]
    assert "nodes" not in address
    assert "step_time_from=default" in address
    again = client_of("viewer").get(f"/planner/?{address}").content.decode()
    assert value_of(again, "save_stall") == "6"
    assert source_of(again, "nodes")[0] == "measured"
    assert source_of(again, "step_time")[0] == "default"


# -- what cannot be right --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "typed", "said"),
    [
        ("save_stall", "-1", "is negative"),
        ("save_stall", "many", "is not a duration"),
        ("save_stall", "nan", "is not a finite time"),
        ("recovery", "inf", "is not a finite time"),
        ("recovery", "1e400", "is not a finite time"),
        ("recovery", "9h", "sooner than the recovery"),
        ("target", "97", "Write 0.97."),
        ("target", "97 %", "Write 0.97."),
        ("target", "1", "would allow no loss at all"),
        ("target", "0", "would be met by a job that never trains"),
        ("mtbf", "0", "0 would be a fault at every moment"),
        ("mtbf", "1 min", "comes sooner than the recovery"),
        ("step_time", "20h", "is too long"),
        ("step_time", "0", "0 is not possible"),
        ("nodes", "2.5", "is not a whole number"),
        ("standbys", "-2", "is negative"),
        ("cluster_availability", "0", "would be a cluster that never runs"),
        ("node_share", "60", "Write 0.6."),
    ],
)
def test_what_cannot_be_right_is_told_at_its_field(
    name: str, typed: str, said: str, client_of: Any, job: models.Job
) -> None:
    text = page(client_of("viewer"), PLAN | {name: typed})
    told = error_at(text, name) or error_at(text, "mtbf")
    assert said in told
    assert "No answer" in text
    assert value_of(text, name) == typed
    wrong = name if error_at(text, name) else "mtbf"
    assert f'aria-describedby="source-{wrong} help-{wrong} error-{wrong}" aria-invalid="true"' in text


def test_all_mistakes_are_told_at_once_and_nothing_that_was_typed_is_lost(client_of: Any, job: models.Job) -> None:
    text = page(client_of("viewer"), PLAN | {"save_stall": "x", "target": "97", "nodes": "0"})
    assert all(error_at(text, name) for name in ("save_stall", "target", "nodes"))
    assert (value_of(text, "recovery"), value_of(text, "save_stall")) == ("90", "x")
    assert "3 values cannot be planned with" in text


def test_what_is_typed_is_text_and_nothing_else(client_of: Any, job: models.Job) -> None:
    text = page(client_of("viewer"), PLAN | {"save_stall": '"><script>alert(1)</script>', "mtbf_shown": "</script><b>"})
    assert "<script>alert" not in text
    assert "</script><b>" not in text


# -- figures ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "more", [{}, {"mtbf": "none"}, {"target": "0.9999"}, {"standbys": "4", "repair": "24h"}, {"save_stall": "0"}]
)
def test_every_figure_is_one_that_plotly_knows_in_colours_that_both_themes_have(
    more: dict[str, str], client_of: Any, job: models.Job
) -> None:
    css = Path("static/css/stepkeeper.css").read_text() + Path("static/css/planner.css").read_text()
    for name, drawn in figures_of(page(client_of("viewer"), PLAN | more)).items():
        go.Figure(drawn)
        tones = [trace["meta"]["tone"] for trace in drawn["data"]]
        tones += [
            part["name"] for part in (*drawn["layout"].get("shapes", []), *drawn["layout"].get("annotations", []))
        ]
        for tone in tones:
            assert css.count(f"{tone}:") == 2, (name, tone)


def test_the_file_of_a_figure_holds_what_the_model_says(client_of: Any, job: models.Job) -> None:
    answer = client_of("viewer").get("/planner/csv/rate/", PLAN)
    assert answer.headers["Content-Disposition"] == 'attachment; filename="planner-rate.csv"'
    lines = list(csv.DictReader(answer.content.decode().splitlines()))
    assert len(lines) > 50
    for line in lines:
        assert float(line["ettr"]) == pytest.approx(exact.ettr_at(INPUTS, float(line["period_s"])), rel=1e-9)


def test_every_figure_has_a_table_and_a_file(client_of: Any, job: models.Job) -> None:
    client = client_of("viewer")
    query = PLAN | {"standbys": "4", "repair": "24h"}
    text = page(client, query)
    for name in ("rate", "losses", "optimum", "standbys"):
        assert f'id="table-{name}"' in text
        assert f"/planner/csv/{name}/?" in text
        assert client.get(f"/planner/csv/{name}/", query).status_code == 200
    assert client.get("/planner/csv/standbys/", PLAN).status_code == 404


def test_the_fragment_of_a_change_has_no_more_than_what_changes(client_of: Any, job: models.Job) -> None:
    text = page(client_of("operator"), PLAN, **FRAGMENT)
    assert 'id="answer"' in text
    assert 'id="nav"' not in text
    assert 'id="kept"' not in text
    assert "Weibull" not in text
    assert "Weibull" in page(client_of("operator"), PLAN, **FRAGMENT, **{"X-Open": "why"})


# -- simulation ------------------------------------------------------------------------------------------


def test_a_simulation_agrees_with_the_formula(client_of: Any, job: models.Job, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checked, "FAULTS", 20_000)
    answer = client_of("viewer").get("/planner/simulation/", PLAN)
    text = words(answer.content.decode())
    assert re.search(r"Simulated: 97\.\d+ % ± 0\.\d+ points at every 9 min 46 s; the formula says 97\.6\d %", text)
    assert "standard errors; 20" in text


def test_a_simulation_of_tiers_says_that_it_is_one(client_of: Any, job: models.Job) -> None:
    tiers = {"node_share": "0.5", "memory_share": "0.2", "drain": "20 min", "drain_ssd": "20"}
    query = PLAN | tiers | {"planned_stops_per_week": "2"}
    text = words(client_of("viewer").get("/planner/simulation/", query).content.decode())
    assert "Memory, SSD and storage were simulated, each with the faults that need its copy" in text
    assert "Left out of both rates: planned stops." in text


def test_a_second_simulation_at_the_same_time_is_refused(client_of: Any, job: models.Job) -> None:
    with checked._turn:
        answer = client_of("viewer").get("/planner/simulation/", PLAN)
    assert answer.status_code == 409
    assert "Another simulation is going on" in answer.content.decode()
    assert "Save every" in answer.content.decode()


# -- applying --------------------------------------------------------------------------------------------


def button(text: str) -> int:
    found = re.search(r'name="every_steps" value="(\d+)"', text)
    assert found
    return int(found[1])


def posted(text: str) -> dict[str, str]:
    """Return what the button sends."""
    form = re.search(r'id="apply-form">.*?</form>', text, re.DOTALL)
    assert form
    pairs = re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)">', form[0])
    return {name: html.unescape(value) for name, value in pairs}


def test_applying_orders_exactly_the_period_on_the_button_and_comes_back_to_see_it_taken_over(
    client_of: Any, job: models.Job
) -> None:
    client = client_of("operator")
    text = page(client, PLAN)
    answer = client.post("/planner/apply/", posted(text), follow=True)
    plan = models.Plan.objects.get()
    assert (plan.every_steps, plan.applied_by) == (button(text), "operator")
    assert plan.inputs["save_stall"]["source"] == "entered"
    assert plan.inputs["save_stall"]["value"] == 6.0
    assert plan.inputs["nodes"]["source"] == "measured"
    shown = words(answer.content.decode())
    first = grouped(plan.from_step)
    assert f"Announced: every {grouped(plan.every_steps)} steps from step {first} on. Who follows it" in shown
    assert "0 of 2 ranks follow it" in shown
    assert "taking over" in shown
    assert value_of(answer.content.decode(), "save_stall") == "6"
    assert "entered by operator" in shown


def test_the_ranks_that_follow_are_counted_in_the_live_part(client_of: Any, job: models.Job) -> None:
    client = client_of("operator")
    client.post("/planner/apply/", posted(page(client, PLAN)))
    plan = models.Plan.objects.get()
    models.Rank.objects.filter(job=job, rank=0).update(plan_version=plan.announced)
    live = {"job": "gpt-small", "part": "kept"}
    assert "1 of 2 ranks follow it" in page(client, live, **{"X-Fragment": "1"})
    models.Rank.objects.filter(job=job).update(plan_version=plan.announced)
    text = page(client, live, **{"X-Fragment": "1"})
    assert "2 of 2 ranks follow it" in text
    assert "announced</span>" in text
    assert 'id="planner-form"' not in text
    models.Rank.objects.filter(job=job).update(step=plan.from_step)
    assert "in force</span>" in page(client, live, **{"X-Fragment": "1"})


def test_a_period_that_is_right_no_longer_is_refused_and_nothing_that_was_entered_is_lost(
    client_of: Any, job: models.Job
) -> None:
    client = client_of("operator")
    shown = posted(page(client, PLAN))
    models.Rank.objects.filter(job=job).update(step_s=3.2)
    answer = client.post("/planner/apply/", shown, follow=True)
    assert not models.Plan.objects.exists()
    text = answer.content.decode()
    assert f"not {shown['every_steps']} as shown" in text
    assert value_of(text, "save_stall") == "6"
    assert button(text) != int(shown["every_steps"])


def test_a_speed_that_moved_a_little_still_orders_the_number_on_the_button(client_of: Any, job: models.Job) -> None:
    client = client_of("operator")
    shown = posted(page(client, PLAN))
    models.Rank.objects.filter(job=job).update(step_s=0.35)
    client.post("/planner/apply/", shown)
    assert models.Plan.objects.get().every_steps == int(shown["every_steps"])


@pytest.mark.parametrize("every_steps", ["", "0", "-5", "none"])
def test_a_button_without_a_number_orders_nothing(every_steps: str, client_of: Any, job: models.Job) -> None:
    client_of("operator").post("/planner/apply/", PLAN | {"every_steps": every_steps})
    assert not models.Plan.objects.exists()


def test_a_wrong_value_that_is_posted_comes_back_with_its_error(client_of: Any, job: models.Job) -> None:
    answer = client_of("operator").post("/planner/apply/", PLAN | {"target": "97", "every_steps": "5"})
    assert answer.status_code == 400
    assert "Write 0.97." in error_at(answer.content.decode(), "target")


def test_what_was_only_assumed_is_named_beside_the_button(client_of: Any, job: models.Job) -> None:
    text = words(page(client_of("operator"), {"job": "gpt-small", "target": "0.9"}))
    assert "Not measured but assumed: failure rate, recovery, downtime." in text


def test_a_viewer_is_told_why_there_is_no_button(client_of: Any, job: models.Job) -> None:
    text = page(client_of("viewer"), PLAN)
    assert "Applying a period needs the operator role" in text
    assert 'id="apply"' not in text
    assert 'id="automatic-form"' not in text


def test_a_job_that_is_over_or_has_no_speed_offers_nothing_to_apply(client_of: Any, job: models.Job) -> None:
    client = client_of("operator")
    models.Rank.objects.filter(job=job).update(step_s=None)
    assert "the time of a step is not known yet" in page(client, PLAN)
    models.Job.objects.filter(pk=job.pk).update(state="completed")
    assert "gpt-small is over" in page(client, PLAN)


def test_without_a_job_it_answers_what_if(client_of: Any, db: None) -> None:
    text = words(page(client_of("operator"), {"job": "", **VALUES}))
    assert "Save every 9 min 46 s" in text
    assert "Choose a job to apply a plan to it" in text


# -- by itself -------------------------------------------------------------------------------------------

LIMITS = {
    "job": "gpt-small",
    "target": "0.9",
    "shortest_period": "1 min",
    "longest_period": "1 h",
    "change_ratio": "1.25",
    "least_interval": "30 min",
    "confirmed.recovery": "20 s",
    "confirmed.downtime": "10 s",
    "confirmed.mtbf": "12h",
    "on": "1",
}


def test_planning_by_itself_is_turned_on_within_limits_and_off_again(client_of: Any, job: models.Job) -> None:
    client = client_of("operator")
    text = client.post("/planner/automatic/", LIMITS, follow=True).content.decode()
    auto = models.AutoPlan.objects.get()
    assert (auto.enabled, auto.target, auto.longest_period_s, auto.set_by) == (True, 0.9, 3600.0, "operator")
    assert auto.confirmed["recovery"] == 20.0
    assert "Automatic planning: on" in text
    assert "Not looked at yet" in text
    beside = {"job": "gpt-small", "off": "1", "address": "job=gpt-small&recovery=77"}
    off = client.post("/planner/automatic/", beside, follow=True).content.decode()
    assert value_of(off, "recovery") == "77"
    assert "Automatic planning: off" in off
    assert "Stopped by operator" in off


@pytest.mark.parametrize(
    ("name", "typed", "said"),
    [
        ("target", "90", "Write 0.9."),
        ("longest_period", "30", "not above the shortest period"),
        ("shortest_period", "soon", "is not a duration"),
        ("change_ratio", "1", "1 would change at every look"),
        ("least_interval", "-1", "is negative"),
        ("confirmed.recovery", "x", "is not a duration"),
    ],
)
def test_wrong_limits_are_told_at_their_field_and_change_nothing(
    name: str, typed: str, said: str, client_of: Any, job: models.Job
) -> None:
    answer = client_of("operator").post("/planner/automatic/", LIMITS | {name: typed})
    assert answer.status_code == 400
    text = answer.content.decode()
    found = re.search(rf'id="auto_{re.escape(name)}_error">([^<]*)<', text)
    assert found
    assert said in found[1]
    assert f'value="{typed}"' in text
    assert error_at(text, "target") == ""
    assert not models.AutoPlan.objects.exists()


# -- whatever is asked -----------------------------------------------------------------------------------

TIMES = ("0", "1e-9", "21 ms", "0.5", "6", "90", "5m", "7.9h", "12d", "1e12", "-1", "nan", "1e400", "x", "", "9" * 60)
SHARES = ("0", "1e-300", "0.2", "0.5", "0.97", "0.999999999", "1", "1.5", "97", "-0", "x", "")
COUNTS = ("0", "1", "2", "64", "100000", "1000000000", "9" * 40, "-1", "2.5", "x", "")
RATES = ("none", "1e-9", "0.1", "60", "28440", "1d", "1e12", "500", "0", "x", "")
ASKED = {
    **dict.fromkeys(("save_stall", "recovery", "downtime", "drain", "drain_ssd", "repair", "step_time"), TIMES),
    **dict.fromkeys(("target", "cluster_availability", "node_share", "memory_share"), SHARES),
    **dict.fromkeys(("nodes", "standbys"), COUNTS),
    "mtbf": RATES,
    "mtbf_unit": ("mtbf", "failures_per_day", "per_1000_node_days", "x"),
    "planned_stops_per_week": ("0", "2", "500", "5000", "60480000", "1e30", "x"),
    "period": ("0", "1", "20 steps", "1 step", "1e9 steps", "9" * 40 + " steps", "10 min", "1e12", "x", "-1", ""),
}
FIGURES = ("rate", "losses", "optimum", "standbys")


def anything(seed: int) -> dict[str, str]:
    """Return a question of values that may be right, wide apart, absurd or none at all."""
    chance = random.Random(seed)
    query = {"job": "gpt-small" if chance.random() < 0.5 else "", **(VALUES if chance.random() < 0.7 else {})}
    for name in chance.sample(sorted(ASKED), chance.randint(1, 9)):
        query[name] = chance.choice(ASKED[name])
    return query


HARD = (
    {"planned_stops_per_week": "500", "recovery": "10 min", "mtbf": "1h"},
    {"planned_stops_per_week": "2", "recovery": "7.9h", "mtbf": "12d", "save_stall": "1 min"},
    {"nodes": "100000", "repair": "12d", "mtbf": "60", "recovery": "5"},
    {"nodes": "4", "repair": "1e12", "mtbf": "60", "recovery": "5", "standbys": "3"},
    {"mtbf": "none", "repair": "24h", "standbys": "4"},
    {"mtbf": "none", "target": "0.999999999", "step_time": "1 ms"},
    {"save_stall": "0", "mtbf": "1e12"},
)


@pytest.mark.slow
def test_whatever_is_asked_page_and_files_answer_or_say_what_is_wrong(client_of: Any, job: models.Job) -> None:
    client = client_of("operator")
    asked = [PLAN | hard for hard in HARD] + [{"job": "", **VALUES} | hard for hard in HARD]
    answers = 0
    for query in asked + [anything(seed) for seed in range(60)]:
        text = page(client, query)
        told = words(text)
        assert not re.search(r"(?<!')\b(nan|inf|None)\b", told), query
        answers += "No answer" not in told
        for name in FIGURES:
            file = client.get(f"/planner/csv/{name}/", query)
            assert file.status_code == (200 if f'id="figure-{name}"' in text else 404), (name, query)
            assert not re.search(r"\b(nan|inf)\b", file.content.decode()), (name, query)
    assert answers > len(asked)


def test_a_curve_ends_where_planned_stops_would_take_all_time(client_of: Any, job: models.Job) -> None:
    query = PLAN | {"planned_stops_per_week": "500", "recovery": "10 min", "mtbf": "1h"}
    lines = list(csv.DictReader(client_of("viewer").get("/planner/csv/optimum/", query).content.decode().splitlines()))
    assert any(line["period_s_by_faults"] == "" for line in lines)
    assert any(line["period_s_by_faults"] for line in lines)


def test_standbys_are_counted_from_the_nodes_that_are_really_lost(client_of: Any, job: models.Job) -> None:
    huge = PLAN | {"repair": "1e12", "mtbf": "60", "recovery": "5", "standbys": "3"}
    assert "in repair at once" in figures_title(page(client_of("viewer"), huge), "standbys")


def figures_title(text: str, name: str) -> str:
    found = re.search(rf'id="title-{name}">([^<]*)<', text)
    assert found
    return html.unescape(found[1])


# -- a rate that nobody has seen, units, examples -------------------------------------------------------


@pytest.fixture
def watched_job(job: models.Job) -> models.Job:
    """The job has run for a while, without any fault."""
    for epoch in models.Epoch.objects.filter(job=job):
        models.Epoch.objects.filter(pk=epoch.pk).update(running_at=epoch.started_at)
    return job


def test_a_rate_without_a_fault_behind_it_is_assumed_and_the_button_is_no_call_to_act(
    client_of: Any, watched_job: models.Job
) -> None:
    known = {name: value for name, value in PLAN.items() if name != "mtbf"}
    text = page(client_of("operator"), known)
    assert source_of(text, "mtbf")[1].startswith(("assumed: typical of 2 nodes; no fault in", "default: typical"))
    assert "Not measured but assumed: failure rate." in words(text)
    assert re.search(r'class="btn" id="apply"', text)
    assert re.search(r'class="btn btn-primary" id="apply"', page(client_of("operator"), PLAN))
    assert 'name="confirmed.mtbf"' in text


def test_a_rate_keeps_its_unit_until_it_could_be_converted(client_of: Any, job: models.Job) -> None:
    wrong = PLAN | {"mtbf": "7.9 hours or so", "mtbf_shown": "7.9 hours or so", "mtbf_was": "mtbf"}
    text = page(client_of("viewer"), wrong | {"mtbf_unit": "failures_per_day"})
    assert value_of(text, "mtbf") == "7.9 hours or so"
    assert 'id="mtbf-was" value="mtbf"' in text
    assert "mend it first" in error_at(text, "mtbf")


def test_a_unit_that_is_switched_back_gives_the_very_value_that_was_typed(client_of: Any, job: models.Job) -> None:
    query, seen = PLAN | {"mtbf": "7.93217h", "mtbf_shown": "7.93217h", "mtbf_was": "mtbf"}, []
    for unit in ("failures_per_day", "per_1000_node_days", "failures_per_day", "mtbf"):
        text = page(client_of("viewer"), query | {"mtbf_unit": unit})
        typed = re.search(r'id="mtbf-typed" value="([^"]*)"', text)
        assert typed
        query |= {"mtbf": value_of(text, "mtbf"), "mtbf_shown": value_of(text, "mtbf"), "mtbf_was": unit}
        query |= {"mtbf_typed": typed[1]}
        seen.append(re.search(r"Save every [^;,.<]*", words(text))[0])  # type: ignore[index]
    assert query["mtbf"] == "7.93217h"
    assert len(set(seen)) == 1
    assert len(query["mtbf_typed"]) == 0


def test_a_typed_number_in_another_unit_is_the_typed_number(client_of: Any, job: models.Job) -> None:
    query = PLAN | {"mtbf": "6", "mtbf_shown": "3.038", "mtbf_unit": "failures_per_day", "mtbf_was": "failures_per_day"}
    text = page(client_of("viewer"), query | {"mtbf_typed": "mtbf:7.9h"})
    assert value_of(text, "mtbf") == "6"
    assert 'id="mtbf-typed" value=""' in text


def test_a_rate_per_node_without_nodes_says_so_at_its_field(client_of: Any, db: None) -> None:
    for rate in ({}, {"mtbf": "4"}):
        text = page(client_of("viewer"), {"job": "", "mtbf_unit": "per_1000_node_days", **rate})
        assert "takes the number of nodes" in error_at(text, "mtbf")


def test_without_a_job_the_values_are_examples_and_say_so(client_of: Any, db: None) -> None:
    text = page(client_of("viewer"), {"job": ""})
    assert "Example values: enter yours." in text
    assert source_of(text, "recovery") == ("default", "an example: enter yours")
    assert value_of(text, "downtime") == "0 s"
    assert "Example values" not in page(client_of("viewer"), {"job": "", **VALUES})


# -- other periods than the best ------------------------------------------------------------------------


def test_a_missed_target_can_be_accepted_and_is_kept_as_missed(client_of: Any, job: models.Job) -> None:
    client = client_of("operator")
    text = page(client, PLAN | {"target": "0.99"})
    client.post("/planner/apply/", posted(text))
    plan = models.Plan.objects.get()
    assert (plan.every_steps, plan.target) == (button(text), 0.99)
    assert "misses the target" in plan.reason
    refused = {name: value for name, value in posted(text).items() if name != "accept_missed"}
    models.Plan.objects.all().delete()
    client.post("/planner/apply/", refused | {"seen": "0"})
    assert not models.Plan.objects.exists()


@pytest.mark.parametrize(("typed", "every"), [("500 steps", 500), ("10 min", 1856), ("1 step", 1)])
def test_a_period_of_your_own_is_told_and_can_be_applied(
    typed: str, every: int, client_of: Any, job: models.Job
) -> None:
    client = client_of("operator")
    text = page(client, PLAN | {"period": typed})
    rate = exact.ettr_at(INPUTS, every * 0.32 + 6)
    assert f"Your own period, every {grouped(every)} step" in words(text)
    assert f"{100 * rate:.2f} %" in words(text)
    found = re.search(r'id="own-form">(.*?)</form>', text, re.DOTALL)
    assert found
    pairs = dict(re.findall(r'name="(\w+)" value="([^"]*)"', found[1]))
    assert pairs["chosen_steps"] == str(every)
    client.post("/planner/apply/", {name: html.unescape(value) for name, value in pairs.items()})
    assert models.Plan.objects.get().every_steps == every


@pytest.mark.parametrize("typed", ["0 steps", "-5", "soon", "99999999 steps"])
def test_a_period_of_your_own_that_cannot_be_is_told_at_its_field(typed: str, client_of: Any, job: models.Job) -> None:
    assert error_at(page(client_of("viewer"), PLAN | {"period": typed}), "period")


def test_a_plan_that_was_applied_before_can_be_applied_again(client_of: Any, job: models.Job) -> None:
    client = client_of("operator")
    client.post("/planner/apply/", posted(page(client, PLAN)))
    client.post("/planner/apply/", PLAN | {"chosen_steps": "77", "accept_missed": "1"})
    text = page(client, PLAN)
    first = models.Plan.objects.get(version=1)
    assert f'form="own-form" name="chosen_steps" value="{first.every_steps}">apply again' in text


def test_a_plan_that_somebody_applied_meanwhile_is_not_replaced_unseen(client_of: Any, job: models.Job) -> None:
    client = client_of("operator")
    shown = posted(page(client, PLAN))
    client.post("/planner/apply/", PLAN | {"chosen_steps": "77", "accept_missed": "1"})
    text = words(client.post("/planner/apply/", shown, follow=True).content.decode())
    assert models.Plan.objects.count() == 1
    assert "Nothing was applied" in text


def test_more_steps_than_can_be_ordered_have_no_button_but_a_reason(client_of: Any, job: models.Job) -> None:
    models.Rank.objects.filter(job=job).update(step_s=1e-6)
    text = page(client_of("operator"), PLAN)
    assert 'id="apply"' not in text
    assert "are the most that can be ordered" in words(text)


# -- words ------------------------------------------------------------------------------------------------


def test_the_wait_for_a_repair_stands_apart_from_the_downtime(client_of: Any, job: models.Job) -> None:
    text = words(page(client_of("viewer"), PLAN | {"downtime": "30", "standbys": "0", "repair": "2h"}))
    assert re.search(r"waiting for a node \d+ h \d+ min 20\.\d+ % a lost node finds no standby", text)
    assert "most of it to waiting for a node" in text
    assert "Downtime , at most 30 s" in text
    assert re.search(r"Repair time , at most 2 h \d", text)
    none = words(page(client_of("viewer"), PLAN | {"standbys": "0", "repair": "2h", "target": "0.999"}))
    assert "not enough alone: many give 97." in none


def test_a_much_longer_period_says_what_a_fault_would_undo(client_of: Any, job: models.Job) -> None:
    text = words(page(client_of("operator"), PLAN))
    assert "A fault would undo 4 min 53 s on average instead of 6.2 s." in text


def test_what_is_posted_to_confirm_must_be_asked_for(client_of: Any, job: models.Job) -> None:
    for name in ("save_stall", "nodes", "x"):
        answer = client_of("operator").post("/planner/automatic/", LIMITS | {f"confirmed.{name}": "5"})
        assert answer.status_code == 400, name
    assert not models.AutoPlan.objects.exists()
    assert "nothing to confirm" in words(
        client_of("operator").post("/planner/automatic/", LIMITS | {"confirmed.save_stall": "5"}).content.decode()
    )


def test_limits_begin_with_the_range_of_the_best_period(client_of: Any, job: models.Job) -> None:
    text = page(client_of("operator"), PLAN)
    for name, value in (("target", "0.97"), ("shortest_period", "4 min 53 s"), ("longest_period", "19 min 32 s")):
        assert re.search(rf'name="{name}" value="{value}"[^>]*id="auto_{name}"', text), name


def test_nothing_worth_improving_is_told_too(client_of: Any, job: models.Job) -> None:
    text = words(page(client_of("viewer"), PLAN | {"mtbf": "1e9", "save_stall": "1e-6", "recovery": "1e-6"}))
    assert "Improve first: nothing. Halving any one value gives next to nothing." in text
