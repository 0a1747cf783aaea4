"""The planner in a real browser: every value counts, nothing older wins, nothing is lost, and all ranks follow."""

import re
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Locator, Page, Route, expect

from reliability import models
from tests.browser.conftest import Watched
from tests.browser.site import Site
from tests.ops.running import Up, until

pytestmark = [pytest.mark.browser, pytest.mark.timeout(180)]

KNOWN = (
    "?job=gpt-small&target=0.97&save_stall=6&mtbf=7.9h&recovery=90&downtime=20&drain=60&drain_ssd=20"
    "&standbys=2&repair=2h&node_share=0.5&memory_share=0.2"
)
CHANGES = {
    "save_stall": "9 s",
    "mtbf": "5h",
    "recovery": "3 min",
    "downtime": "1 min",
    "drain": "2 min",
    "drain_ssd": "50",
    "cluster_availability": "0.99",
    "standbys": "0",
    "repair": "20h",
    "step_time": "3 s",
    "node_share": "0.7",
    "memory_share": "0.1",
    "planned_stops_per_week": "3",
}
LIMIT_MS = 20_000
COOKIES: dict[str, Any] = {}
DARK = {"viewport": {"width": 1440, "height": 900}, "color_scheme": "dark"}
NARROW = {"viewport": {"width": 390, "height": 844}, "color_scheme": "light"}
LEAST_CONTRAST = Path(__file__).with_name("contrast.js").read_text()


@pytest.fixture(autouse=True)
def patience() -> Iterator[None]:
    """A machine that is busy with other things makes nothing wrong, only late."""
    expect.set_options(timeout=LIMIT_MS)
    yield
    expect.set_options(timeout=5_000)


def signed_in(watched: Watched) -> Page:
    """Return the page of a browser that is signed in, by hand only the first time."""
    if watched.site.url not in COOKIES:
        COOKIES[watched.site.url] = watched.sign_in().context.cookies()
    watched.page.set_default_timeout(2 * LIMIT_MS)
    watched.page.context.add_cookies(COOKIES[watched.site.url])
    return watched.page


def opened(watched: Watched, query: str = KNOWN) -> Page:
    """Return the signed-in planner; `untouched` is lost when the page is loaded anew."""
    page = signed_in(watched)
    page.goto(f"{watched.site.url}/planner/{query}")
    expect(page.locator("#chart-rate .main-svg").first).to_be_visible()
    page.evaluate("window.untouched = true")
    return page


def field(page: Page, name: str) -> Locator:
    return page.locator(f"#id_{name}")


def drawn(page: Page) -> Any:
    """Return the values of the curve that is drawn now."""
    return page.evaluate("JSON.stringify(document.getElementById('chart-rate').data.map(({ x, y }) => [x, y]))")


def changed(page: Page, read: Callable[[Page], Any], before: Any, what: str) -> None:
    until(lambda: (page.wait_for_timeout(20), read(page) != before)[1], limit_s=20, what=what)


def test_every_value_changes_the_verdict_and_the_figure_without_a_reload(
    watched: Watched, cluster: dict[str, Any]
) -> None:
    page = opened(watched)
    verdict = page.locator("#verdict")
    for name, value in CHANGES.items():
        told, curve = verdict.inner_text(), drawn(page)
        field(page, name).fill(value)
        expect(page.locator(f"#source-{name}")).to_contain_text("entered by you")
        expect(verdict, name).not_to_have_text(told)
        changed(page, drawn, curve, f"the figure follows {name}")
    field(page, "target").fill("0.2")
    expect(verdict).to_contain_text("0.2 is reachable")
    page.locator("#id_mtbf_unit").select_option("per_1000_node_days")
    expect(field(page, "mtbf")).to_have_value("1600")
    told = verdict.inner_text()
    field(page, "nodes").fill("5")
    expect(verdict).not_to_have_text(told)
    assert page.evaluate("window.untouched") is True
    assert watched.errors == []


def test_the_source_of_a_value_can_be_switched_and_typing_makes_it_entered(
    watched: Watched, cluster: dict[str, Any]
) -> None:
    page = opened(watched, "?job=gpt-small")
    measured = field(page, "save_stall").input_value()
    source = page.locator("#from-save_stall")
    expect(source).to_have_value("measured")
    field(page, "save_stall").fill("9 s")
    expect(source).to_have_value("entered")
    expect(page.locator("#source-save_stall")).to_have_text(f"entered by you; measured is {measured}")
    source.select_option("measured")
    expect(field(page, "save_stall")).to_have_value(measured)
    source.select_option("default")
    expect(field(page, "save_stall")).to_have_value("0.5 s")
    expect(page.locator("#from-repair option[value=measured]")).to_be_disabled()
    assert "save_stall_from=default" in page.url
    page.go_back()
    expect(source).to_have_value("measured")
    page.go_back()
    expect(source).to_have_value("entered")
    expect(field(page, "save_stall")).to_have_value("9 s")
    assert watched.errors == []


