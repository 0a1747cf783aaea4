"""The routes by which agents report: raw ASGI in front of Django, because a heartbeat must cost next to nothing.

A heartbeat is checked, remembered in memory and answered; reports are in the database before they are answered. The
database is used in a few threads of its own. Whatever comes in gets an answer that says what is wrong with it; what
this side cannot do now is answered with 503, which makes the agent keep the reports and send them again.
"""

import asyncio
import json
import logging
import threading
from collections.abc import Awaitable, Callable, MutableMapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from django.conf import settings
from django.db import DatabaseError, InterfaceError, OperationalError, close_old_connections

from reliability import conf
from reliability.domain.reports import Batch, parse_batch, parse_registration
from reliability.errors import InvalidInput, ReliabilityError, StaleEpoch
from reliability.models import Job, Node
from reliability.services import (
    access,
    beats,
    clock,
    fault_tables,
    limits,
    nodes,
    orders,
    reports,
    retention,
    snapshots,
)

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Answer = tuple[int, dict[str, Any]]

PREFIX = "/ingest/"
THREADS = 4
FLUSH_S = 0.5
STATUS: dict[type[ReliabilityError], int] = {
    InvalidInput: 400,
    access.TokenRefused: 401,
    access.TokenOfAnotherNode: 403,
    access.NameTaken: 409,
    StaleEpoch: 409,
}

log = logging.getLogger(__name__)
threads = ThreadPoolExecutor(max_workers=THREADS, thread_name_prefix="ingest")


class _TooLarge(ReliabilityError):
    code = "too_large"


def _error(status: int, error: ReliabilityError) -> Answer:
    field = error.field if isinstance(error, InvalidInput) else ""
    return status, {"error": {**error.detail, "field": field}}


def _kept(code: str, message: str) -> Answer:
    hint = "Nothing was taken: the agent keeps its reports and sends them again."
    return 503, {"error": {"code": code, "message": message, "field": "", "hint": hint}}


def _token(scope: Scope) -> str:
    for name, value in scope["headers"]:
        if name == b"authorization" and value[:7].lower() == b"bearer ":
            return str(value[7:].decode("latin-1").strip())
    return ""


async def _body(scope: Scope, receive: Receive) -> bytes:
    """Return the whole body, never more than the limit."""
    limit = settings.MAX_INGEST_BYTES
    too_large = _TooLarge(
        f"The body is larger than {limit} bytes.",
        hint="Send fewer reports at once, or raise STEPKEEPER_MAX_INGEST_BYTES.",
    )
    for name, value in scope["headers"]:
        if name == b"content-length" and value.isdigit() and int(value) > limit:
            raise too_large
    parts, size, more = [], 0, True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ConnectionError
        part = message.get("body", b"")
        size += len(part)
        if size > limit:
            raise too_large
        parts.append(part)
        more = message.get("more_body", False)
    return b"".join(parts)


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not a JSON number")


