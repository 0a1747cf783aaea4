"""Every route, for every role, with GET and POST: who may do what, and nothing changes on GET."""

from typing import Any

import pytest
from django.urls import URLPattern, get_resolver

from reliability import models

pytestmark = pytest.mark.slow

READ = ("viewer", "operator", "approver")
PAGES = {
    "overview": {},
    "jobs": {},
    "job": {"name": "gpt-small"},
    "job-snapshots": {"name": "gpt-small"},
    "job-retention": {"name": "gpt-small"},
    "nodes": {},
    "node": {"name": "n1"},
    "standbys": {},
    "quarantines": {},
    "incidents": {},
    "incident": {"pk": 0},
    "decisions": {},
    "modes": {},
    "limits": {},
    "maintenance": {},
    "maintenance-window": {"pk": 0},
    "fault-codes": {},
    "fault-code": {"code": "xid-79"},
    "monitors": {},
    "failovers": {},
    "failover": {"pk": 0},
    "snapshots": {},
    "snapshot": {"pk": 0},
    "planner": {},
    "planner-simulation": {},
    "reports": {},
}
FILES = {"planner-csv": {"figure": "rate"}}
CONFIRM = {"job-drill": {"name": "gpt-small"}, "job-stop": {"name": "gpt-small"}}
# who may post: the least role
POSTS: dict[str, tuple[dict[str, Any], str]] = {
    "job-drill": ({"name": "gpt-small"}, "operator"),
    "job-propose": ({"name": "gpt-small"}, "operator"),
    "job-start": ({"name": "gpt-small"}, "operator"),
    "job-stop": ({"name": "gpt-small"}, "operator"),
    "job-retention-rules": ({"name": "gpt-small"}, "operator"),
    "job-trial": ({"name": "gpt-small"}, "operator"),
    "job-trial-schedule": ({"name": "gpt-small"}, "operator"),
    "skip-approve": ({"name": "gpt-small", "pk": 0}, "approver"),
    "skip-reject": ({"name": "gpt-small", "pk": 0}, "approver"),
    "snapshot-distrust": ({"pk": 0}, "operator"),
    "node-hold": ({"name": "n1"}, "operator"),
    "node-domain": ({"name": "n1"}, "operator"),
    "node-quarantine": ({"name": "n1"}, "operator"),
    "quarantine-release": ({"pk": 0}, "operator"),
    "quarantine-override": ({"pk": 0, "name": "s3"}, "approver"),
    "node-validate": ({"name": "s1"}, "operator"),
    "hold-release": ({"pk": 0}, "operator"),
    "planner-apply": ({}, "operator"),
    "planner-automatic": ({}, "operator"),
    "failover-approve": ({"pk": 0}, "approver"),
    "failover-reject": ({"pk": 0}, "approver"),
    "failover-cancel": ({"pk": 0}, "approver"),
    "fault-code-add": ({}, "approver"),
    "fault-code-change": ({"code": "xid-79"}, "approver"),
    "fault-code-switch": ({"code": "xid-79"}, "approver"),
    "fault-code-reset": ({"code": "xid-79"}, "approver"),
    "monitor-give": ({}, "approver"),
    "monitor-revoke": ({"pk": 0}, "approver"),
    "decision-verdict": ({"pk": 0}, "operator"),
    "decision-do": ({"pk": 0}, "operator"),
    "mode-set": ({}, "approver"),
    "mode-back": ({}, "approver"),
    "mode-unlock": ({}, "approver"),
    "incident-close": ({"pk": 0}, "operator"),
    "incident-reopen": ({"pk": 0}, "operator"),
    "incident-note": ({"pk": 0}, "operator"),
    "incident-release": ({"pk": 0}, "approver"),
    "limits-set": ({}, "approver"),
    "maintenance-plan": ({}, "operator"),
    "maintenance-end": ({"pk": 0}, "operator"),
    "token-renew": ({}, "viewer"),
    "token-delete": ({}, "viewer"),
}
OPEN_TO_ALL = {"login", "healthz", "admin-sign-in"}
ELSEWHERE = {"logout"}


def address(name: str, values: dict[str, Any], cluster: dict[str, Any]) -> str:
    from django.urls import reverse

    snapshot = cluster["training"].snapshots.first().pk
    keys = {
        **{f"incident{what}": cluster["incident"].pk for what in ("", "-close", "-reopen", "-note", "-release")},
        **{f"maintenance-{what}": cluster["maintenance"].pk for what in ("window", "end")},
        "hold-release": cluster["hold"].pk,
        "quarantine-release": cluster["quarantine"].pk,
        "quarantine-override": cluster["quarantine"].pk,
        "monitor-revoke": cluster["monitor"].pk,
        "skip-approve": cluster["skip"].pk,
        "skip-reject": cluster["skip"].pk,
        "decision-verdict": cluster["decision"].pk,
        "decision-do": cluster["decision"].pk,
        "snapshot": snapshot,
        "snapshot-distrust": snapshot,
    }
    return reverse(
        name, kwargs={k: keys.get(name, cluster["request"].pk) if k == "pk" else v for k, v in values.items()}
    )


