"""Drills, holds, checks, stopping a job, and the planner, through their forms."""

from typing import Any

import pytest

from reliability import models
from tests.web import rows


@pytest.fixture
def job(db: None) -> models.Job:
    """A job that trains on two nodes and has saved."""
    made = rows.job("gpt-small", [rows.node("n1"), rows.node("n2")])
    rows.snapshot(made, 1220)
    return made


def test_a_drill_orders_the_fault_on_the_chosen_node(client_of: Any, job: models.Job) -> None:
    node = models.Node.objects.get(name="n2")
    answer = client_of("operator").post("/jobs/gpt-small/drill/", {"what": "kill_rank", "node": node.pk}, follow=True)
    assert "The drill runs: kill a rank on n2" in answer.content.decode()
    drill = models.Drill.objects.get()
    assert (drill.node, drill.what, drill.started_by) == (node, "kill_rank", "operator")
    assert models.OrderRecord.objects.filter(kind="drill", node=node).count() == 1


def test_a_node_of_another_job_cannot_be_drilled(client_of: Any, job: models.Job) -> None:
    other = rows.node("x1")
    answer = client_of("operator").post("/jobs/gpt-small/drill/", {"what": "kill_rank", "node": other.pk})
    assert answer.status_code == 200
    assert "valid choice" in answer.content.decode()
    assert not models.Drill.objects.exists()


def test_a_second_drill_is_refused_in_words(client_of: Any, job: models.Job) -> None:
    client, node = client_of("operator"), models.Node.objects.get(name="n2")
    client.post("/jobs/gpt-small/drill/", {"what": "kill_rank", "node": node.pk})
    answer = client.post("/jobs/gpt-small/drill/", {"what": "kill_rank", "node": node.pk}, follow=True)
    assert "A drill of job gpt-small is going on" in answer.content.decode()


def test_stopping_a_job_tells_its_nodes(client_of: Any, job: models.Job) -> None:
    client_of("operator").post("/jobs/gpt-small/stop/")
    job.refresh_from_db()
    assert job.state != "running"


def test_a_hold_needs_a_reason_and_names_its_owner(client_of: Any, job: models.Job) -> None:
    client = client_of("operator")
    assert client.post("/nodes/n1/hold/", {"reason": ""}).status_code == 400
    client.post("/nodes/n1/hold/", {"reason": "fan is loud"})
    hold = models.Hold.objects.get()
    assert (hold.owner, hold.reason) == ("operator", "fan is loud")
    client.post(f"/holds/{hold.pk}/release/")
    hold.refresh_from_db()
    assert hold.released_by == "operator"


def test_a_check_can_be_asked_for(client_of: Any, job: models.Job) -> None:
    rows.node("s1", role="standby")
    client_of("operator").post("/nodes/s1/validate/")
    assert set(models.Validation.objects.values_list("check_kind", flat=True)) == {"bandwidth", "sdc"}


PLAN = {
    "job": "gpt-small",
    "target": "97",
    "save_stall": "6",
    "save_stall_unit": "s",
    "drain": "0",
    "recovery": "90",
    "recovery_unit": "s",
    "downtime": "0",
    "mtbf": "7.9",
    "mtbf_unit": "h",
    "mtbf_of": "job",
}


def test_the_planner_answers_for_the_entered_values(client_of: Any, job: models.Job) -> None:
    text = client_of("viewer").get("/planner/", PLAN).content.decode()
    # Young: sqrt(2 * 6 s * 28440 s) = 584.2 s, and 1 - 90/28440 - sqrt(2 * 6 / 28440) = 97.63 %
    assert ">9 min 44 s</span>" in text
    assert "97.63 %" in text
    assert "is reachable" in text
    assert 'id="figure-data"' in text
    assert "Applying a period needs the operator role" in text


def test_the_planner_names_the_field_that_is_wrong(client_of: Any, job: models.Job) -> None:
    text = client_of("viewer").get("/planner/", PLAN | {"mtbf": "0"}).content.decode()
    assert "No answer" in text
    assert "mtbf:" in text
    text = client_of("viewer").get("/planner/", PLAN | {"save_stall": "many"}).content.decode()
    assert "Enter a number" in text


