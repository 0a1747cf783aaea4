"""Fixtures of the service tests: the world, its clock, and nobody at the other end of the broker."""

from collections.abc import Callable, Iterator
from datetime import datetime

import pytest
from django.utils import timezone

from reliability.services import access, beats, clock, dispatch, reconcile
from tests.services.world import JOIN_TOKEN, World


class Mailbox:
    """Takes the place of the broker: keeps what would have been sent."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, list[object], str]] = []

    def send(self, name: str, args: list[object], *, queue: str, expires: float) -> bool:
        self.sent.append((name, args, queue))
        return True


@pytest.fixture
def mailbox(monkeypatch: pytest.MonkeyPatch) -> Mailbox:
    box = Mailbox()
    monkeypatch.setattr(dispatch, "publisher", box)
    monkeypatch.setattr(dispatch.live, "changed", lambda *topics: None)
    return box


@pytest.fixture
def set_time(monkeypatch: pytest.MonkeyPatch) -> Callable[[datetime], None]:
    held = [timezone.now()]
    monkeypatch.setattr(clock, "now", lambda: held[0])

    def move(instant: datetime) -> None:
        held[0] = instant

    return move


@pytest.fixture
def bare_world(mailbox: Mailbox, set_time: Callable[[datetime], None], settings: object) -> Iterator[World]:
    """Return a world without nodes."""
    settings.JOIN_TOKEN = JOIN_TOKEN  # type: ignore[attr-defined]
    access.cache.forget()
    beats.memory.take()
    reconcile._done.clear()
    yield World(set_time)
    access.cache.forget()
    beats.memory.take()


@pytest.fixture
def world(bare_world: World) -> World:
    """Return three training nodes and two standbys."""
    for name in ("n1", "n2", "n3"):
        bare_world.node(name, "training")
    bare_world.node("s1", tier=1)
    bare_world.node("s2", tier=2)
    bare_world.tick()
    return bare_world
