"""The ledger in a real browser: live, by keyboard, without JavaScript, on a phone, legible in both themes."""

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import expect

from reliability import models
from reliability.services import snapshot_tally
from tests.browser.conftest import Watched
from tests.web import rows

pytestmark = [pytest.mark.browser, pytest.mark.timeout(180)]
CONTRAST = (Path(__file__).parent / "contrast.js").read_text()
PHONE = {"viewport": {"width": 390, "height": 844}, "color_scheme": "light"}
LIGHT = {"viewport": {"width": 1440, "height": 900}, "color_scheme": "light"}
DARK = {"viewport": {"width": 1440, "height": 900}, "color_scheme": "dark"}
LEDGER = "/jobs/gpt-small/snapshots/"
LIMIT_MS = 20_000


@pytest.fixture(autouse=True)
def patience() -> Iterator[None]:
    """A machine that is busy with other things makes nothing wrong, only late."""
    expect.set_options(timeout=LIMIT_MS)
    yield
    expect.set_options(timeout=5_000)


def key(step: int) -> int:
    found: int = models.Snapshot.objects.get(job__name="gpt-small", step=step).pk
    return found


def every_state() -> None:
    """Make the ledger of the training job show every standing and a warning."""
    job = models.Job.objects.get(name="gpt-small")
    for step, state in ((1100, "corrupt"), (1120, "lost"), (1140, "deleted")):
        found = rows.snapshot(job, step, "ssd storage", age_s=1300 - step)
        found.copies.filter(tier="ssd", rank=1).update(state=state, problem="A shard was not what it was committed as.")
    copies = models.SnapshotCopy.objects.filter(snapshot__job=job)
    copies.filter(snapshot__step=1180).update(verified_at=job.created_at)
    copies.filter(snapshot__step=1200).update(verified_at=job.created_at, trial_restored_at=job.created_at)
    models.Snapshot.objects.filter(job=job, step=1180).update(distrusted=True, distrust_reason="It failed twice.")
    node = models.Node.objects.get(name="n1")
    for tier, level, words in (("ssd", "low", "Full in about 40 min at this rate."), ("memory", "full", "No room.")):
        models.Room.objects.create(
            node=node, tier=tier, level=level, words=words, free_bytes=10, total_bytes=1000, anchor_bytes=10,
            anchor_at=job.created_at, changed_at=job.created_at, looked_at=job.created_at,
        )  # fmt: skip
    snapshot_tally.recount_all()


def test_a_new_step_and_a_bad_copy_show_without_a_reload(watched: Watched, cluster: dict[str, Any]) -> None:
    page = watched.sign_in()
    page.goto(f"{watched.site.url}{LEDGER}")
    expect(page.locator("#live-badge")).to_contain_text("live")
    page.evaluate("window.untouched = true")
    rows.snapshot(models.Job.objects.get(name="gpt-small"), 1240, "memory", age_s=0.5)
    expect(page.locator("#state")).to_contain_text(re.compile("step 1.240"))
    bad = models.SnapshotCopy.objects.filter(snapshot__step=1200, tier="storage", rank=0)
    bad.update(state="corrupt")
    snapshot_tally.recount([key(1200)])
    models.SnapshotEvent.objects.create(
        snapshot_id=key(1200), at=models.Job.objects.all()[0].created_at, target="corrupt", sentence="x", ranks=[0]
    )
    expect(page.locator(f"#snap-{key(1200)}")).to_contain_text("corrupt")
    assert page.evaluate("window.untouched") is True
    assert watched.errors == []


def test_work_at_risk_counts_by_itself(watched: Watched, cluster: dict[str, Any]) -> None:
    page = watched.sign_in()
    page.goto(f"{watched.site.url}{LEDGER}")
    age = page.locator("section[aria-labelledby=s-risk] time").first
    first = age.inner_text()
    expect(age).not_to_have_text(first)


def test_ranks_unfold_and_a_step_opens_by_keyboard(watched: Watched, cluster: dict[str, Any]) -> None:
    page, pk = watched.sign_in(), key(1200)
    page.goto(f"{watched.site.url}{LEDGER}")
    page.locator(f"#snap-{pk}").get_by_role("link", name="ranks").focus()
    page.keyboard.press("Enter")
    expect(page.locator(f"#ranks-{pk}")).to_contain_text("0-2")
    page.locator(f"#snap-{pk}").get_by_role("link", name=re.compile("1.200")).focus()
    page.keyboard.press("Enter")
    expect(page.locator("#shards")).to_contain_text("e1-s1200-r0.snap")
    assert watched.errors == []


@pytest.mark.parametrize("watched", [{"java_script_enabled": False}], indirect=True, ids=["no-script"])
def test_it_is_all_there_without_javascript(watched: Watched, cluster: dict[str, Any]) -> None:
    page, pk = watched.page, key(1200)
    page.goto(f"{watched.site.url}{LEDGER}")
    page.fill("#id_username", "ops")
    page.fill("#id_password", rows.PASSWORD)
    page.click("button")
    expect(page.locator("#state")).to_contain_text("Work at risk")
    page.select_option("[name=tier]", "storage")
    page.get_by_role("button", name="Show").click()
    expect(page.locator("#ledger")).to_contain_text("2 snapshots")
    page.locator(f"#snap-{pk}").get_by_role("link", name="ranks").click()
    expect(page.locator(f"#ranks-{pk}")).to_contain_text("0-2")


@pytest.mark.parametrize("watched", [PHONE, LIGHT, DARK], indirect=True, ids=["phone", "light", "dark"])
def test_every_state_fits_and_is_legible(watched: Watched, cluster: dict[str, Any]) -> None:
    every_state()
    page = watched.sign_in()
    shots = os.environ.get("STEPKEEPER_SCREENSHOTS")
    for number, address in enumerate((LEDGER, f"{LEDGER}?open={key(1100)}", f"/snapshots/{key(1100)}/", "/snapshots/")):
        page.goto(f"{watched.site.url}{address}")
        expect(page.locator("#live-badge")).to_be_visible()
        page.evaluate("document.querySelectorAll('details').forEach((each) => { each.open = true; })")
        if shots:
            page.screenshot(path=f"{shots}/{number}-{page.evaluate('window.innerWidth')}.png", full_page=True)
        assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth"), address
        assert page.evaluate(CONTRAST) == [], address
        assert watched.errors == [], address
    assert watched.elsewhere == []