def test_the_planner_says_where_each_value_comes_from(client_of: Any, job: models.Job) -> None:
    text = client_of("viewer").get("/planner/?job=gpt-small").content.decode()
    assert "measured: median of 2 saves" in text
    assert "default: no recoveries measured yet" in text
    assert "default: no fault seen in 2.0 h" in text
    assert "entered; measured: median of 2 saves" in client_of("viewer").get("/planner/", PLAN).content.decode()


def test_faults_made_by_drills_do_not_shorten_the_time_between_faults(client_of: Any, job: models.Job) -> None:
    node = models.Node.objects.get(name="n2")
    cause = rows.incident(job, node)
    done = rows.completed(cause, rows.node("s1", role="standby"))
    assert "measured: 1 fault in 2.0 h" in client_of("viewer").get("/planner/?job=gpt-small").content.decode()
    models.Drill.objects.create(
        job=job, node=node, what="kill_node", state="recovered", started_by="x", started_at=done.fault_at, failover=done
    )
    assert "default: no fault seen" in client_of("viewer").get("/planner/?job=gpt-small").content.decode()


def test_applying_orders_exactly_the_period_on_the_button(client_of: Any, job: models.Job) -> None:
    import re

    client = client_of("operator")
    button = re.search(r"Apply to gpt-small: every (\d+) steps", client.get("/planner/", PLAN).content.decode())
    assert button
    answer = client.post("/planner/apply/", PLAN)
    assert answer.status_code == 302
    plan = models.Plan.objects.get()
    assert plan.every_steps == int(button.group(1))
    assert plan.applied_by == "operator"
    assert f"plan {plan.version}" in client.get("/jobs/gpt-small/").content.decode()


def test_a_time_between_faults_of_one_node_is_divided_by_the_nodes(client_of: Any, job: models.Job) -> None:
    from reliability.forms import PlannerForm

    inputs = PlannerForm(PLAN | {"mtbf_of": "node"}).inputs()
    assert inputs is not None
    assert inputs.mtbf_s == pytest.approx(7.9 * 3600 / 2)


def test_the_number_on_the_button_is_what_is_ordered_although_the_speed_moved_a_little(
    client_of: Any, job: models.Job
) -> None:
    client = client_of("operator")
    shown = models.Rank.objects.filter(job=job)
    text = client.get("/planner/", PLAN).content.decode()
    number = int(text.split("Apply to gpt-small: every ")[1].split()[0])
    shown.update(step_s=0.35)
    client.post("/planner/apply/", PLAN | {"every_steps": number})
    assert models.Plan.objects.get().every_steps == number


def test_a_number_that_is_right_no_longer_is_refused_with_the_new_one(client_of: Any, job: models.Job) -> None:
    models.Rank.objects.filter(job=job).update(step_s=3.2)
    answer = client_of("operator").post("/planner/apply/", PLAN | {"every_steps": 1807}, follow=True)
    assert not models.Plan.objects.exists()
    text = answer.content.decode()
    assert "now give every 181 steps, not 1807 as shown" in text
    assert "Apply to gpt-small: every 181 steps" in text


def test_a_target_out_of_reach_offers_nothing_to_apply(client_of: Any, job: models.Job) -> None:
    client, hard = client_of("operator"), PLAN | {"target": "99.9"}
    text = client.get("/planner/", hard).content.decode()
    assert "Apply to gpt-small" not in text
    assert "It cannot be applied" in text
    assert "9 min 44 s" in text
    assert "584.2 s" not in text
    client.post("/planner/apply/", hard | {"every_steps": 5})
    assert not models.Plan.objects.exists()


def test_values_that_were_only_assumed_are_named_beside_the_button(client_of: Any, job: models.Job) -> None:
    text = client_of("operator").get("/planner/?job=gpt-small&target=90").content.decode()
    assert "Not measured but assumed: recovery, downtime, time between faults." in text


def test_the_wait_for_a_person_is_no_downtime_of_the_machine(job: models.Job) -> None:
    from django.utils import timezone

    from reliability.selectors.plan_pages import planner_values

    rows.completed(rows.incident(job, models.Node.objects.get(name="n2")), rows.node("s1", role="standby"))
    # 7.1 s to see and judge, 7.9 s of waiting, 0.9 s to fence and check
    assert planner_values(job, now=timezone.now())["downtime"].seconds == pytest.approx(8.0)
