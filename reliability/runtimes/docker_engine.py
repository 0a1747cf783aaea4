"""How is one Docker Engine reached, and what do its answers mean in our words?

Every call has a time-out. Errors of the SDK and of HTTP below it become errors of this project here and nowhere else.
"""

import contextlib
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import docker
import requests
import urllib3
from docker.constants import DEFAULT_DOCKER_API_VERSION
from docker.errors import APIError, DockerException, ImageNotFound, NotFound

from reliability.errors import ContainerMissing, EngineUnreachable, ImageMissing, InvalidInput, RuntimeFailure

LOST = (requests.RequestException, urllib3.exceptions.HTTPError, ConnectionError, TimeoutError)
HINTS = {
    "mount": "Make the folder on this node, or correct the mount of the job.",
    "executable file not found": "Check the program of the job: it must exist inside the image.",
    "no such file or directory": "Check the program and the working folder of the job: the image must hold them.",
    "memory": "Check the memory limit of the job.",
    "cpus": "Check the CPU limit of the job: it may not exceed the CPUs of this node.",
    "no space left": "Free space in the data folder of the container engine.",
}
SDK_SCHEMES = ("unix://", "tcp://", "http://", "https://", "npipe://", "ssh://")


class Engine:
    """Connections to the engine at one URL: one shared for short calls, a fresh one for each long-lived stream."""

    def __init__(self, url: str, *, call_limit_s: float, tls_folder: Path | None = None) -> None:
        if not url.startswith(SDK_SCHEMES):
            raise InvalidInput("url", f"{url!r} is no engine address.", hint="For example unix:///run/docker.sock.")
        self.url = url
        self._call_limit_s = call_limit_s
        self._tls = tls_config(tls_folder)
        self._lock = threading.Lock()
        self._shared: tuple[int, docker.APIClient] | None = None

    @property
    def api(self) -> docker.APIClient:
        """The shared client of this process, made at the first use (a forked child gets its own)."""
        with self._lock:
            if self._shared is None or self._shared[0] != os.getpid():
                self._shared = (os.getpid(), self.connect(limit_s=self._call_limit_s))
            return self._shared[1]

    def connect(self, *, limit_s: float) -> docker.APIClient:
        """Return a new client that speaks the newest version both sides know.

        `trust_env` is off before the first request: REQUESTS_CA_BUNDLE and CURL_CA_BUNDLE would replace the
        authority of the engine's own certificate, and HTTP_PROXY is not meant for engines either.
        """
        first = self._client(DEFAULT_DOCKER_API_VERSION, limit_s)
        try:
            offered = str(first.version(api_version=False)["ApiVersion"])
        finally:
            first.close()
        return self._client(min(offered, DEFAULT_DOCKER_API_VERSION, key=version_key), limit_s)

    def close(self) -> None:
        """Close the shared connection; the next call opens a new one."""
        with self._lock:
            shared, self._shared = self._shared, None
        if shared:
            shared[1].close()

    def _client(self, version: str, limit_s: float) -> docker.APIClient:
        client = docker.APIClient(base_url=self.url, version=version, timeout=limit_s, tls=self._tls)
        client.trust_env = False
        return client


def version_key(version: str) -> tuple[int, ...]:
    """Return an API version in a form that sorts: 1.9 before 1.41."""
    return tuple(int(part) for part in version.split("."))


def tls_config(folder: Path | None) -> "docker.tls.TLSConfig | bool":
    """Return the certificates of a folder (ca.pem, cert.pem, key.pem as the docker CLI names them), False for none."""
    if folder is None:
        return False
    pair = (str(folder / "cert.pem"), str(folder / "key.pem"))
    try:
        return docker.tls.TLSConfig(client_cert=pair, ca_cert=str(folder / "ca.pem"), verify=True)
    except DockerException as error:
        raise InvalidInput("tls_folder", str(error), hint="It holds ca.pem, cert.pem and key.pem.") from error


@contextlib.contextmanager
def translated(what: str) -> Iterator[None]:
    """Turn errors of the SDK into ours; `what` names the container or image they are about."""
    try:
        yield
    except ImageNotFound as error:
        raise ImageMissing(f"{what}: {explain(error)}") from error
    except NotFound as error:
        raise missing(what, error) from error
    except APIError as error:
        raise RuntimeFailure(f"{what}: {explain(error)}", hint=hint_for(explain(error))) from error
    except LOST as error:
        raise EngineUnreachable(f"{what}: the container engine does not answer ({type(error).__name__}).") from error
    except DockerException as error:
        raise EngineUnreachable(f"{what}: the container engine cannot be used ({error}).") from error


def missing(what: str, error: NotFound) -> RuntimeFailure:
    """Return the error for a 404: the engine uses it for an absent container, and at start for an absent program."""
    if "no such container" in explain(error).lower():
        return ContainerMissing(f"{what}: {explain(error)}")
    return RuntimeFailure(f"{what}: {explain(error)}", hint=hint_for(explain(error)))


def explain(error: APIError) -> str:
    """Return the engine's own words."""
    return str(error.explanation or error)


def hint_for(message: str) -> str:
    """Return what the operator may do about the engine's message; '' when it speaks for itself."""
    lowered = message.lower()
    return next((hint for part, hint in HINTS.items() if part in lowered), "")
