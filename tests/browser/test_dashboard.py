"""The dashboard in a real browser: live, honest when stale, usable by keyboard, and alone with its own server."""

import re
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone
from playwright.sync_api import expect

from reliability import models
from reliability.domain.failover import State
from tests.browser.conftest import Watched
from tests.browser.site import Site

pytestmark = [pytest.mark.browser, pytest.mark.timeout(180)]
ADDRESSES = (
    "/",
    "/jobs/",
    "/jobs/gpt-small/",
    "/jobs/gpt-small/drill/",
    "/nodes/",
    "/nodes/s3/",
    "/standbys/",
    "/incidents/",
    "/failovers/",
    "/snapshots/",
    "/planner/",
    "/reports/",
)
NARROW = {"viewport": {"width": 390, "height": 844}, "color_scheme": "light"}
DARK = {"viewport": {"width": 1440, "height": 900}, "color_scheme": "dark"}


def test_a_change_shows_within_three_seconds_without_a_reload(watched: Watched, cluster: dict[str, Any]) -> None:
    page = watched.sign_in()
    page.evaluate("window.untouched = true")
    expect(page.locator("#live-badge")).to_contain_text("live")
    tile = page.locator(f"#tile-{models.Node.objects.get(name='n1').pk}")
    expect(tile).to_contain_text("healthy")
    models.Node.objects.filter(name="n1").update(health="unhealthy", health_reason="Fell over.")
    expect(tile).to_contain_text("unhealthy", timeout=3000)
    assert page.evaluate("window.untouched") is True
    assert watched.errors == []


def test_a_new_request_shows_up_on_the_waiting_card_and_in_the_menu(watched: Watched, cluster: dict[str, Any]) -> None:
    models.Failover.objects.filter(pk=cluster["request"].pk).update(state="rejected")
    page = watched.sign_in()
    expect(page.locator("#waiting-card")).to_contain_text("Propose again")
    models.Failover.objects.filter(pk=cluster["request"].pk).update(state="awaiting_approval")
    expect(page.locator("#waiting-card")).to_contain_text("Review and decide", timeout=3000)
    expect(page.locator("#nav")).to_contain_text("1 waiting for a decision")


def test_it_is_still_live_while_the_broker_is_away(watched: Watched, site: Site, cluster: dict[str, Any]) -> None:
    page = watched.sign_in()
    expect(page.locator("#live-badge")).to_contain_text("live")
    site.stop_broker()
    try:
        models.Node.objects.filter(name="n2").update(health="degraded")
        expect(page.locator(f"#tile-{models.Node.objects.get(name='n2').pk}")).to_contain_text("degraded", timeout=5000)
    finally:
        site.start_broker()


def test_the_page_says_so_when_it_is_stale_and_recovers_by_itself(
    watched: Watched, site: Site, cluster: dict[str, Any]
) -> None:
    page = watched.sign_in()
    badge = page.locator("#live-badge")
    expect(badge).to_contain_text("live")
    site.stop_web()
    try:
        expect(badge).to_contain_text("stale", timeout=16_000)
        expect(page.locator("#live-spoken")).to_contain_text("stale")
        models.Node.objects.filter(name="n3").update(health="degraded")
    finally:
        site.start_web()
    expect(page.locator(f"#tile-{models.Node.objects.get(name='n3').pk}")).to_contain_text("degraded", timeout=30_000)
    expect(badge).to_contain_text("live", timeout=10_000)


def test_approving_works_by_keyboard_alone_and_what_is_typed_survives_refreshes(
    watched: Watched, cluster: dict[str, Any]
) -> None:
    page, found = watched.sign_in(), cluster["request"]
    # a request whose digest is the service's own, as it would be proposed now
    from reliability.services import failovers

    models.Failover.objects.filter(pk=found.pk).update(state="cancelled", ended_at=found.created_at)
    request = failovers.propose(cluster["incident"])
    assert request is not None
    page.goto(f"{watched.site.url}/failovers/{request.pk}/")
    note = page.get_by_label("Note")
    note.focus()
    page.keyboard.type("dead ")
    models.Incident.objects.filter(pk=cluster["incident"].pk).update(summary="It is really gone")
    models.Failover.objects.filter(pk=request.pk).update(state_since=found.created_at)
    expect(page.locator("#why")).to_contain_text("It is really gone", timeout=4000)
    page.keyboard.type("part")
    expect(note).to_have_value("dead part")
    page.keyboard.press("Tab")
    expect(page.locator("#approve")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator(".messages")).to_contain_text("Approved")
    request.refresh_from_db()
    assert request.state != State.AWAITING_APPROVAL
    assert (request.decided_by, request.decision_note) == ("ops", "dead part")
    assert watched.errors == []


def test_open_details_and_scroll_survive_a_refresh(watched: Watched, cluster: dict[str, Any]) -> None:
    page = watched.sign_in()
    page.goto(f"{watched.site.url}/failovers/{cluster['request'].pk}/")
    page.locator("#skipped summary").click()
    page.evaluate("window.scrollTo(0, 200)")
    models.Failover.objects.filter(pk=cluster["request"].pk).update(digest="a" * 64)
    expect(page.locator("input[name=digest]").first).to_have_value("a" * 64, timeout=4000)
    expect(page.locator("#skipped")).to_have_attribute("open", "")
    assert page.evaluate("window.scrollY") == 200


