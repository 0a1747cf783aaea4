"""What any test folder may use: a database of its own, quick passwords, and the hosts of tests/testbed/README.md."""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.db import connections

pytest_plugins = ["tests.testbed.fixtures", "tests.stores.fixtures"]


@pytest.fixture(scope="session")
def django_db_modify_db_settings() -> Iterator[None]:
    """Keep the files of a SQLite test database (also -wal and -shm) in a folder that goes with the run."""
    database = connections["default"].settings_dict
    if not database["ENGINE"].endswith("sqlite3"):
        yield
        return
    folder = Path(tempfile.mkdtemp(prefix="stepkeeper-test-"))
    database["TEST"]["NAME"] = str(folder / "test.sqlite3")
    yield
    connections.close_all()
    shutil.rmtree(folder)


@pytest.fixture(autouse=True)
def quick_passwords(settings: Any) -> None:
    """Hashing well is slow on purpose; not what these tests are about."""
    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
