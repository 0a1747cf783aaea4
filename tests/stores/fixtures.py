"""An S3 server for each test run, emptied for each test."""

from collections.abc import Iterator

import pytest

from tests.stores.s3 import BUCKET, S3Server


@pytest.fixture(scope="session")
def s3_server() -> Iterator[S3Server]:
    server = S3Server()
    yield server
    server.stop()


@pytest.fixture
def s3(s3_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[S3Server]:
    """The server, empty, with the environment of this process set for it."""
    s3_server.empty()
    for name, value in s3_server.environment.items():
        monkeypatch.setenv(name, value)
    yield s3_server
    s3_server.trouble = None


@pytest.fixture
def s3_url(s3: S3Server) -> str:
    return f"s3://{BUCKET}/team"