def test_ages_count_by_themselves(watched: Watched, cluster: dict[str, Any]) -> None:
    page = watched.sign_in()
    age = page.locator("#jobs .ages time").last
    first = age.inner_text()
    expect(age).not_to_have_text(first, timeout=3000)


@pytest.mark.parametrize("watched", [DARK, NARROW], indirect=True, ids=["dark", "narrow"])
def test_every_page_is_quiet_fits_and_asks_no_other_host(watched: Watched, cluster: dict[str, Any]) -> None:
    page = watched.sign_in()
    details = (
        f"/failovers/{cluster['request'].pk}/",
        f"/failovers/{cluster['done'].pk}/",
        f"/incidents/{cluster['incident'].pk}/",
    )
    for address in (*ADDRESSES, *details):
        page.goto(f"{watched.site.url}{address}")
        expect(page.locator("#live-badge")).to_be_visible()
        assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth"), address
        assert watched.errors == [], address
    assert watched.elsewhere == []


@pytest.mark.parametrize("watched", [DARK], indirect=True, ids=["dark"])
def test_colours_follow_the_system_and_the_switch_overrides_it(watched: Watched, cluster: dict[str, Any]) -> None:
    page, root = watched.sign_in(), watched.page.locator("html")
    expect(root).to_have_attribute("data-bs-theme", "dark")
    switch = page.locator("#theme-switch")
    switch.click()
    expect(root).to_have_attribute("data-bs-theme", "light")
    page.reload()
    expect(root).to_have_attribute("data-bs-theme", "light")
    switch.click()
    expect(root).to_have_attribute("data-bs-theme", "dark")
    switch.click()
    expect(switch).to_have_attribute("aria-label", re.compile("as the system"))


@pytest.mark.parametrize("watched", [{"java_script_enabled": False}], indirect=True, ids=["no-script"])
def test_everything_is_right_without_javascript(watched: Watched, cluster: dict[str, Any]) -> None:
    page = watched.page
    page.goto(f"{watched.site.url}/")
    page.fill("#id_username", "ops")
    page.fill("#id_password", "correct horse battery")
    page.click("button")
    expect(page.locator("#waiting-card")).to_contain_text("Review and decide")
    expect(page.locator(".top-tools")).to_contain_text("reload for newer figures")


def test_a_refusal_and_the_answer_to_a_stale_decision_stay_put(watched: Watched, cluster: dict[str, Any]) -> None:
    page = watched.sign_in()
    found = cluster["request"]
    page.goto(f"{watched.site.url}/failovers/{found.pk}/")
    page.locator("input[name=digest]").first.evaluate("field => { field.value = 'f'.repeat(64); }")
    page.locator("#approve").click()
    expect(page.locator("main")).to_contain_text("Nothing was decided")
    # the page goes on to be live at the address of the request
    page.evaluate("window.untouched = true")
    models.Incident.objects.filter(pk=cluster["incident"].pk).update(summary="Found by a second look")
    models.Failover.objects.filter(pk=found.pk).update(digest="b" * 64)
    expect(page.locator("#why")).to_contain_text("Found by a second look", timeout=4000)
    page.goto(f"{watched.site.url}/no-such-page/")
    page.evaluate("window.untouched = true")
    models.Node.objects.filter(name="n1").update(health="degraded")
    page.wait_for_timeout(2500)
    assert page.evaluate("window.untouched") is True


def test_the_administration_keeps_to_the_content_policy(watched: Watched, cluster: dict[str, Any]) -> None:
    from django.contrib.auth.models import User

    User.objects.filter(username="ops").update(is_staff=True, is_superuser=True)
    page = watched.sign_in()
    for address in (
        "/admin/",
        "/admin/reliability/failover/",
        f"/admin/reliability/failover/{cluster['request'].pk}/change/",
    ):
        page.goto(f"{watched.site.url}{address}")
        expect(page.locator("#site-name")).to_contain_text("Stepkeeper")
        assert watched.errors == [], address
    expect(page.locator("#decision")).to_contain_text("Decide")
    assert watched.elsewhere == []


@pytest.mark.parametrize("watched", [{"viewport": {"width": 1280, "height": 900}}, NARROW], indirect=True)
def test_the_days_of_the_calendar_are_of_one_width_and_fill_it(watched: Watched, cluster: dict[str, Any]) -> None:
    now = timezone.now()
    models.MaintenanceWindow.objects.create(
        reason="Exchange of the power supply in the seventh rack",
        scope="all",
        starts_at=now,
        ends_at=now + timedelta(hours=1),
        planned_until=now + timedelta(hours=1),
        planned_by="ada",
        planned_at=now,
    )
    page = watched.sign_in()
    page.goto(f"{watched.site.url}/maintenance/")
    measured = "all => all.map(each => each.getBoundingClientRect().width)"
    days = page.locator(".calendar thead th").evaluate_all(measured)
    assert len(days) == 7
    assert max(days) - min(days) < 1
    (whole,) = page.locator(".calendar").evaluate_all(measured)
    assert abs(sum(days) - whole) < 2