def test_the_back_button_undoes_field_by_field(watched: Watched, cluster: dict[str, Any]) -> None:
    page, verdict = opened(watched), watched.page.locator("#verdict")
    told = [verdict.inner_text()]
    for name, value in (("save_stall", "9 s"), ("recovery", "5 min")):
        field(page, name).fill(value)
        expect(verdict).not_to_have_text(told[-1])
        told.append(verdict.inner_text())
    page.go_back()
    expect(verdict).to_have_text(told[1])
    expect(field(page, "recovery")).to_have_value("90")
    page.go_back()
    expect(verdict).to_have_text(told[0])
    expect(field(page, "save_stall")).to_have_value("6")
    page.go_forward()
    expect(verdict).to_have_text(told[1])
    assert page.evaluate("window.untouched") is True


def test_an_older_answer_never_takes_the_place_of_a_newer_one(watched: Watched, cluster: dict[str, Any]) -> None:
    page = opened(watched)
    held: list[Route] = []

    def hold_first(route: Route) -> None:
        if "save_stall=20" in route.request.url:
            held.append(route)
        else:
            route.continue_()

    page.route("**/planner/?*", hold_first)
    field(page, "save_stall").fill("20")
    until(lambda: (page.wait_for_timeout(20), held)[1], limit_s=20, what="the first question is asked")
    field(page, "save_stall").fill("9")
    expect(page.locator("#source-save_stall")).to_contain_text("entered by you")
    expect(page).to_have_url(re.compile("save_stall=9&"))
    newest = page.locator("#verdict").inner_text()
    try:
        held[0].continue_()
    except Exception:  # the browser has given it up already
        held.clear()
    page.wait_for_timeout(300)
    expect(page.locator("#verdict")).to_have_text(newest)
    expect(field(page, "save_stall")).to_have_value("9")


def test_the_first_key_is_asked_about_at_once_and_never_two_at_a_time(
    watched: Watched, cluster: dict[str, Any]
) -> None:
    page = opened(watched)
    page.evaluate(
        """() => {
          const real = window.fetch, going = new Set();
          window.flights = { most: 0, first: 0 };
          window.fetch = async (address, options) => {
            if (options?.headers?.["X-Fragment"] !== "planned") return real(address, options);
            going.add(options.signal);
            window.flights.first ||= performance.now();
            window.flights.most = Math.max(window.flights.most, [...going].filter(({ aborted }) => !aborted).length);
            try { return await real(address, options); } finally { going.delete(options.signal); }
          };
          document.addEventListener("input", () => { window.typedAt ||= performance.now(); }, true);
        }"""
    )
    field(page, "save_stall").click()
    page.keyboard.press("Control+A")
    page.keyboard.type("12.5 s", delay=30)
    expect(page).to_have_url(re.compile(r"save_stall=12\.5\+s&"))
    expect(page.locator("#source-save_stall")).to_contain_text("entered by you")
    assert page.evaluate("window.flights.most") == 1
    assert page.evaluate("window.flights.first - window.typedAt") < 30


def test_units_can_be_switched_back_and_forth_and_the_value_stays(watched: Watched, cluster: dict[str, Any]) -> None:
    page, unit = opened(watched), watched.page.locator("#id_mtbf_unit")
    field(page, "mtbf").fill("7.93217h")
    expect(page.locator("#source-mtbf")).to_contain_text("entered by you")
    for name, shown in (
        ("failures_per_day", "3.026"),
        ("per_1000_node_days", re.compile(r"\d+")),
        ("mtbf", "7.93217h"),
    ):
        unit.select_option(name)
        expect(page.locator("#mtbf-was")).to_have_value(name)
        expect(field(page, "mtbf")).to_have_value(shown)
    field(page, "mtbf").fill("often")
    expect(page.locator("#error-mtbf")).not_to_be_empty()
    unit.select_option("failures_per_day")
    expect(page.locator("#error-mtbf")).to_contain_text("mend it first")
    expect(unit).to_have_value("mtbf")
    expect(field(page, "mtbf")).to_have_value("often")


