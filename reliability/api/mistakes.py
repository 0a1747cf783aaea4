"""What does REST answer when a request cannot be served? Always JSON, and always text that can be sent."""

from typing import Any

from django.core.exceptions import RequestDataTooBig
from rest_framework.response import Response
from rest_framework.views import exception_handler

from reliability.api.parsers import TooLarge
from reliability.domain import fields


def answer(error: Exception, context: dict[str, Any]) -> Response | None:
    """Return the answer to an error, None for one of the server's own.

    What a client sent stands in it as the name of a field, or as a value: half a surrogate pair is replaced.
    """
    if isinstance(error, RequestDataTooBig):
        error = TooLarge()
    found = exception_handler(error, context)
    if found is not None:
        found.data = _clean(found.data)
    return found


def _clean(told: Any) -> Any:
    if isinstance(told, dict):
        return {fields.clean_text(str(name)): _clean(each) for name, each in told.items()}
    if isinstance(told, list):
        return [_clean(each) for each in told]
    return fields.clean_text(told) if isinstance(told, str) else told
