"""A database that is busy or away is said as that on every page and over REST, with what became of the request."""

import sqlite3
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest
from django.contrib.auth.views import LoginView
from django.db import DatabaseError, InterfaceError, OperationalError, connection
from django.test import AsyncClient
from django.urls import reverse

from reliability import models
from reliability.services.database_trouble import Trouble, trouble

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def locked() -> Iterator[Callable[[], None]]:
    """Return what locks the database, for another writer that does not end."""
    other = sqlite3.connect(connection.settings_dict["NAME"], isolation_level=None)

    def lock() -> None:
        with connection.cursor() as cursor:
            cursor.execute("PRAGMA busy_timeout = 20")
        other.execute("BEGIN IMMEDIATE")

    yield lock
    other.close()
    connection.close()  # the next one waits as long as ever


def answered(client: Any, method: str, address: str, **sent: Any) -> Any:
    client.raise_request_exception = False
    return getattr(client, method)(address, **sent)


def test_a_form_that_meets_a_locked_database_says_that_nothing_was_changed(
    client_of: Any, cluster: dict[str, Any], locked: Callable[[], None]
) -> None:
    client = client_of("approver")
    window = models.MaintenanceWindow.objects.get()
    locked()
    forms = {
        reverse("maintenance-end", args=[window.pk]): {},
        reverse("node-hold", args=["n1"]): {"reason": "fan", "note": "fan"},
        reverse("logout"): {},
    }
    for address, entered in forms.items():
        answer = answered(client, "post", address, data=entered)
        text = answer.content.decode()
        assert (answer.status_code, answer["Retry-After"]) == (503, "5"), address
        assert "The database is busy" in text
        assert "Nothing was changed. Try again" in text
        assert "Reload this page to send what you entered once more" in text
        assert answer["Content-Security-Policy"]
    window.refresh_from_db()
    assert not window.ended_by
    assert client.get(reverse("maintenance")).status_code == 200, "reading goes on"


def test_rest_says_the_same_as_json(client_of: Any, cluster: dict[str, Any], locked: Callable[[], None]) -> None:
    client = client_of("approver")
    window = models.MaintenanceWindow.objects.get()
    locked()
    answer = answered(client, "post", reverse("api-maintenance-end", args=[window.pk]), content_type="application/json")
    assert (answer.status_code, answer["Retry-After"]) == (503, "5")
    told = {"detail": "The database is busy. Nothing was changed. Try again in a moment.", "code": "database_busy"}
    assert answer.json() == told


@pytest.mark.parametrize("method", ["get", "post"])
@pytest.mark.parametrize("route", ["nodes", "maintenance-plan", "admin:index"])
def test_a_connection_that_is_lost_is_no_error_of_the_page(
    client_of: Any, cluster: dict[str, Any], route: str, method: str
) -> None:
    def away(*_: object) -> None:
        raise OperationalError("server closed the connection unexpectedly")

    client = client_of("staff")
    with connection.execute_wrapper(away):
        answer = answered(client, method, reverse(route))
    assert answer.status_code == 503
    text = answer.content.decode()
    assert "The database is away" in text
    assert ("Look whether it was done" in text) == (method == "post")
    assert ("Reload this page" in text) == (method == "post")


async def test_the_web_process_answers_so_too_where_views_run_in_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    def away(*_: object, **__: object) -> None:
        raise InterfaceError("connection already closed")

    monkeypatch.setattr(LoginView, "get", away)
    client = AsyncClient()
    client.raise_request_exception = False
    answer = await client.get(reverse("login"))
    assert (answer.status_code, answer["Retry-After"]) == (503, "5")
    assert "The database is away" in answer.content.decode()


def test_what_does_not_pass_by_itself_stays_an_error_of_the_server(client_of: Any, cluster: dict[str, Any]) -> None:
    def broken(*_: object) -> None:
        raise DatabaseError("malformed")

    client = client_of("viewer")
    with connection.execute_wrapper(broken):
        answer = answered(client, "get", reverse("nodes"))
    assert answer.status_code == 500
    assert "reason is in the log" in answer.content.decode()


def _of_postgres(state: str) -> OperationalError:
    error = OperationalError("as the driver said it")
    error.__cause__ = psycopg.errors.lookup(state)("as the server said it")
    return error


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        ("55P03", Trouble.BUSY),
        ("40P01", Trouble.BUSY),
        ("40001", Trouble.BUSY),
        ("57P01", Trouble.AWAY),
        ("08006", Trouble.AWAY),
        ("53300", Trouble.AWAY),
        ("53100", None),
    ],
)
def test_the_codes_of_postgresql_say_what_passes(state: str, expected: Trouble | None) -> None:
    assert trouble(_of_postgres(state)) is expected


def test_other_errors_are_no_trouble_of_the_database() -> None:
    assert trouble(InterfaceError("connection already closed")) is Trouble.AWAY
    assert trouble(ValueError("x")) is None
    assert trouble(None) is None
    with pytest.raises(OperationalError) as caught, connection.cursor() as cursor:
        cursor.execute("SELECT * FROM nowhere")
    assert trouble(caught.value) is None
