"""A running site and a real browser that may talk to nothing else."""

from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

from tests.browser.site import Site
from tests.web import rows

CHROMIUM = "/usr/bin/chromium"
ARGUMENTS = [
    "--no-sandbox",
    "--disable-quic",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Chromium without a window."""
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        yield chromium
        chromium.close()


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory, django_db_blocker: Any, django_db_setup: None) -> Iterator[Site]:
    """A running installation with a full cluster and an approver."""
    running = Site(tmp_path_factory.mktemp("site"))
    with pytest.MonkeyPatch.context() as patch, django_db_blocker.unblock():
        patch.setenv("DJANGO_ALLOW_ASYNC_UNSAFE", "true")  # the browser's driver keeps a loop in this thread
        with running.rows():
            running.migrate()
            rows.person("ops", "approver")
        running.start_broker()
        running.start_web()
        yield running
        running.stop()


@pytest.fixture
def cluster(site: Site) -> Iterator[dict[str, Any]]:
    """Fresh rows in every condition; writes of the test go to the site's database."""
    from django.apps import apps
    from django.db import connection

    from reliability import models

    with site.rows():
        with connection.constraint_checks_disabled():
            for model in set(apps.get_app_config("reliability").get_models()) - {models.ServiceBeat, models.Lease}:
                model._default_manager.all()._raw_delete(connection.alias)
        yield rows.full_cluster()


class Watched:
    """A page, and what went wrong on it."""

    def __init__(self, page: Page, site: Site) -> None:
        self.page, self.site = page, site
        self.errors: list[str] = []
        self.elsewhere: list[str] = []
        page.on(
            "console",
            lambda message: self.errors.append(message.text) if message.type in {"error", "warning"} else None,
        )
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.on("request", self._note)

    def _note(self, request: Any) -> None:
        if not request.url.startswith((self.site.url, "data:", "blob:")):
            self.elsewhere.append(request.url)

    def sign_in(self) -> Page:
        """Sign in as the approver by keyboard."""
        self.page.goto(f"{self.site.url}/")
        expect(self.page.locator("#id_username")).to_be_focused()
        self.page.keyboard.type("ops")
        self.page.keyboard.press("Tab")
        self.page.keyboard.type(rows.PASSWORD)
        self.page.keyboard.press("Enter")
        self.page.wait_for_url(f"{self.site.url}/")
        return self.page


@pytest.fixture
def watched(browser: Browser, site: Site, cluster: dict[str, Any], request: pytest.FixtureRequest) -> Iterator[Watched]:
    """A signed-out page in a fresh browser profile."""
    options = getattr(request, "param", {"viewport": {"width": 1440, "height": 900}})
    context = browser.new_context(**options)
    page = context.new_page()
    page.set_default_timeout(10_000)
    yield Watched(page, site)
    context.close()
