"""Is an address well-formed, is its port free, does something answer there?"""

import http.client
import socket
import time


class AddressInvalid(ValueError):
    """Not HOST:PORT."""


def parse(text: str) -> tuple[str, int]:
    """Return host and port of 'HOST:PORT' or '[IPV6]:PORT'. Raises AddressInvalid."""
    host, _, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not host or not port.isdecimal() or not 0 < int(port) < 65536:
        raise AddressInvalid(f"{text!r} is not HOST:PORT; 127.0.0.1:8000 and [::1]:8000 are.")
    return host, int(port)


def local_name(host: str) -> str:
    """Return the name by which this machine itself reaches a listening address."""
    return {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 (compared with, not bound)


def url(host: str, port: int) -> str:
    """Return the address as a person opens it."""
    name = local_name(host)
    return f"http://[{name}]:{port}/" if ":" in name else f"http://{name}:{port}/"


def refusal(host: str, port: int, *, patience_s: float = 1.0) -> str:
    """Return why a server could not listen there, '' when it could.

    Waits a moment: the port of a process that was just killed is freed a little later.
    """
    deadline = time.monotonic() + patience_s
    while True:
        reason = _bind_refusal(host, port)
        if not reason or time.monotonic() > deadline:
            return reason
        time.sleep(0.05)


def _bind_refusal(host: str, port: int) -> str:
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
    except OSError as error:
        return error.strerror or str(error)
    return ""


def free_port(host: str, first: int, *, tries: int = 50) -> int:
    """Return the first port from `first` on where a server could listen; `first` when none of the tries is free."""
    free = (port for port in range(first, first + tries) if not _bind_refusal(host, port))
    return next(free, first)


def accepts(host: str, port: int) -> bool:
    """Return whether something listens there."""
    try:
        with socket.create_connection((local_name(host), port), timeout=1):
            return True
    except OSError:
        return False


def healthy(host: str, port: int, *, host_header: str) -> bool:
    """Return whether the web process there says that it is well."""
    connection = http.client.HTTPConnection(local_name(host), port, timeout=2)
    try:
        connection.request("GET", "/healthz", headers={"Host": host_header})
        return connection.getresponse().status == http.HTTPStatus.OK
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()
