"""The same rows as CSV: all of them, streamed, and safe to open in a spreadsheet."""

import csv
import io
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from asgiref.sync import sync_to_async
from django.core.handlers.asgi import ASGIRequest
from django.http import HttpRequest, StreamingHttpResponse
from rest_framework.renderers import BaseRenderer

ROWS_A_CHUNK = 200
FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r")


@dataclass(frozen=True)
class Column:
    """A column: its heading, and the dotted path of its value in the JSON form of a row."""

    heading: str
    path: str


def columns(*names: str) -> tuple[Column, ...]:
    """Return columns; 'heading=path' where the two differ."""
    pairs = (name.partition("=") for name in names)
    return tuple(Column(heading, path or heading) for heading, _, path in pairs)


def cell(value: Any) -> str | int | float:
    """Return what stands in a cell.

    Text that a spreadsheet would take for a formula is given a leading apostrophe: rows hold what nodes reported.
    """
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int | float):
        return value
    text = "; ".join(map(_told, value)) if isinstance(value, list | tuple) else str(value)
    return f"'{text}" if text.startswith(FORMULA_STARTS) else text


def _told(item: Any) -> str:
    return ", ".join(f"{name}={part}" for name, part in item.items()) if isinstance(item, Mapping) else str(item)


def _value(row: Mapping[str, Any], path: str) -> Any:
    value: Any = row
    for part in path.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    return value


def lines(rows: Iterable[Mapping[str, Any]], wanted: Sequence[Column]) -> Iterator[str]:
    """Yield CSV text with a heading line, a chunk of rows at a time."""
    buffer = io.StringIO()
    writer = csv.writer(buffer)
    writer.writerow([column.heading for column in wanted])
    for count, row in enumerate(rows, start=1):
        writer.writerow([cell(_value(row, column.path)) for column in wanted])
        if count % ROWS_A_CHUNK == 0:
            yield buffer.getvalue()
            buffer.seek(0)
            buffer.truncate()
    yield buffer.getvalue()


async def _in_thread(parts: Iterator[str]) -> AsyncIterator[str]:
    """Yield the parts of a blocking iterator without blocking the event loop."""
    advance: Callable[[], str | None] = lambda: next(parts, None)  # noqa: E731 (typed for sync_to_async)
    while (part := await sync_to_async(advance)()) is not None:
        yield part


def response(request: HttpRequest, parts: Iterator[str], *, name: str) -> StreamingHttpResponse:
    """Return the download. Under ASGI the parts are read in the request's thread, one at a time."""
    content = _in_thread(parts) if isinstance(request, ASGIRequest) else parts
    headers = {"Content-Disposition": f'attachment; filename="{name}.csv"'}
    return StreamingHttpResponse(content, content_type="text/csv; charset=utf-8", headers=headers)


class CsvRenderer(BaseRenderer):
    """Makes ?format=csv known. Lists are streamed past it; what it renders itself are errors and single rows."""

    media_type = "text/csv"
    format = "csv"
    charset = "utf-8"

    def render(self, data: Any, accepted_media_type: str | None = None, renderer_context: Any = None) -> str:
        """Return name and value pairs, one a line."""
        buffer = io.StringIO()
        pairs = data.items() if isinstance(data, Mapping) else enumerate(data or [])
        csv.writer(buffer).writerows([name, cell(value)] for name, value in pairs)
        return buffer.getvalue()
