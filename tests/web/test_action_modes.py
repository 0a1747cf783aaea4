"""What is done by itself, decisions and their verdicts, as people and programs see and change them."""

from datetime import timedelta
from typing import Any

import pytest
from django.urls import reverse
from django.utils import timezone

from reliability.domain.modes import Mode
from reliability.models import Decision, Incident, ModeRule
from reliability.selectors import precision
from tests.web import rows

pytestmark = pytest.mark.django_db
RULE = {"reach": "code", "name": "xid-79", "group": "", "mode": "shadow", "seen": 0, "reason": "to see how it does"}


def decided(verdict: str = "", *, mode: str = "shadow", code: str = "xid-79", **values: Any) -> Decision:
    now = timezone.now()
    incident = values.pop("incident", None) or Incident.objects.create(code=code, opened_at=now)
    known = {"fault_class": "hardware", "action": "failover", "summary": "The GPU fell off the bus.", "digest": "d"}
    return Decision.objects.create(
        incident=incident, code=code, mode=mode, at=now, looked_at=now, verdict=verdict, **(known | values)
    )


def sent(client: Any, name: str, /, *args: Any, **values: Any) -> str:
    answer = client.post(reverse(name, args=args), values, follow=True)
    assert answer.status_code == 200, answer.content.decode()
    return str(answer.content.decode())


def test_a_mode_is_set_on_the_page_of_a_code_and_told_there_with_who_and_why(client_of: Any) -> None:
    client = client_of("approver")
    assert "no rule: as the job" in client.get(reverse("fault-code", args=["xid-79"])).content.decode()
    page = sent(client, "mode-set", **RULE, needed_percent=95, least_decisions=20)
    for told in ("observe only", "version 1", "to see how it does", "needs 95 % of at least 20 right", "0 of 20"):
        assert told in page, told
    assert precision.mode_for("xid-79", "") is Mode.SHADOW


def test_only_those_who_may_see_the_forms_and_set_modes(client_of: Any) -> None:
    for role, status in (("viewer", 403), ("operator", 403)):
        client = client_of(role)
        assert (
            "Change what is done by itself" not in client.get(reverse("fault-code", args=["xid-79"])).content.decode()
        )
        assert client.post(reverse("mode-set"), RULE).status_code == status
        assert client.post("/api/v1/modes/", RULE, "application/json").status_code == status
    assert not ModeRule.objects.exists()


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"reason": ""}, "required"),
        ({"group": "no-such-rack"}, "not one of the available choices"),
        ({"name": "no-such-code"}, "no code of the table"),
        ({"needed_percent": 95}, "Give both numbers"),
        ({"needed_percent": 30, "least_decisions": 5}, "greater than or equal to 50"),
        ({"mode": "automatic", "needed_percent": 95, "least_decisions": 5}, "not allowed yet"),
        ({"unlocks_itself": "on"}, "evidence to go by"),
    ],
)
def test_what_cannot_be_set_is_refused_with_what_would_be_right(
    client_of: Any, wrong: dict[str, Any], told: str
) -> None:
    answer = client_of("approver").post(reverse("mode-set"), {**RULE, **wrong})
    assert answer.status_code == 400
    assert told in answer.content.decode()
    assert not ModeRule.objects.exists()


def test_a_change_that_was_overtaken_is_told_and_not_made(client_of: Any) -> None:
    client = client_of("approver")
    sent(client, "mode-set", **RULE)
    assert "changed this rule meanwhile" in sent(client, "mode-set", **{**RULE, "mode": "propose"})
    assert precision.mode_for("xid-79", "") is Mode.SHADOW


def test_a_family_or_all_codes_have_a_page_of_their_own_where_rules_are_taken_back(client_of: Any) -> None:
    client = client_of("approver")
    asked = client.get(reverse("modes")).content.decode()
    for told in ('<select name="reach"', '<select name="name"', '<option value="nvidia-xid"'):
        assert told in asked, told
    page = sent(client, "mode-set", **{**RULE, "reach": "all", "name": ""})
    assert "all codes" in page
    assert precision.mode_for("xid-13", "") is Mode.SHADOW
    newest = precision.newest_change()
    assert "is taken back" in sent(client, "mode-back", reach="all", name="", group="", seen=newest, reason="enough")
    assert precision.mode_for("xid-13", "") is Mode.AUTOMATIC


