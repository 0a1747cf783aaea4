"""No address that a person or a scanner can type makes a page fail."""

import itertools
import json
import re
from typing import Any
from urllib.parse import urlencode

import pytest
from django.contrib.auth.models import User
from django.core.cache import cache
from django.test import Client

from reliability import models
from tests.web.test_routes import CONFIRM, PAGES, address

pytestmark = pytest.mark.slow

VALUES = (
    "-1",
    "0",
    "1e-320",
    "99999999999999999999999",
    "nan",
    "../../etc",
    "\x00",
    "\ud800",
    "--name",
    "-",
    "",
    "É" * 300,
)
NAMES = (
    "per_page",
    "page",
    "sort",
    "name",
    "state",
    "health",
    "role",
    "job",
    "open",
    "kind",
    "fault_class",
    "fragment",
)
TIMES = ("save_stall", "drain", "drain_ssd", "recovery", "downtime", "repair", "step_time")
NUMBERS = ("target", "cluster_availability", "nodes", "standbys", "node_share", "memory_share")
WORDS = ("mtbf_unit", "mtbf_was", "mtbf_shown", "save_stall_from", "save_stall_shown", "job", "part", "every_steps")
PLANNED = (*TIMES, *NUMBERS, "mtbf", "planned_stops_per_week")
HOSTILE = (
    *(
        "1e-320",
        "1e308",
        "-1e308",
        "5e-324",
        "nan",
        "-inf",
        "1e400",
        "100",
        "99.99999999999999",
        "0",
        "-0",
        "1",
        "none",
    ),
    *(
        "1e-9",
        "1e12",
        "\ud800",
        "\x00",
        "<script>",
        "{{ 7*7 }}",
        "9" * 4000,
        "\uff11\uff12",
        "true",
        "30 s",
        "1h30m",
        "0.5d",
        "\u0663",
    ),
)
VISIBLE = re.compile(r"<script.*?</script>|<[^>]*>", re.DOTALL)
NO_NUMBER = re.compile(r"(?<![\w'])(nan|inf|-inf|Infinity|None|undefined)(?![\w'])")


LISTS = ("nodes", "incidents", "failovers")


def quoted(*names: str, value: str) -> str:
    return urlencode(dict.fromkeys(names, value), errors="surrogatepass")


@pytest.mark.parametrize("name", {**PAGES, **CONFIRM})
def test_no_query_makes_a_page_fail(name: str, client_of: Any, cluster: dict[str, Any]) -> None:
    client = client_of("approver")
    url = address(name, {**PAGES, **CONFIRM}[name], cluster)
    for value in VALUES:
        assert client.get(f"{url}?{quoted(*NAMES, value=value)}").status_code in {200, 404}, value


@pytest.mark.parametrize("name", LISTS)
def test_no_order_or_page_makes_a_table_fail(name: str, client_of: Any, cluster: dict[str, Any]) -> None:
    client = client_of("viewer")
    for parameter in ("per_page", "page", "sort"):
        for value in (*VALUES, "-name,../../etc", "job__password"):
            assert client.get(f"/{name}/?{quoted(parameter, value=value)}").status_code == 200, (parameter, value)


def without_what_was_typed(text: str) -> str:
    """Return what a page says of its own: not what stands in fields, or in quotes in messages about them."""
    return re.sub(r"&#x27;.*?&#x27;", "", VISIBLE.sub(" ", text))


def check_planner(client: Any, query: str, *, whole: bool = False) -> None:
    """The page answers, shows nothing that is no number, and repeats what was typed as text only."""
    answer = client.get(f"/planner/?{query}", headers={} if whole else {"X-Fragment": "planned"})
    assert answer.status_code == 200, query
    text = answer.content.decode()
    assert not NO_NUMBER.search(without_what_was_typed(text)), query
    assert "<script>" not in text, query
    figures = re.search(r'id="figure-data" type="application/json">(.*?)</script>', text)
    if figures:
        json.loads(figures[1], parse_constant=pytest.fail)


def test_no_value_makes_the_planner_fail_or_show_what_is_no_number(client_of: Any, cluster: dict[str, Any]) -> None:
    client, names = client_of("operator"), (*PLANNED, *WORDS)
    for value in HOSTILE:
        check_planner(client, f"job=gpt-small&{quoted(*PLANNED, value=value)}", whole=True)
    for at, name in enumerate(names):
        for value in HOSTILE[at % 9 :: 9]:
            check_planner(client, f"job=gpt-small&{quoted(name, value=value)}")


@pytest.mark.slow
@pytest.mark.parametrize("name", [*PLANNED, *WORDS])
def test_no_single_value_makes_the_planner_fail(name: str, client_of: Any, cluster: dict[str, Any]) -> None:
    for value in HOSTILE:
        check_planner(client_of("operator"), f"job=gpt-small&{quoted(name, value=value)}")


@pytest.mark.slow
def test_no_pair_of_values_makes_the_planner_fail(client_of: Any, cluster: dict[str, Any]) -> None:
    client = client_of("operator")
    for first, second in itertools.combinations((*PLANNED, "mtbf_unit"), 2):
        for one, two in (("0", "0"), ("1e-9", "1e12"), ("1e12", "1e-9"), ("1", "per_1000_node_days")):
            check_planner(client, urlencode({"job": "gpt-small", first: one, second: two}))


def test_no_posted_value_makes_applying_fail(client_of: Any, cluster: dict[str, Any]) -> None:
    client = client_of("operator")
    for at, name in enumerate((*PLANNED, "every_steps", "job")):
        value = ("1e-320", "1e308", "nan", "9" * 400, "\x00", "-1")[at % 6]
        for address_of in ("/planner/apply/", "/planner/automatic/"):
            posted = {"job": "gpt-small", "target": "0.9", name: value}
            assert client.post(address_of, posted).status_code in {302, 400, 404}, (name, value)


@pytest.mark.parametrize("figure", ["rate", "losses", "optimum", "standbys", "nothing", "-"])
def test_no_query_makes_a_file_of_a_figure_fail(figure: str, client_of: Any, cluster: dict[str, Any]) -> None:
    client = client_of("viewer")
    for at, name in enumerate(PLANNED):
        value = ("0", "1e-9", "1e12", "nan", "none", "")[at % 6]
        answer = client.get(f"/planner/csv/{figure}/?job=gpt-small&{quoted(name, value=value)}")
        assert answer.status_code in {200, 404}, (name, value)
        if answer.status_code == 200:
            assert not NO_NUMBER.search(answer.content.decode()), (name, value)


def test_pages_of_a_table_have_one_size_whatever_is_asked_for(client_of: Any, cluster: dict[str, Any]) -> None:
    client = client_of("viewer")
    shown = client.get("/nodes/").content.decode().count('id="row-')
    assert shown == models.Node.objects.count()
    for asked in ("1", "-1", "1000000"):
        assert client.get(f"/nodes/?per_page={asked}").content.decode().count('id="row-') == shown


@pytest.mark.parametrize(
    "body", [rb'{"username": "\ud800", "password": "x"}', rb'{"username": "a", "password": "\udfff"}']
)
def test_a_name_that_is_no_text_is_refused_at_the_sign_in_of_programs(db: None, body: bytes) -> None:
    cache.clear()
    User.objects.create_user("a", password="a long password")
    assert Client().post("/api/token/", body, "application/json").status_code == 400
