"""How are bodies of REST requests read? As JSON, and without giving way to what is nested too deeply."""

import io
from http import HTTPStatus
from typing import Any

from rest_framework.exceptions import APIException, ParseError
from rest_framework.parsers import JSONParser


class BoundedJSONParser(JSONParser):
    """JSON; a body that is nested deeper than Python reads is malformed, not an error of the server."""

    def parse(self, stream: Any, media_type: str | None = None, parser_context: Any = None) -> Any:
        """Return the body. Raises ParseError."""
        try:
            return super().parse(stream, media_type, parser_context)
        except RecursionError as error:
            raise ParseError("The body is nested too deeply.") from error


class TooLarge(APIException):
    """More than is read of a body."""

    status_code = HTTPStatus.REQUEST_ENTITY_TOO_LARGE
    default_detail = "The body is too large."


class SmallJSONParser(BoundedJSONParser):
    """JSON of at most 64 KB: a few values, never a document."""

    most_bytes = 64 * 1024

    def parse(self, stream: Any, media_type: str | None = None, parser_context: Any = None) -> Any:
        """Return the body. Raises ParseError or TooLarge."""
        raw = stream.read(self.most_bytes + 1)
        if len(raw) > self.most_bytes:
            raise TooLarge(f"The body is larger than {self.most_bytes} bytes.")
        return super().parse(io.BytesIO(raw), media_type, parser_context)
