"""How does a program sign in: a user's name and password for a token, a limited number of times a minute."""

from typing import Any

from django.contrib.auth.models import User
from drf_spectacular.utils import OpenApiResponse, extend_schema
from rest_framework import status
from rest_framework.authtoken.models import Token
from rest_framework.authtoken.serializers import AuthTokenSerializer
from rest_framework.permissions import AllowAny
from rest_framework.renderers import JSONRenderer
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.serializers import CharField, Serializer
from rest_framework.throttling import BaseThrottle
from rest_framework.views import APIView

from reliability.services import sign_ins


class SignInThrottle(BaseThrottle):
    """Limits tries; the address is the connection's, not one that a client writes in a header."""

    def allow_request(self, request: Request, view: APIView) -> bool:
        """Count a try. Revoking is none."""
        return request.method != "POST" or sign_ins.begin(**_who(request))

    def wait(self) -> float:
        """Return after how long the count begins anew."""
        return float(sign_ins.WINDOW_S)


def _who(request: Request) -> dict[str, str]:
    name = request.data.get("username") if isinstance(request.data, dict) else None
    return {"address": request.META.get("REMOTE_ADDR", ""), "name": name if isinstance(name, str) else ""}


class TokenAnswer(Serializer[Any]):
    """The token, to be sent as 'Authorization: Token ...'."""

    token = CharField(read_only=True)


class TokenView(APIView):
    """Give or revoke the caller's token."""

    renderer_classes = [JSONRenderer]
    throttle_classes = [SignInThrottle]

    def get_permissions(self) -> list[Any]:
        """Return who may: anyone may try to sign in, only the signed-in may revoke."""
        return [AllowAny()] if self.request.method == "POST" else list(super().get_permissions())

    def get_authenticators(self) -> list[Any]:
        """Return no authenticator for a sign-in: an old token in the header must not be in its way."""
        return [] if self.request is not None and self.request.method == "POST" else super().get_authenticators()

    @extend_schema(summary="Sign in", request=AuthTokenSerializer, responses=TokenAnswer, auth=[])
    def post(self, request: Request) -> Response:
        """Return the token of this user; 400 when name and password do not belong together."""
        serializer = AuthTokenSerializer(data=request.data, context={"request": request})
        serializer.is_valid(raise_exception=True)
        sign_ins.succeeded(**_who(request))
        user: User = serializer.validated_data["user"]
        token, _ = Token.objects.get_or_create(user=user)
        return Response({"token": token.key})

    @extend_schema(summary="Revoke the token", request=None, responses={204: OpenApiResponse(description="Revoked.")})
    def delete(self, request: Request) -> Response:
        """Revoke the caller's token."""
        Token.objects.filter(user_id=request.user.pk or 0).delete()
        return Response(status=status.HTTP_204_NO_CONTENT)
