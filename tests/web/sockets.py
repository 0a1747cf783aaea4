"""A websocket client for tests, on asgiref's communicator (that of channels needs another server installed)."""

import json
from typing import Any

from asgiref.testing import ApplicationCommunicator


class Socket:
    """Talks to a websocket application inside this process."""

    def __init__(self, application: Any, user: Any = None, headers: list[tuple[bytes, bytes]] | None = None) -> None:
        scope = {
            "type": "websocket",
            "path": "/ws/live/",
            "query_string": b"",
            "headers": headers or [],
            "subprotocols": [],
        }
        if user is not None:
            scope["user"] = user
        self._talk = ApplicationCommunicator(application, scope)

    async def connect(self) -> bool:
        """Shake hands; return whether it was accepted."""
        await self._talk.send_input({"type": "websocket.connect"})
        return (await self._talk.receive_output(5))["type"] == "websocket.accept"

    async def message(self, timeout: float = 5) -> dict[str, Any]:
        """Return the next message."""
        output = await self._talk.receive_output(timeout)
        assert output["type"] == "websocket.send", output
        return dict(json.loads(output["text"]))

    async def close_code(self) -> int:
        """Return the code with which the server closes."""
        output = await self._talk.receive_output(5)
        assert output["type"] == "websocket.close", output
        return int(output["code"])

    async def disconnect(self) -> None:
        """Leave."""
        await self._talk.send_input({"type": "websocket.disconnect", "code": 1000})
        await self._talk.wait(5)