def test_enough_evidence_is_offered_and_taken_with_one_click(client_of: Any) -> None:
    client = client_of("approver")
    sent(client, "mode-set", **RULE, needed_percent=75, least_decisions=2)
    decided("right"), decided("right")
    page = client.get(reverse("fault-code", args=["xid-79"])).content.decode()
    assert "The evidence is enough" in page
    assert "Make it automatic" in page
    values = {name: RULE[name] for name in ("reach", "name", "group", "seen")}
    assert "A wrong decision locks it again" in sent(client, "mode-unlock", **values, reason="it is enough")
    assert precision.mode_for("xid-79", "") is Mode.AUTOMATIC


def test_precision_stands_in_the_list_of_codes_with_the_number_of_decisions(client_of: Any) -> None:
    for verdict in ("right", "right", "right", "wrong", ""):
        decided(verdict)
    page = client_of("viewer").get(reverse("fault-codes"), {"words": "xid-79"}).content.decode()
    for told in ("75 %", "3 of 4", "at least 30 %", "5 decisions, 1 without a verdict"):
        assert told in page, told


def test_a_verdict_takes_one_click_and_returns_to_where_the_person_was(client_of: Any) -> None:
    decision = decided()
    client = client_of("operator")
    where = reverse("decisions") + "?verdict=missing"
    assert client.get(where).content.decode().count('name="verdict" value="right"') == 1
    answer = client.post(reverse("decision-verdict", args=[decision.pk]), {"verdict": "wrong", "next": where})
    assert (answer.status_code, answer.url) == (302, where)
    decision.refresh_from_db()
    assert (decision.verdict, decision.verdicts.get().by) == ("wrong", "operator")
    assert "No decision matches" in client.get(where).content.decode()


@pytest.mark.parametrize("next_", ["https://evil.example/", "//evil.example", "javascript:alert(1)", ""])
def test_a_form_never_leads_away_from_this_site(client_of: Any, next_: str) -> None:
    decision = decided()
    values = {"verdict": "right", "next": next_}
    answer = client_of("operator").post(reverse("decision-verdict", args=[decision.pk]), values)
    assert answer.url == reverse("decisions")


@pytest.mark.parametrize("verdict", ["", "maybe", "x" * 9])
def test_a_word_that_is_no_verdict_changes_nothing(client_of: Any, verdict: str) -> None:
    decision = decided()
    sent(client_of("operator"), "decision-verdict", decision.pk, verdict=verdict)
    decision.refresh_from_db()
    assert decision.verdict == ""


def test_a_viewer_reads_decisions_and_judges_none(client_of: Any) -> None:
    decision = decided()
    client = client_of("viewer")
    assert 'name="verdict"' not in client.get(reverse("decisions")).content.decode().replace(
        '<select name="verdict"', ""
    )
    for name in ("decision-verdict", "decision-do"):
        assert client.post(reverse(name, args=[decision.pk]), {"verdict": "right"}).status_code == 403
        assert client.post(reverse(f"api-{name}", args=[decision.pk]), {}, "application/json").status_code == 403


def test_decisions_are_narrowed_by_code_group_mode_and_verdict(client_of: Any) -> None:
    decided("right", code="xid-13", mode="automatic", group="rack-1"), decided()
    client = client_of("viewer")
    for asked in ({"code": "xid-13"}, {"group": "RACK-1"}, {"mode": "automatic"}, {"verdict": "right"}):
        page = client.get(reverse("decisions"), asked).content.decode()
        assert ("xid-13" in page, "xid-79" in page) == (True, False), asked
    for asked in ({"code": "xid-13"}, {"group": "rack-1"}, {"mode": "automatic"}, {"verdict": "right"}):
        assert [row["code"] for row in client.get("/api/v1/decisions/", asked).json()["results"]] == ["xid-13"]


def test_what_was_observed_only_is_done_by_hand_from_the_page(client_of: Any) -> None:
    node = rows.node("n1", role="standby")
    incident = Incident.objects.create(code="xid-79", node=node, opened_at=timezone.now())
    decision = decided(incident=incident, action="hold", node=node)
    client = client_of("operator")
    page = client.get(reverse("incident", args=[incident.pk])).content.decode()
    assert "Hold would have been done for n1" in page
    assert "Hold now" in page
    assert "It is held" in sent(client, "decision-do", decision.pk)
    assert "operator had it done" in client.get(reverse("incident", args=[incident.pk])).content.decode()


