"""No address that a person or a scanner can type makes a page fail."""

from typing import Any
from urllib.parse import urlencode

import pytest
from django.contrib.auth.models import User
from django.core.cache import cache
from django.test import Client

from reliability import models
from tests.web.test_routes import CONFIRM, PAGES, address

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
TIMES = ("save_stall", "drain", "recovery", "downtime", "mtbf", "target")


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


@pytest.mark.parametrize("parameter", [*TIMES, "mtbf_unit", "mtbf_of"])
def test_no_number_makes_the_planner_fail(parameter: str, client_of: Any, cluster: dict[str, Any]) -> None:
    client = client_of("operator")
    for value in ("1e-320", "1e308", "-1e308", "5e-324", "nan", "100", "99.99999999999999", "\ud800"):
        answer = client.get(f"/planner/?job=gpt-small&{quoted(parameter, value=value)}")
        assert answer.status_code == 200, (parameter, value)
    for value in ("1e-320", "1e308"):
        posted = dict.fromkeys(TIMES, "1") | {"job": "gpt-small", "target": "90", parameter: value}
        assert client.post("/planner/apply/", posted).status_code in {302, 400}, (parameter, value)


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
