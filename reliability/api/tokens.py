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
from rest_framework.throttling import SimpleRateThrottle
from rest_framework.views import APIView


class AddressThrottle(SimpleRateThrottle):
    """Limits tries from one address. The address is the connection's, not one that a client writes in a header."""

    scope = "token_address"
    rate = "30/min"

    def get_cache_key(self, request: Request, view: APIView) -> str | None:
        """Return what is counted; revoking is not."""
        if request.method != "POST":
            return None
        return self.cache_format % {"scope": self.scope, "ident": request.META.get("REMOTE_ADDR", "")}


class NameThrottle(SimpleRateThrottle):
    """Limits tries at one name, from wherever they come."""

    scope = "token_name"
    rate = "10/min"

    def get_cache_key(self, request: Request, view: APIView) -> str | None:
        """Return what is counted: the name as given, so that unknown names cost the same."""
        name = request.data.get("username") if isinstance(request.data, dict) else None
        if request.method != "POST" or not isinstance(name, str):
            return None
        return self.cache_format % {"scope": self.scope, "ident": name[:150].casefold().encode().hex()}


class TokenAnswer(Serializer[Any]):
    """The token, to be sent as 'Authorization: Token ...'."""

    token = CharField(read_only=True)


class TokenView(APIView):
    """Give or revoke the caller's token."""

    renderer_classes = [JSONRenderer]
    throttle_classes = [AddressThrottle, NameThrottle]

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
        user: User = serializer.validated_data["user"]
        token, _ = Token.objects.get_or_create(user=user)
        return Response({"token": token.key})

    @extend_schema(summary="Revoke the token", request=None, responses={204: OpenApiResponse(description="Revoked.")})
    def delete(self, request: Request) -> Response:
        """Revoke the caller's token."""
        Token.objects.filter(user_id=request.user.pk or 0).delete()
        return Response(status=status.HTTP_204_NO_CONTENT)