def _decoded(raw: bytes) -> object:
    try:
        return json.loads(raw, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        reason = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise InvalidInput("body", f"is not JSON: {reason}", hint="Send one JSON object in UTF-8.") from error


def _register(raw: bytes, token: str) -> Answer:
    if not token:
        raise access.TokenRefused("The token is missing.")
    return 200, nodes.register(parse_registration(_decoded(raw)), token=token, now=clock.now())


def _batch(raw: bytes, token: str) -> Answer:
    if not token:
        raise access.TokenRefused("The token is missing.")
    batch = parse_batch(_decoded(raw))
    node = access.sender(batch.node, token, incarnation=batch.incarnation)
    now = clock.now()
    current = batch.incarnation == node.incarnation
    if current:
        beats.remember(node.name, batch.heartbeat, now)
        flusher.ensure()
    elif not batch.items:
        raise StaleEpoch(f"Incarnation {batch.incarnation} of node {node.name} was replaced by {node.incarnation}.")
    results = reports.accept(node, incarnation=batch.incarnation, items=batch.items, now=now) if current else []
    stale = not current or any(result["code"] == StaleEpoch.code for result in results)
    return (409 if stale else 200), _answer(node, batch, results if current else _all_stale(batch, node), now)


def _all_stale(batch: Batch, node: Node) -> list[dict[str, Any]]:
    message = f"Incarnation {batch.incarnation} of node {node.name} was replaced by {node.incarnation}."
    return [
        {"seq": item.seq, "status": "refused", "code": StaleEpoch.code, "message": message, "hint": StaleEpoch.hint}
        for item in batch.items
    ]


def _answer(node: Node, batch: Batch, results: list[dict[str, Any]], now: Any) -> dict[str, Any]:
    named = {item.job for item in batch.items if item.job}
    if batch.heartbeat is not None:
        named |= {job.job for job in batch.heartbeat.jobs}
    going = retention.may_go(node)
    named |= going.keys()
    jobs = list(Job.objects.filter(name__in=named)) if named else []
    table = fault_tables.for_node(node, batch.heartbeat.fault_table, now) if batch.heartbeat is not None else None
    return {
        **({"fault_table": table} if table is not None else {}),
        "server_time": now.timestamp(),
        "lease_s": conf.cluster_policy().lease_s,
        "silence_s": conf.cluster_policy().silence_s,
        "watch": conf.progress_rule().told(),
        "results": results,
        "orders": orders.overdue(node, now),
        "epochs": {job.name: job.epoch for job in jobs},
        "storage_floor": {job.name: job.storage_step for job in jobs if job.storage_step is not None},
        "ssd_floor": snapshots.local_floors(jobs),
        "may_go": {job.name: {"ssd": [], "storage": [], **going.get(job.name, {})} for job in jobs},
    }


ROUTES: dict[str, Callable[[bytes, str], Answer]] = {
    "/ingest/register": _register,
    "/ingest/batch": _batch,
}


def _in_thread(route: Callable[[bytes, str], Answer], raw: bytes, token: str) -> Answer:
    """Answer one request with the thread's own database connection."""
    close_old_connections()
    try:
        return answer(route, raw, token)
    finally:
        close_old_connections()


def answer(route: Callable[[bytes, str], Answer], raw: bytes, token: str) -> Answer:
    """Return the answer to one request, also when something is wrong with it or with this side."""
    try:
        return route(raw, token)
    except ReliabilityError as error:
        return _error(next((status for kind, status in STATUS.items() if isinstance(error, kind)), 400), error)
    except (OperationalError, InterfaceError) as error:
        log.warning("The database is away: %s", error)
        return _kept("database_away", "The database is away.")
    except Exception:  # boundary: an agent must never lose a report to an error of ours
        log.exception("A request of an agent failed.")
        return _kept("internal", "The server could not do it; the error is in its log.")


async def ingest(scope: Scope, receive: Receive, send: Send) -> None:
    """Answer one request below /ingest/."""
    route = ROUTES.get(scope["path"])
    if route is None:
        missing = ReliabilityError(f"There is no {scope['path']}.", hint=f"Routes: {', '.join(ROUTES)}.")
        await _send(send, *_error(404, missing))
        return
    if scope["method"] != "POST":
        await _send(send, *_error(405, ReliabilityError("Only POST is possible here.")))
        return
    try:
        raw = await _body(scope, receive)
    except _TooLarge as error:
        await _send(send, *_error(413, error))
        return
    except ConnectionError:
        return
    loop = asyncio.get_running_loop()
    await _send(send, *await loop.run_in_executor(threads, _in_thread, route, raw, _token(scope)))


async def _send(send: Send, status: int, told: dict[str, Any]) -> None:
    content = json.dumps(told, separators=(",", ":")).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(content)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": content})


class Flusher:
    """Writes remembered heartbeats every FLUSH_S from a thread of its own, also while nothing comes in.

    It must run without requests as well: that ingest listens is what makes the silence of a node count.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._away = False

    def ensure(self) -> None:
        """Start the thread unless it runs."""
        if self._thread is not None and self._thread.is_alive():
            return
        with self._lock:
            if self._thread is None or not self._thread.is_alive():
                self._stop = threading.Event()
                self._thread = threading.Thread(target=self._run, args=(self._stop,), name="ingest-flush", daemon=True)
                self._thread.start()

    def stop(self) -> None:
        """End the thread after a last flush."""
        with self._lock:
            thread, self._thread = self._thread, None
        if thread is not None:
            self._stop.set()
            thread.join(timeout=5)

    def _run(self, stop: threading.Event) -> None:
        ended = False
        while not ended:
            ended = stop.wait(FLUSH_S)
            self._flush()

    def _flush(self) -> None:
        close_old_connections()
        try:
            beats.flush(clock.now())
            limits.refresh()
        except DatabaseError as error:
            if not self._away:
                log.warning("Heartbeats cannot be written, they are kept in memory: %s", error)
            self._away = True
        except Exception:  # boundary: the thread must live, or every node would look silent
            log.exception("Heartbeats could not be written.")
        else:
            self._away = False
        finally:
            close_old_connections()


flusher = Flusher()


async def lifespan(scope: Scope, receive: Receive, send: Send) -> None:
    """Run the flusher while the server runs."""
    while True:
        message = await receive()
        if message["type"] == "lifespan.startup":
            flusher.ensure()
            await send({"type": "lifespan.startup.complete"})
        elif message["type"] == "lifespan.shutdown":
            await asyncio.to_thread(flusher.stop)
            await send({"type": "lifespan.shutdown.complete"})
            return
