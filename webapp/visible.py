"""Writes out on every page what does not show: letters in logs or names that would turn the rest of a line round."""

from collections.abc import Callable

from django.http import HttpRequest, HttpResponse

from reliability.domain.fields import shown


class VisibleText:
    """Changes pages alone, where they hold such letters: programs get every text as it is kept."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self._get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        """Answer with text that shows."""
        response = self._get_response(request)
        if response.streaming or not response.headers.get("Content-Type", "").startswith("text/html"):
            return response
        if not response.content.isascii():
            told = shown(response.content.decode(response.charset)).encode(response.charset)
            if "Content-Length" in response.headers:
                response.headers["Content-Length"] = str(len(told))
            response.content = told
        return response
