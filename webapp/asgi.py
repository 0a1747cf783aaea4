"""What the web process serves: agents' reports first, then websockets, then Django's pages and REST."""

import os

from django.core.asgi import get_asgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "webapp.settings")
pages = get_asgi_application()

# Django must be set up before anything that imports models.
from reliability.api import ingest  # noqa: E402
from reliability.consumers import websocket_application  # noqa: E402
from webapp.threads import own_thread, take_turns_often  # noqa: E402

take_turns_often()


async def application(scope: ingest.Scope, receive: ingest.Receive, send: ingest.Send) -> None:
    """Hand a connection to what serves it."""
    kind = scope["type"]
    if kind == "lifespan":
        await ingest.lifespan(scope, receive, send)
    elif kind == "websocket":
        await websocket_application(scope, receive, send)
    elif scope["path"].startswith(ingest.PREFIX):
        await ingest.ingest(scope, receive, send)
    else:
        async with own_thread():
            await pages(dict(scope), receive, send)  # type: ignore[arg-type] # Django types its messages more narrowly