def test_a_period_of_your_own_is_compared_applied_and_applied_again(watched: Watched, cluster: dict[str, Any]) -> None:
    page = opened(watched)
    field(page, "period").fill("500 steps")
    expect(page.locator("#own")).to_contain_text("points less than at best")
    page.locator("#apply-own").click()
    expect(page.locator(".messages")).to_contain_text("Announced: every 500 steps")
    expect(field(page, "period")).to_have_value("500 steps")
    field(page, "period").fill("77 steps")
    expect(page.locator("#apply-own")).to_contain_text("every 77 steps")
    page.locator("#apply-own").click()
    expect(page.locator(".messages")).to_contain_text("Announced: every 77 steps")
    page.locator("#plan-2 button").click()
    expect(page.locator(".messages")).to_contain_text("Announced: every 500 steps")
    assert list(models.Plan.objects.order_by("version").values_list("every_steps", flat=True))[1:] == [500, 77, 500]


def test_what_is_folded_open_follows_the_values_too(watched: Watched, cluster: dict[str, Any]) -> None:
    page, why = opened(watched), watched.page.locator("#why-details")
    field(page, "save_stall").fill("9 s")
    expect(page.locator("#source-save_stall")).to_contain_text("entered by you")
    why.locator("summary").click()
    expect(why).to_contain_text("Weibull")
    expect(why.locator(".formula")).to_contain_text("2 · 9 s")
    field(page, "save_stall").fill("12 s")
    expect(why.locator(".formula")).to_contain_text("2 · 12 s")


def test_focus_and_caret_stay_where_a_person_types(watched: Watched, cluster: dict[str, Any]) -> None:
    page = opened(watched)
    recovery = field(page, "recovery")
    recovery.click()
    page.keyboard.press("Home")
    before = page.locator("#verdict").inner_text()
    page.keyboard.type("1")
    expect(page.locator("#verdict")).not_to_have_text(before)
    caret = "document.activeElement.id + document.activeElement.selectionStart"
    assert page.evaluate(caret) == "id_recovery1"
    page.keyboard.type("2")
    expect(recovery).to_have_value("1290")


def test_without_the_server_the_answer_is_marked_and_comes_back_by_itself(
    watched: Watched, cluster: dict[str, Any]
) -> None:
    page, state = opened(watched), watched.page.locator("#answer-state")
    before = page.locator("#verdict").inner_text()
    page.context.set_offline(True)
    field(page, "save_stall").fill("9 s")
    expect(state).to_contain_text("the server does not answer. What you typed is kept")
    expect(page.locator("#answer")).to_have_class(re.compile("outdated"))
    expect(page.locator("#verdict")).to_have_text(before)
    page.locator("#apply").focus()
    page.keyboard.press("Enter")
    expect(state).to_contain_text("Nothing was applied")
    page.context.set_offline(False)
    expect(page.locator("#verdict")).not_to_have_text(before)
    expect(state).not_to_contain_text("does not answer")
    expect(page.locator("#answer")).not_to_have_class(re.compile("outdated"))
    expect(field(page, "save_stall")).to_have_value("9 s")
    assert page.evaluate("window.untouched") is True


def test_a_mistake_is_told_at_its_field_and_the_last_answer_is_marked(
    watched: Watched, cluster: dict[str, Any]
) -> None:
    page, target = opened(watched), field(watched.page, "target")
    every = page.locator("#answer .big").first.inner_text()
    target.fill("97")
    expect(page.locator("#error-target")).to_contain_text("Write 0.97.")
    assert "error-target" in str(target.get_attribute("aria-describedby"))
    expect(target).to_have_attribute("aria-invalid", "true")
    expect(page.locator("#answer-state")).to_contain_text("Not current")
    expect(page.locator("#answer .big").first).to_have_text(every)
    expect(page.locator("#verdict")).to_contain_text("No answer: 1 value cannot be planned with")
    page.locator("#apply").focus()
    page.keyboard.press("Enter")
    expect(page.locator("#answer-state")).to_contain_text("Nothing was applied")
    target.fill("0.96")
    expect(page.locator("#answer-state")).to_be_empty()
    expect(page.locator("#error-target")).to_be_empty()
    expect(target).not_to_have_attribute("aria-invalid", "true")
    assert not models.Plan.objects.filter(version=2).exists()