def counts() -> dict[str, Any]:
    states = list(models.Failover.objects.values_list("state", flat=True)) + list(
        models.Job.objects.values_list("state", flat=True)
    )
    return {
        "states": states,
        "holds": models.Hold.objects.count(),
        "drills": models.Drill.objects.count(),
        "orders": models.OrderRecord.objects.count(),
    }


def test_the_table_of_routes_below_is_complete() -> None:
    named = {item.name for item in get_resolver().url_patterns if isinstance(item, URLPattern)}
    assert named == {*PAGES, *FILES, *CONFIRM, *POSTS, *OPEN_TO_ALL, *ELSEWHERE}


@pytest.mark.parametrize("name", {**PAGES, **FILES})
def test_pages_are_read_by_every_role_and_by_nobody_else(name: str, client_of: Any, cluster: dict[str, Any]) -> None:
    url = address(name, {**PAGES, **FILES}[name], cluster)
    answer = client_of("").get(url)
    assert answer.status_code == 302
    assert answer.url.startswith("/sign-in/?next=")
    before = counts()
    for role in READ:
        assert client_of(role).get(url).status_code == 200, role
        assert client_of(role).post(url).status_code == 405, role
    assert counts() == before


@pytest.mark.parametrize("name", CONFIRM)
def test_confirm_pages_are_for_operators(name: str, client_of: Any, cluster: dict[str, Any]) -> None:
    url = address(name, CONFIRM[name], cluster)
    before = counts()
    assert client_of("viewer").get(url).status_code == 403
    assert client_of("operator").get(url).status_code == 200
    assert counts() == before


@pytest.mark.parametrize("name", POSTS)
def test_posts_need_the_role(name: str, client_of: Any, cluster: dict[str, Any]) -> None:
    values, least = POSTS[name]
    url = address(name, values, cluster)
    assert client_of("").post(url).status_code == 302
    allowed = READ[READ.index(least) :]
    before = counts()
    for role in READ:
        if role not in allowed:
            answer = client_of(role).post(url)
            assert answer.status_code == 403, role
            assert "Your role does not include this" in answer.content.decode()
    assert counts() == before
    for role in allowed:
        assert client_of(role).post(url).status_code in {200, 302, 400, 409}, role


@pytest.mark.parametrize("name", set(POSTS) - set(CONFIRM))
def test_get_on_a_route_that_acts_is_refused(name: str, client_of: Any, cluster: dict[str, Any]) -> None:
    before = counts()
    assert client_of("approver").get(address(name, POSTS[name][0], cluster)).status_code == 405
    assert counts() == before


@pytest.mark.parametrize("name", POSTS)
def test_a_post_without_the_csrf_token_is_refused(name: str, client_of: Any, cluster: dict[str, Any]) -> None:
    before = counts()
    answer = client_of("approver", csrf=True).post(address(name, POSTS[name][0], cluster))
    assert answer.status_code == 403
    assert "did not come from this site" in answer.content.decode()
    assert counts() == before


def test_signing_in_works_and_a_wrong_password_says_so(client_of: Any) -> None:
    from tests.web.rows import PASSWORD

    client = client_of("")
    wrong = client.post("/sign-in/", {"username": "viewer", "password": "nope"})
    assert "Name or password is wrong" in wrong.content.decode()
    right = client.post("/sign-in/", {"username": "viewer", "password": PASSWORD})
    assert right.status_code == 302
    assert client.get("/").status_code == 200


def test_every_page_carries_the_content_policy_and_no_inline_script_or_style(
    client_of: Any, cluster: dict[str, Any]
) -> None:
    import re

    client = client_of("approver")
    for name, values in {**PAGES, **CONFIRM}.items():
        answer = client.get(address(name, values, cluster))
        text = answer.content.decode()
        assert answer.headers["Content-Security-Policy"].startswith("default-src 'self'"), name
        assert not re.search(r"<style|\sstyle=|\son\w+=|<script(?![^>]*(src=|application/json))", text), name
        assert not re.search(r'(?:src|href|action)="(?:https?:)?//', text), name


def test_a_missing_page_keeps_the_frame(client_of: Any, db: None) -> None:
    answer = client_of("viewer").get("/jobs/no-such-job/")
    assert answer.status_code == 404
    assert "There is nothing at this address" in answer.content.decode()
