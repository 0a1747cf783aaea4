"""An S3 server for tests, on this machine alone, and the ways in which a real one fails.

It runs in the process of the tests, so that they can look at its objects and damage them. `troubles` decides for each
request whether it is answered as it should be.
"""

import io
import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import boto3
from botocore.client import BaseClient
from moto.server import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import BaseWSGIServer, make_server

BUCKET = "snapshots"
SECRET = "wJalrXUtnFEMI-secret"
_BUSY = b"<?xml version='1.0'?><Error><Code>%s</Code><Message>%s</Message></Error>"

Trouble = Callable[[Mapping[str, Any]], tuple[str, bytes] | None]
"""Given a request's environment, the status and body to answer instead, or None to answer as always."""


class S3Server:
    """One server on a port of its own that it keeps over its lives."""

    def __init__(self) -> None:
        self.trouble: Trouble | None = None
        self.requests: list[tuple[str, str]] = []
        self._application = DomainDispatcherApplication(create_backend_app)
        self._one = threading.Lock()
        """The library closes an object that is written anew while another request reads it: one request at a time."""
        self._server: BaseWSGIServer | None = None
        self.port = 0
        self.start()
        self.client: BaseClient = boto3.client(
            "s3",
            endpoint_url=self.endpoint,
            aws_access_key_id="test",
            aws_secret_access_key=SECRET,
            region_name="us-east-1",
        )
        self.client.create_bucket(Bucket=BUCKET)

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def environment(self) -> dict[str, str]:
        """What a process needs to use the server, by the provider's own names."""
        return {
            "AWS_ACCESS_KEY_ID": "test",
            "AWS_SECRET_ACCESS_KEY": SECRET,
            "AWS_ENDPOINT": self.endpoint,
            "AWS_ALLOW_HTTP": "true",
            "AWS_REGION": "us-east-1",
        }

    def start(self) -> None:
        logging.getLogger("werkzeug").setLevel(logging.WARNING)  # a line for each request is too many
        self._server = make_server("127.0.0.1", self.port, self._answer, threaded=True)
        self.port = self._server.server_port
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    def stop(self) -> None:
        """Be away: nobody listens; the objects stay."""
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
        self._server = None

    def _answer(self, environ: dict[str, Any], start_response: Any) -> Any:
        self.requests.append((environ["REQUEST_METHOD"], environ["PATH_INFO"]))
        instead = self.trouble(environ) if self.trouble else None
        content = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
        if instead is None:
            environ["wsgi.input"] = io.BytesIO(content)
            with self._one:
                return [b"".join(self._application(environ, start_response))]
        start_response(instead[0], [("Content-Type", "application/xml"), ("Content-Length", str(len(instead[1])))])
        return [instead[1]]

    # What tests see and do

    def paths(self, prefix: str = "") -> list[str]:
        """Return the names of all objects of the bucket, past any trouble."""
        pages = self.client.get_paginator("list_objects_v2").paginate(Bucket=BUCKET, Prefix=prefix)
        return [each["Key"] for page in pages for each in page.get("Contents", [])]

    def read(self, path: str) -> bytes:
        return bytes(self.client.get_object(Bucket=BUCKET, Key=path)["Body"].read())

    def write(self, path: str, content: bytes) -> None:
        self.client.put_object(Bucket=BUCKET, Key=path, Body=content)

    def remove(self, path: str) -> None:
        self.client.delete_object(Bucket=BUCKET, Key=path)

    def empty(self) -> None:
        for path in self.paths():
            self.remove(path)
        self.trouble = None
        self.requests.clear()

    @contextmanager
    def troubled(self, trouble: Trouble) -> Iterator[None]:
        """Answer by `trouble` inside the block."""
        self.trouble = trouble
        try:
            yield
        finally:
            self.trouble = None


def full(environ: Mapping[str, Any]) -> tuple[str, bytes] | None:
    """Have no room for parts."""
    if environ["REQUEST_METHOD"] == "PUT":
        return "507 Insufficient Storage", _BUSY % (b"XMinioStorageFull", b"Storage backend has reached its limit.")
    return None


def forbidden(_environ: Mapping[str, Any]) -> tuple[str, bytes]:
    """Know nobody."""
    return "403 Forbidden", _BUSY % (b"AccessDenied", b"Access Denied")


def skewed(_environ: Mapping[str, Any]) -> tuple[str, bytes]:
    """Find the date of every request too far from its own."""
    words = b"The difference between the request time and the current time is too large."
    return "403 Forbidden", _BUSY % (b"RequestTimeTooSkewed", words)


def slow(seconds: float) -> Trouble:
    """Take a while for each object written."""

    def wait(environ: Mapping[str, Any]) -> None:
        if environ["REQUEST_METHOD"] == "PUT":
            time.sleep(seconds)

    return wait