def test_the_simulation_is_shown_and_goes_when_a_value_changes(watched: Watched, cluster: dict[str, Any]) -> None:
    page, box = opened(watched), watched.page.locator("#simulation")
    page.locator("#simulate").click()
    expect(box).to_contain_text("standard errors")
    assert page.evaluate("window.untouched") is True
    field(page, "recovery").fill("100")
    expect(box).to_be_empty()


def test_every_figure_can_be_downloaded_and_read_as_a_table(watched: Watched, cluster: dict[str, Any]) -> None:
    page = opened(watched)
    for name in ("rate", "losses", "optimum", "standbys"):
        with page.expect_download() as picture:
            page.locator(f"[data-svg={name}]").click()
        assert picture.value.path().read_text().startswith("<svg")
        with page.expect_download() as values:
            page.locator(f"#figure-{name} a[download]").click()
        assert values.value.suggested_filename == f"planner-{name}.csv"
        page.locator(f"#table-{name} summary").click()
        expect(page.locator(f"#table-{name} tbody tr").first).to_be_visible()
    assert watched.errors == []
    assert watched.elsewhere == []


def test_two_browsers_see_the_same_plan_and_neither_loses_what_it_typed(
    watched: Watched, browser: Browser, site: Site, cluster: dict[str, Any]
) -> None:
    page = opened(watched)
    context = browser.new_context()
    other = opened(Watched(context.new_page(), site))
    field(other, "recovery").fill("77")
    other.locator("#about-recovery summary").click()
    page.locator("#apply").click()
    expect(page.locator(".messages")).to_contain_text("Announced: every")
    plan = models.Plan.objects.get(version=2)
    expect(other.locator("#takeover")).to_contain_text("Plan 2: every")
    models.Rank.objects.filter(job=plan.job, rank__lt=2).update(plan_version=plan.announced)
    for each in (page, other):
        expect(each.locator("#takeover")).to_contain_text("2 of 3 ranks follow it")
        expect(each.locator("#plan-2")).to_contain_text("ops")
    expect(field(other, "recovery")).to_have_value("77")
    expect(other.locator("#help-recovery")).to_be_visible()
    assert other.evaluate("window.untouched") is True
    context.close()


def test_it_can_be_used_by_keyboard_alone(watched: Watched, cluster: dict[str, Any]) -> None:
    page = opened(watched)

    def tab_to(target: Locator, key: str = "Tab") -> None:
        for _ in range(120):
            page.keyboard.press(key)
            if target.evaluate("node => node === document.activeElement"):
                return
        raise AssertionError(f"{target} is not reached by {key}")

    page.locator("#id_job").focus()
    tab_to(page.locator("#about-target summary"))
    page.keyboard.press("Enter")
    expect(page.locator("#help-target")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.locator("#help-target")).to_be_hidden()
    tab_to(field(page, "target"))
    page.keyboard.type("0.95")
    expect(page.locator("#verdict")).to_contain_text("0.95 is reachable")
    tab_to(page.locator("#from-save_stall"))
    page.keyboard.press("m")
    expect(page.locator("#source-save_stall")).to_contain_text("measured from gpt-small")
    tab_to(page.locator("#apply"))
    page.keyboard.press("Enter")
    expect(page.locator(".messages")).to_contain_text("Announced: every")
    assert models.Plan.objects.get(version=2).target == 0.95


@pytest.mark.parametrize("watched", [{"java_script_enabled": False}], indirect=True, ids=["no-script"])
def test_everything_works_without_javascript(watched: Watched, cluster: dict[str, Any]) -> None:
    page = signed_in(watched)
    page.goto(f"{watched.site.url}/planner/{KNOWN}")
    page.locator("#id_save_stall").fill("9")
    page.locator("#compute").click()
    expect(page.locator("#source-save_stall")).to_contain_text("entered by you")
    expect(page.locator("#answer .big").first).to_contain_text("Save every 11 min 5")
    page.locator("#from-save_stall").select_option("measured")
    page.locator("#id_mtbf_unit").select_option("failures_per_day")
    page.locator("#compute").click()
    expect(page.locator("#source-save_stall")).to_contain_text("measured from gpt-small")
    expect(page.locator("#id_mtbf")).to_have_value("3.038")
    expect(page.locator("#table-rate tbody tr").first).to_be_visible()
    expect(page.locator("#compute-top")).to_be_visible()
    expect(page.locator("#apply-words")).to_contain_text("Without JavaScript")
    page.locator("#simulate").click()
    expect(page.locator("#simulation")).to_contain_text("standard errors")
    page.locator("#id_save_stall").fill("6")
    page.locator("#compute").click()
    page.locator("#apply").click()
    expect(page.locator(".messages")).to_contain_text("Announced: every")
    expect(page.locator("#takeover")).to_contain_text("0 of 3 ranks follow it")
    assert models.Plan.objects.get(version=2).applied_by == "ops"


