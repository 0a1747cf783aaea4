"""What may stand in the query of a REST address, and how is everything else refused by name?"""

from typing import Any

from django.db.models import Model, QuerySet
from django_filters.rest_framework import DjangoFilterBackend
from rest_framework.exceptions import ValidationError
from rest_framework.negotiation import DefaultContentNegotiation
from rest_framework.renderers import BaseRenderer
from rest_framework.request import Request

PAGING = ("page", "page_size")
COMMON = (*PAGING, "format")
LONGEST_NUMBER = 9


class FormatNegotiation(DefaultContentNegotiation):
    """Refuses an unknown ?format= by name, where the default answers 'not found'."""

    def filter_renderers(self, renderers: Any, format: str) -> list[BaseRenderer]:
        """Return the renderers of that format."""
        known = [renderer.format for renderer in renderers]
        if format not in known:
            raise ValidationError({"format": [f"{format!r} is not known; one of: {', '.join(known)}."]})
        return [renderer for renderer in renderers if renderer.format == format]


class StrictFilterBackend(DjangoFilterBackend):
    """Refuses unknown names and page numbers that are none: a typing mistake must not widen a report."""

    def filter_queryset(self, request: Request, queryset: QuerySet[Model], view: Any) -> QuerySet[Model]:
        """Return the rows asked for. Raises ValidationError that names the parameter."""
        filterset_class = self.get_filterset_class(view, queryset)
        if view.action == "list" and filterset_class is not None:
            self._check_names(request, [*filterset_class.base_filters, *COMMON])
            self._check_pages(request)
        rows: QuerySet[Model] = super().filter_queryset(request, queryset, view)
        return rows

    @staticmethod
    def _check_names(request: Request, known: list[str]) -> None:
        unknown = sorted(set(request.query_params) - set(known))
        if unknown:
            raise ValidationError(
                {name: [f"Not a parameter here; one of: {', '.join(sorted(known))}."] for name in unknown}
            )

    @staticmethod
    def _check_pages(request: Request) -> None:
        for name in PAGING:
            text = request.query_params.get(name, "1")
            if not (text.isascii() and text.isdecimal() and len(text) <= LONGEST_NUMBER and int(text) > 0):
                raise ValidationError({name: [f"{text[:40]!r} is not a whole number from 1."]})
