"""A full cluster and people with each role."""

from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client

from tests.web import rows

ROLES = ("viewer", "operator", "approver")


@pytest.fixture
def people(db: None) -> dict[str, User]:
    """One person a role, and one who may use the administration as well."""
    known = {role: rows.person(role, role) for role in ROLES}
    known["staff"] = rows.person("staff", "approver", is_staff=True)
    return known


@pytest.fixture
def cluster(db: None) -> dict[str, Any]:
    """Rows in every condition."""
    return rows.full_cluster()


@pytest.fixture
def client_of(people: dict[str, User]) -> Any:
    """Return a client that is signed in as a role; '' is nobody."""

    def signed_in(role: str, *, csrf: bool = False) -> Client:
        client = Client(enforce_csrf_checks=csrf)
        if role:
            client.force_login(people[role])
        return client

    return signed_in