@pytest.mark.parametrize("watched", [DARK, NARROW], indirect=True, ids=["dark", "narrow"])
def test_all_text_can_be_read_and_nothing_runs_over_the_edge(watched: Watched, cluster: dict[str, Any]) -> None:
    page = opened(watched)
    for query in (KNOWN, "?job=gpt-small&target=0.999&mtbf=1h", "?job=gpt-small&save_stall=x"):
        page.goto(f"{watched.site.url}/planner/{query}")
        expect(page.locator("#live-badge")).to_be_visible()
        for summary in page.locator("#more, #why-details, #automatic-details").all():
            summary.evaluate("node => { node.open = true; }")
        assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth"), query
        assert page.evaluate(LEAST_CONTRAST) == [], query
    assert watched.errors == []


# -- a job that runs ---------------------------------------------------------------------------------


@pytest.fixture
def demo(tmp_path: Path) -> Iterator[Up]:
    """The whole product with a job of three ranks on three nodes."""
    installation = Up(folder=tmp_path / "demo", command=("demo",))
    try:
        yield installation.ready()
    finally:
        installation.end()


def rows_of(demo: Up, query: str) -> list[Any]:
    with sqlite3.connect(f"file:{demo.folder / 'stepkeeper.sqlite3'}?mode=ro", uri=True, timeout=5) as database:
        return database.execute(query).fetchall()


def saved(demo: Up) -> dict[int, set[int]]:
    """Return which ranks took a snapshot after which step, of those that all had the time to take."""
    found: dict[int, set[int]] = {}
    query = (
        "select s.step, c.rank from reliability_snapshot s join reliability_snapshotcopy c on c.snapshot_id = s.id "
        "where s.step < (select min(step) from reliability_rank)"
    )
    for step, rank in rows_of(demo, query):
        found.setdefault(step, set()).add(rank)
    return found


def test_a_plan_moves_every_rank_of_a_running_job_at_the_same_step(demo: Up, browser: Browser) -> None:
    until(lambda: "Sign in" in demo.output, limit_s=60, what="the sign-in is shown")
    password = str(re.search(r"password (\S+)", demo.output)[1])  # type: ignore[index]
    until(lambda: len(saved(demo)) > 3, limit_s=60, what="the job saves")
    context = browser.new_context()
    page = context.new_page()
    page.set_default_timeout(2 * LIMIT_MS)
    page.goto(f"http://127.0.0.1:{demo.port}/planner/?job=demo")
    page.fill("#id_username", "admin")
    page.fill("#id_password", password)
    page.keyboard.press("Enter")
    for name, value in {
        "target": "0.8",
        "save_stall": "0.1 s",
        "mtbf": "60 s",
        "recovery": "1 s",
        "downtime": "1 s",
        "drain": "0",
    }.items():
        field(page, name).fill(value)
        expect(page.locator(f"#source-{name}")).to_contain_text("entered by you")
    expect(page.locator("#verdict")).to_contain_text("0.8 is reachable: save every")
    expect(page.locator("#answer-state")).to_be_empty()
    page.locator("#apply").click()
    expect(page.locator("#takeover")).to_contain_text("3 of 3 ranks follow it")
    ((every, first),) = rows_of(demo, "select every_steps, from_step from reliability_plan")
    assert every != 20
    until(
        lambda: sum(step >= first for step in saved(demo)) >= 3,
        limit_s=60,
        what=f"three snapshots from step {first} on",
    )
    expect(page.locator("#takeover")).to_contain_text("in force")
    ((first_now,),) = rows_of(demo, "select from_step from reliability_plan")
    found = saved(demo)
    last = max(step for step, ranks in found.items() if set(ranks) == {0, 1, 2})  # a newer one is just being saved
    found = {step: ranks for step, ranks in found.items() if step <= last}
    assert set(map(frozenset, found.values())) == {frozenset({0, 1, 2})}
    before, after = (range(20, min(first_now, last + 1), 20), range(-(-first_now // every) * every, last + 1, every))
    assert sorted(found) == [*before, *after]
    context.close()
