"""A person says over REST that a snapshot must never be restored."""

from typing import Any

from django.shortcuts import get_object_or_404
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiResponse, extend_schema
from rest_framework import serializers
from rest_framework.exceptions import ValidationError
from rest_framework.request import Request
from rest_framework.response import Response

from reliability.api.retention import OfJob
from reliability.api.snapshot_serializers import LINE, SnapshotDetailSerializer
from reliability.domain import fields as f
from reliability.errors import InvalidInput
from reliability.models import Snapshot
from reliability.selectors import ledger_rows
from reliability.services import snapshots


def _text(value: object, path: str) -> str:
    if not isinstance(value, str):
        raise InvalidInput(path, "is not text", hint="Say in one line why it is never restored.")
    return value


_BODY = f.record({"reason": (_text, True)})


class ReasonSerializer(serializers.Serializer[Any]):
    """Why it is never restored, in one line."""

    reason = serializers.CharField(max_length=snapshots.LONGEST_REASON)


class Distrust(OfJob):
    """What a person says of one snapshot."""

    @extend_schema(
        summary="Never restore a snapshot again",
        request=ReasonSerializer,
        responses={
            200: SnapshotDetailSerializer,
            400: OpenApiResponse(OpenApiTypes.OBJECT, description="field -> [what is wrong. What would be right.]"),
        },
    )
    def post(self, request: Request, pk: str) -> Response:
        """Keep it with its reason; the snapshot as it is then."""
        found = get_object_or_404(Snapshot.objects.select_related("job"), pk=pk)
        given = self.read(request.data, _BODY, {"reason"})
        try:
            snapshots.distrust_by_hand(found, reason=given["reason"], by=request.user.get_username())
        except InvalidInput as error:
            raise ValidationError({error.field: [f"{error.message}. {error.hint}".strip()]}) from error
        found.refresh_from_db()
        setattr(found, LINE, ledger_rows.ledger_rows([found])[0])
        return Response(SnapshotDetailSerializer(found).data)