def test_rules_are_read_set_and_taken_back_over_rest(client_of: Any) -> None:
    client = client_of("approver")
    body = {"reach": "code", "name": "xid-79", "mode": "shadow", "reason": "to see"}
    made = client.post("/api/v1/modes/", {**body, "needed_precision": 0.9, "least_decisions": 5}, "application/json")
    assert (made.status_code, made.json()["version"], made.json()["mode"]) == (200, 1, "shadow")
    assert [rule["name"] for rule in client.get("/api/v1/modes/").json()] == ["xid-79"]
    again = client.post("/api/v1/modes/", {**body, "version": 0}, "application/json")
    assert again.status_code == 409
    gone = {"reach": "code", "name": "xid-79", "reason": "enough"}
    assert client.delete("/api/v1/modes/", gone, "application/json").status_code == 204
    assert client.get("/api/v1/modes/").json() == []


@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        ({"mode": "always"}, "mode"),
        ({"mode": 1}, "mode"),
        ({"reach": "every"}, "reach"),
        ({"name": ["xid-79"]}, "name"),
        ({"needed_precision": 0.9}, "least_decisions"),
        ({"needed_precision": "high", "least_decisions": 5}, "needed_precision"),
        ({"needed_precision": 0.2, "least_decisions": 5}, "needed_precision"),
        ({"least_decisions": True, "needed_precision": 0.9}, "least_decisions"),
        ({"unlocks_itself": "yes"}, "unlocks_itself"),
        ({"reason": "x" * 501}, "reason"),
        ({"version": "1"}, "version"),
        ({"nodes": "all"}, "nodes"),
    ],
)
def test_a_wrong_rule_over_rest_is_refused_by_the_name_of_its_field(
    client_of: Any, wrong: dict[str, Any], field: str
) -> None:
    body = {"reach": "code", "name": "xid-79", "mode": "shadow", "reason": "to see", **wrong}
    answer = client_of("approver").post("/api/v1/modes/", body, "application/json")
    assert answer.status_code == 400
    assert field in answer.json(), answer.json()


def test_verdicts_are_given_and_precision_is_read_over_rest_and_as_csv(client_of: Any) -> None:
    decision = decided()
    client = client_of("operator")
    address = reverse("api-decision-verdict", args=[decision.pk])
    answer = client.post(address, {"verdict": "right", "note": "seen it"}, "application/json")
    assert (answer.status_code, answer.json()["verdict"]) == (200, "right")
    assert answer.json()["verdicts"][0]["reason"] == "seen it"
    assert "verdict" in client.post(address, {"verdict": "maybe"}, "application/json").json()
    told = client.get("/api/v1/precision/").json()
    assert (told[0]["code"], told[0]["right"], told[0]["precision"]) == ("xid-79", 1, 1.0)
    lines = client.get("/api/v1/precision/", {"format": "csv"}).getvalue().decode().splitlines()
    assert lines[0].startswith("code,decisions,right")
    assert lines[1].startswith("xid-79,1,1,0")
    exported = client.get("/api/v1/decisions/", {"format": "csv"}).getvalue().decode().splitlines()
    assert exported[0].startswith("id,incident,job,node")
    assert "verdict=right" in exported[1]


def test_pages_of_a_thousand_decisions_ask_the_database_as_often_as_those_of_ten(
    client_of: Any, django_assert_max_num_queries: Any
) -> None:
    now = timezone.now()
    incident = Incident.objects.create(code="xid-79", opened_at=now)
    known = {"incident": incident, "code": "xid-79", "mode": "shadow", "action": "failover", "fault_class": "hardware"}
    Decision.objects.bulk_create(
        Decision(**known, digest=str(number), at=now - timedelta(seconds=number), looked_at=now)
        for number in range(1000)
    )
    client = client_of("operator")
    for address in (reverse("decisions"), reverse("fault-code", args=["xid-79"]), "/api/v1/decisions/"):
        with django_assert_max_num_queries(30):
            assert client.get(address).status_code == 200
