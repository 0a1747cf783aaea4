"""What happens to the containers of one engine? Its event stream; the end of the stream is itself the news."""

import threading
from collections.abc import Iterator, Mapping
from typing import Any

from docker.errors import DockerException

from reliability.ports import EventKind, RuntimeEvent
from reliability.runtimes.docker_engine import LOST, Engine

KINDS = {
    "start": EventKind.START,
    "die": EventKind.DIE,
    "oom": EventKind.OOM,
    "health_status: unhealthy": EventKind.UNHEALTHY,
}
WANTED = ["start", "die", "oom", "health_status"]
BROKEN = (*LOST, DockerException, OSError, ValueError, AttributeError)


def label_filters(labels: Mapping[str, str]) -> list[str]:
    """Return labels as the engine filters by them; '' stands for any value."""
    return [f"{key}={value}" if value else key for key, value in labels.items()]


class EventStream:
    """Events from the moment of construction, on a connection of its own; an engine that is away ends it at once."""

    def __init__(self, engine: Engine, labels: Mapping[str, str], *, limit_s: float) -> None:
        filters = {"type": "container", "event": WANTED, "label": label_filters(labels)}
        self._lock = threading.Lock()
        self._closed = False
        self._lines: Any = None
        try:
            self._client = engine.connect(limit_s=limit_s)
            self._lines = self._client.events(decode=True, filters=filters)
        except BROKEN:
            self._closed = True

    def close(self) -> None:
        """End the stream: its reader gets STREAM_ENDED."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
        try:
            self._lines.close()
        except BROKEN:
            return

    def __iter__(self) -> Iterator[RuntimeEvent]:
        try:
            yield from self._read()
        except BROKEN:
            pass
        finally:
            self._release()
        yield RuntimeEvent(kind=EventKind.STREAM_ENDED)

    def _read(self) -> Iterator[RuntimeEvent]:
        if self._lines is None:
            return
        for raw in self._lines:
            event = parse(raw)
            if event:
                yield event
            if self._closed:
                return

    def _release(self) -> None:
        self.close()
        if self._lines is not None:
            self._client.close()


def parse(raw: Mapping[str, Any]) -> RuntimeEvent | None:
    """Return an engine event in our words, None for one we do not follow."""
    kind = KINDS.get(str(raw.get("Action", raw.get("status", ""))))
    if kind is None:
        return None
    attributes = dict(raw["Actor"]["Attributes"])
    code = attributes.pop("exitCode", None)
    return RuntimeEvent(
        kind=kind,
        name=str(attributes.pop("name", "")),
        labels={key: str(value) for key, value in attributes.items() if key not in {"image", "signal"}},
        exit_code=int(code) if code is not None else None,
    )
