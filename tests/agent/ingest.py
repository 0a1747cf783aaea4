"""A control plane's ingest side for tests: a real HTTP server that speaks docs/protocol.md section 1."""

import json
import threading
import time
import uuid
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from reliability.domain.orders import Order, OrderKind, derive_key, seal

JOIN_TOKEN = "join-me"
NODE_TOKEN = "node-token"


class Ingest:
    """Takes registrations and batches; what came is in `reports` and `beats`, what is to be sent in `orders`."""

    def __init__(self, *, node: str, broker_url: str, heartbeat_s: float = 0.1, lease_s: float = 0.8) -> None:
        self.node = node
        self.key = derive_key("secret", node, "1")
        self.broker_url = broker_url
        self.heartbeat_s = heartbeat_s
        self.lease_s = lease_s
        self.clock_ahead_s = 0.0
        self.reports: list[dict[str, Any]] = []
        self.received_at: list[float] = []
        self.beats: list[dict[str, Any]] = []
        self.registrations: list[dict[str, Any]] = []
        self.orders: list[dict[str, str]] = []
        self.epochs: dict[str, int] = {}
        self.floors: dict[str, int] = {}
        self.ssd_floors: dict[str, int] = {}
        self.may_go: dict[str, dict[str, list[list[int]]]] = {}
        self.later: Callable[[dict[str, Any]], bool] = lambda item: False
        self.fault_table: dict[str, str] | None = None
        self.malformed: Callable[[dict[str, Any]], bool] = lambda item: False
        self.refused: Callable[[dict[str, Any]], bool] = lambda item: False
        self.replaced = ""
        self.give_way = True
        self._seen: set[tuple[str, int]] = set()
        self._lock = threading.Lock()
        self._server: ThreadingHTTPServer | None = None
        self.port = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def open(self) -> None:
        """Listen, on the same port each time."""
        ingest = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def do_POST(self) -> None:
                raw = self.rfile.read(int(self.headers["Content-Length"]))
                token = self.headers.get("Authorization", "").removeprefix("Bearer ")
                status, body = ingest.answer(self.path, json.loads(raw), token)
                content = json.dumps(body).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)
                if ingest._server is None:
                    self.close_connection = True

            def log_message(self, *_args: object) -> None:
                pass

        class Server(ThreadingHTTPServer):
            daemon_threads = True
            allow_reuse_address = True
            connections: list[Any] = []

            def get_request(self) -> Any:
                connection = super().get_request()
                self.connections.append(connection[0])
                return connection

            def handle_error(self, *_args: object) -> None:
                pass

        self._server = Server(("127.0.0.1", self.port), Handler)
        self.port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    def close(self) -> None:
        """Go away: no listener, and open connections are cut."""
        server, self._server = self._server, None
        if server is None:
            return
        server.shutdown()
        server.server_close()
        for connection in server.connections:
            try:
                connection.shutdown(2)
            except OSError:
                continue
        server.connections.clear()

    def answer(self, path: str, body: dict[str, Any], token: str) -> tuple[int, dict[str, Any]]:
        with self._lock:
            if path == "/ingest/register":
                return self._register(body, token)
            return self._batch(body, token)

    def _register(self, body: dict[str, Any], token: str) -> tuple[int, dict[str, Any]]:
        if token not in {JOIN_TOKEN, NODE_TOKEN}:
            return 401, _error("unauthorized", "This token is not known.")
        self.registrations.append({**body, "token_used": token})
        self.replaced = "" if self.give_way else self.replaced
        answer = {
            "node": self.node,
            "order_key": self.key,
            "queue": f"node.{self.node}",
            "broker_url": self.broker_url,
            "heartbeat_s": self.heartbeat_s,
            "lease_s": self.lease_s,
            "server_time": self.now(),
        }
        return 200, answer | ({"token": NODE_TOKEN} if token == JOIN_TOKEN else {})

    def _batch(self, body: dict[str, Any], token: str) -> tuple[int, dict[str, Any]]:
        if token != NODE_TOKEN:
            return 401, _error("unauthorized", "This token is not known.")
        if body["incarnation"] == self.replaced:
            return self._stale(body)
        if any(self.malformed(item) for item in body["reports"]):
            return 400, _error("invalid_input", "reports.0.body: malformed")
        if body["heartbeat"] is not None:
            self.beats.append(body["heartbeat"])
        results = [self._take(item, item.get("incarnation") or body["incarnation"]) for item in body["reports"]]
        orders, self.orders = self.orders, []
        answer = {
            "server_time": self.now(),
            "lease_s": self.lease_s,
            "results": results,
            "orders": orders,
            "epochs": self.epochs,
            "storage_floor": self.floors,
            "ssd_floor": self.ssd_floors,
            "may_go": self.may_go,
            **({"fault_table": self.fault_table} if self.fault_table else {}),
        }
        return 409 if any(result["status"] == "refused" for result in results) else 200, answer

    def _stale(self, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        """Answer an agent whose place another life has taken."""
        if not body["reports"]:
            return 409, _error("stale_epoch", "This incarnation was replaced.")
        refusal = {"status": "refused", "code": "stale_epoch", "message": "replaced", "hint": ""}
        results = [{"seq": item["seq"], **refusal} for item in body["reports"]]
        return 409, {"server_time": self.now(), "lease_s": self.lease_s, "results": results, "orders": [], "epochs": {}}

    def _take(self, item: dict[str, Any], incarnation: str) -> dict[str, Any]:
        if self.refused(item):
            return {
                "seq": item["seq"],
                "status": "refused",
                "code": "stale_epoch",
                "message": "older epoch",
                "hint": "",
            }
        if self.later(item):
            return {"seq": item["seq"], "status": "later", "code": "", "message": "", "hint": ""}
        known = (incarnation, item["seq"]) in self._seen
        if not known:
            self._seen.add((incarnation, item["seq"]))
            self.reports.append({**item, "incarnation": incarnation})
            self.received_at.append(time.monotonic())
        return {
            "seq": item["seq"],
            "status": "duplicate" if known else "accepted",
            "code": "",
            "message": "",
            "hint": "",
        }

    def now(self) -> float:
        return time.time() + self.clock_ahead_s

    # What tests say and ask

    def seal(
        self, kind: str, *, job: str = "", epoch: int = 0, payload: dict[str, Any] | None = None, **given: Any
    ) -> Any:
        """Return a signed order; `given` overrides any of its fields, or `key`."""
        key = given.pop("key", self.key)
        fields: dict[str, Any] = {
            "id": uuid.uuid4().hex,
            "node": self.node,
            "nonce": uuid.uuid4().hex,
            "issued_at": self.now(),
            "expires_at": self.now() + 30,
            **given,
        }
        return seal(Order(kind=OrderKind(kind), job=job, epoch=epoch, payload=payload or {}, **fields), key=key)

    def order(self, kind: str, **given: Any) -> str:
        """Give an order with the next answer and return its id."""
        given.setdefault("id", uuid.uuid4().hex)
        self.give(self.seal(kind, **given))
        return str(given["id"])

    def give(self, envelope: Any) -> None:
        """Give an envelope with the next answer."""
        with self._lock:
            self.orders.append(envelope)

    def of_kind(self, kind: str) -> list[dict[str, Any]]:
        """Return the bodies of all reports of a kind."""
        return [
            {**report["body"], "_epoch": report["epoch"]} for report in list(self.reports) if report["kind"] == kind
        ]

    def result(self, order_id: str, limit_s: float = 15.0) -> dict[str, Any]:
        """Wait for the result of an order."""
        return until(lambda: next((r for r in self.of_kind("order_result") if r["order"] == order_id), None), limit_s)

    def done(self, kind: str, *, limit_s: float = 15.0, **given: Any) -> dict[str, Any]:
        """Give an order, wait for it and return its result; it must succeed."""
        outcome = self.result(self.order(kind, **given), limit_s)
        assert outcome["status"] == "done", outcome
        return outcome["result"]


def _error(code: str, message: str) -> dict[str, Any]:
    return {"error": {"code": code, "message": message, "field": "", "hint": ""}}


def until(condition: Callable[[], Any], limit_s: float = 15.0) -> Any:
    """Wait until the condition returns something true and return that; fail after the limit."""
    end = time.monotonic() + limit_s
    while True:
        found = condition()
        if found:
            return found
        assert time.monotonic() < end, f"not within {limit_s} s"
        threading.Event().wait(0.005)
