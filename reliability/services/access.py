"""Who may report as a node? Tokens are compared in constant time against the SHA-256 that the database keeps."""

import hashlib
import hmac
import secrets
import threading
import time
from dataclasses import dataclass

from django.conf import settings

from reliability.errors import ReliabilityError
from reliability.models import Node

CACHE_S = 2.0


class TokenRefused(ReliabilityError):
    """No token, or one that nobody has (HTTP 401)."""

    code = "token"
    hint = "Start the agent with the join token of this server, or with the token it was given when it joined."


class TokenOfAnotherNode(ReliabilityError):
    """A genuine token of another node (HTTP 403)."""

    code = "wrong_node"
    hint = "Each node reports with its own token: check the agent's name and data folder."


class NameTaken(ReliabilityError):
    """A new node asks for the name of one that lives (HTTP 409)."""

    code = "name_taken"
    hint = "Give the new node another name, or stop the agent that uses this one and wait for the silence limit."


def token_digest(token: str) -> str:
    """Return what is kept of a token."""
    return hashlib.sha256(token.encode()).hexdigest()


def new_token() -> str:
    """Return a fresh token of a node."""
    return secrets.token_urlsafe(32)


def is_join_token(token: str) -> bool:
    """Return whether this is the server's join token."""
    return hmac.compare_digest(token_digest(token), token_digest(settings.JOIN_TOKEN))


@dataclass(frozen=True)
class _Known:
    node: Node
    until: float


class TokenCache:
    """Nodes by name for a short while, so that a heartbeat needs no query to know its sender."""

    def __init__(self) -> None:
        self._known: dict[str, _Known] = {}
        self._lock = threading.Lock()

    def node(self, name: str) -> Node | None:
        """Return the node of this name, at most CACHE_S old."""
        known = self._known.get(name)
        if known is not None and time.monotonic() < known.until:
            return known.node
        return self.fresh(name)

    def fresh(self, name: str) -> Node | None:
        """Return the node of this name as the database has it now."""
        node = Node.objects.filter(name=name).first()
        with self._lock:
            if node is None:
                self._known.pop(name, None)
            else:
                self._known[name] = _Known(node, time.monotonic() + CACHE_S)
        return node

    def forget(self) -> None:
        """Drop everything."""
        with self._lock:
            self._known.clear()


cache = TokenCache()


def sender(name: str, token: str, *, incarnation: str = "") -> Node:
    """Return the node that this token belongs to. Raises TokenRefused or TokenOfAnotherNode.

    With an `incarnation` that the cache does not know the database is asked: the node may just have come back.
    """
    node = cache.node(name)
    if node is None or not _fits(node, token) or (incarnation and node.incarnation != incarnation):
        node = cache.fresh(name)
    if node is not None and _fits(node, token):
        return node
    if token and Node.objects.filter(token_hash=token_digest(token)).exists():
        raise TokenOfAnotherNode(f"This token belongs to another node than {name}.")
    raise TokenRefused("The token is missing or unknown.")


def _fits(node: Node, token: str) -> bool:
    return bool(token and node.token_hash) and hmac.compare_digest(token_digest(token), node.token_hash)
