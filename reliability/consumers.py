"""Pushes hints to browsers: one hub per process, one small queue per browser.

The hub has two sources: hints of services through the channel layer, and its own look at the database each second.
With the broker away the second one alone serves, a little later. A message is
{"server", "seq", "now", "topics"}; an empty list of topics is a heartbeat. A browser that sees a gap in `seq`
or another `server` loads its page's regions anew.
"""

import asyncio
import contextlib
import logging
import time
import uuid
from typing import Any

from channels.auth import AuthMiddlewareStack
from channels.db import database_sync_to_async
from channels.generic.websocket import AsyncJsonWebsocketConsumer
from channels.layers import get_channel_layer
from channels.routing import URLRouter
from channels.security.websocket import AllowedHostsOriginValidator
from django.urls import path, re_path

from reliability import live
from reliability.selectors import changes

LOOK_S = 1.0
HEARTBEAT_S = 3.0
RETRY_S = 2.0
REJOIN_S = 3600.0  # well before the channel layer forgets the membership of a group (a day)
QUEUE_LENGTH = 4
NOT_SIGNED_IN = 4401
EVERYTHING = "*"  # sent after the first look: what changed between a page's making and that look is in nobody's hint

log = logging.getLogger(__name__)
Message = dict[str, Any]


class Hub:
    """Gathers what changed and hands it to every browser of this process. Runs only while one is there."""

    def __init__(self) -> None:
        self.server = uuid.uuid4().hex[:12]
        self.seq = 0
        self._browsers: set[asyncio.Queue[Message]] = set()
        self._tasks: list[asyncio.Task[None]] = []

    def join(self) -> asyncio.Queue[Message]:
        """Add a browser. Its first message is the present position."""
        inbox: asyncio.Queue[Message] = asyncio.Queue(QUEUE_LENGTH)
        inbox.put_nowait(self._message([]))
        self._browsers.add(inbox)
        if not self._tasks:
            self._tasks = [asyncio.create_task(step()) for step in (self._listen, self._look, self._beat)]
        return inbox

    async def leave(self, inbox: asyncio.Queue[Message]) -> None:
        """Remove a browser; the last one stops the work."""
        self._browsers.discard(inbox)
        if self._browsers:
            return
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def broadcast(self, topics: list[str]) -> None:
        """Give the message to all. A browser that does not keep up loses its oldest one and sees the gap."""
        self.seq += 1
        message = self._message(topics)
        for inbox in self._browsers:
            if inbox.full():
                inbox.get_nowait()
            inbox.put_nowait(message)

    def _message(self, topics: list[str]) -> Message:
        return {"server": self.server, "seq": self.seq, "now": time.time(), "topics": topics}

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(HEARTBEAT_S)
            self.broadcast([])

    async def _look(self) -> None:
        seen: changes.Signature | None = None
        while True:
            try:
                now = await database_sync_to_async(changes.signature)()
                topics = changes.changed_topics(seen, now) if seen is not None else [EVERYTHING]
                seen = now
                if topics:
                    self.broadcast(topics)
            except Exception as error:  # boundary: the next look may succeed
                log.warning("Live view: cannot look at the database (%s).", error)
            await asyncio.sleep(LOOK_S)

    async def _listen(self) -> None:
        while True:
            try:
                await self._receive_hints()
            except TimeoutError:
                continue
            except Exception as error:  # boundary: any broker trouble only costs latency
                log.info("Live view: no hints from the channel layer (%s).", error)
            await asyncio.sleep(RETRY_S)

    async def _receive_hints(self) -> None:
        layer = get_channel_layer()
        if layer is None:
            return
        channel = await layer.new_channel()
        await layer.group_add(live.GROUP, channel)
        try:
            async with asyncio.timeout(REJOIN_S):
                while True:
                    hint = await layer.receive(channel)
                    self.broadcast(list(hint.get("topics", ())))
        finally:
            with contextlib.suppress(Exception):
                await asyncio.wait_for(layer.group_discard(live.GROUP, channel), live.SEND_LIMIT_S)


hub = Hub()


class LiveConsumer(AsyncJsonWebsocketConsumer):
    """One browser. It only listens; what it says is ignored."""

    channel_layer_alias = None  # the hub alone listens to the channel layer

    async def connect(self) -> None:
        """Take a signed-in person in; tell anyone else why not."""
        self._sender: asyncio.Task[None] | None = None
        await self.accept()
        user = self.scope.get("user")
        if user is None or not user.is_authenticated or not user.is_active:
            # Closing before the handshake would show as a bare 1006 in the browser; it must learn the reason.
            await self.close(code=NOT_SIGNED_IN)
            return
        self._inbox = hub.join()
        self._sender = asyncio.create_task(self._forward())

    async def disconnect(self, code: int) -> None:
        """Leave the hub."""
        if self._sender is None:
            return
        self._sender.cancel()
        await hub.leave(self._inbox)

    async def receive(self, text_data: str | None = None, bytes_data: bytes | None = None, **kwargs: Any) -> None:
        """Ignore what a browser sends."""

    async def _forward(self) -> None:
        while True:
            await self.send_json(await self._inbox.get())


websocket_urlpatterns = [path("ws/live/", LiveConsumer.as_asgi())]


async def _refuse(_scope: Any, receive: Any, send: Any) -> None:
    """Close a websocket of an address that there is not, as a page that there is not is a 404."""
    await receive()
    await send({"type": "websocket.close", "code": 4404})


websocket_application = AllowedHostsOriginValidator(
    AuthMiddlewareStack(
        URLRouter([*websocket_urlpatterns, re_path(r"", _refuse)])  # type: ignore[arg-type] # routes of Channels are ASGI
    )
)
