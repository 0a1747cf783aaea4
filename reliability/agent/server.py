"""How does the agent speak to the server: one kept connection, and errors told apart by what helps against them?"""

import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from reliability.agent import sendable
from reliability.agent.clock import ServerClock, steady
from reliability.domain.retrying import LONGEST_ANSWER_S, Schedule
from reliability.errors import ReliabilityError

CONNECT_S = 2.0


class ServerAway(ReliabilityError):
    """The server does not answer, or says that it cannot now."""

    code = "server_away"
    transient = True
    hint = "Training and snapshots go on; reports are kept and sent when it is back."


class ServerRefused(ReliabilityError):
    """The server answered with an error; `status` is its HTTP status and `field` what it names."""

    code = "server_refused"

    def __init__(self, status: int, code: str, message: str, *, field: str = "", hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.status = status
        self.refusal = code
        self.field = field


@dataclass(frozen=True, kw_only=True)
class Answer:
    """An answer with a body that could be read. `answered_at` is of the steady clock, at the time of asking."""

    status: int
    body: Mapping[str, Any]
    asked_at: float


class Server:
    """HTTP client of the ingest routes. Not to be shared by threads that send at the same time."""

    def __init__(self, url: str, *, clock: ServerClock, ca_file: Path | None = None) -> None:
        verify: Any = httpx.create_ssl_context(verify=str(ca_file)) if ca_file else True
        # No proxy from the environment: heartbeats that pass through a web proxy are not heartbeats.
        self._http = httpx.Client(
            base_url=url,
            verify=verify,
            trust_env=False,
            timeout=httpx.Timeout(LONGEST_ANSWER_S, connect=CONNECT_S),
            limits=httpx.Limits(max_connections=2, max_keepalive_connections=2, keepalive_expiry=60),
        )
        self._clock = clock
        self._first_s = self._answer_s = LONGEST_ANSWER_S
        self._lock = threading.Lock()

    def keep_to(self, schedule: Schedule) -> None:
        """Wait for answers as the schedule says. What a server got and is slow to answer is waited for longer."""
        if self._first_s != schedule.answer_s:
            self._first_s = self._answer_s = schedule.answer_s

    def register(self, body: Mapping[str, Any], *, token: str) -> Mapping[str, Any]:
        """Return the server's answer to a registration. Raises ServerAway, ServerRefused."""
        return self._post("/ingest/register", body, token).body

    def batch(self, body: Mapping[str, Any], *, token: str) -> Answer:
        """Send a batch; an answer with results is returned even where some were refused (409)."""
        return self._post("/ingest/batch", body, token)

    def close(self) -> None:
        """Close the connection."""
        self._http.close()

    def _post(self, path: str, body: Mapping[str, Any], token: str) -> Answer:
        asked_at = steady()
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        try:
            with self._lock:
                response = self._http.post(
                    path,
                    content=sendable.text_of(body).encode(),
                    headers=headers,
                    timeout=httpx.Timeout(self._answer_s, connect=min(CONNECT_S, self._first_s)),
                )
            self._answer_s = self._first_s
        except httpx.ReadTimeout as error:
            self._answer_s = min(2 * self._answer_s, LONGEST_ANSWER_S)  # it has the message, and is slow
            raise ServerAway(f"{self._http.base_url} does not answer: {error}.") from error
        except httpx.TransportError as error:
            raise ServerAway(f"{self._http.base_url} does not answer: {error}.") from error
        content = _content(response)
        if response.status_code == httpx.codes.OK or "results" in content:
            self._learn(content, asked_at)
            return Answer(status=response.status_code, body=content, asked_at=asked_at)
        raise _error(response.status_code, content)

    def _learn(self, content: Mapping[str, Any], asked_at: float) -> None:
        server_time = content.get("server_time")
        if isinstance(server_time, int | float):
            self._clock.learn(float(server_time), asked_at=asked_at, answered_at=steady())


def _content(response: httpx.Response) -> Mapping[str, Any]:
    try:
        content = response.json()
    except ValueError:
        content = None
    return content if isinstance(content, dict) else {}


def _error(status: int, content: Mapping[str, Any]) -> ReliabilityError:
    raw = content.get("error")
    detail = raw if isinstance(raw, dict) else {}
    message = str(detail.get("message") or f"The server answered with status {status}.")
    if status >= httpx.codes.INTERNAL_SERVER_ERROR or status == httpx.codes.TOO_MANY_REQUESTS or not detail:
        return ServerAway(message)
    return ServerRefused(
        status,
        str(detail.get("code", "")),
        message,
        field=str(detail.get("field") or ""),
        hint=str(detail.get("hint") or ""),
    )
