"""Two processes at work on the same rows: who wins is decided by what is true, on every database."""

import threading
from collections.abc import Callable
from typing import Any

import pytest
from django.db import connection, transaction

from reliability.models import Rank
from reliability.services import beats, clock
from tests.services.world import World

pytestmark = pytest.mark.django_db(transaction=True)
LIMIT_S = 20.0


def _beside(work: Callable[[], Any]) -> threading.Thread:
    """Do something over a connection of its own."""

    def run() -> None:
        try:
            work()
        finally:
            connection.close()

    thread = threading.Thread(target=run)
    thread.start()
    return thread


def test_a_heartbeat_written_while_a_rank_ends_does_not_bring_it_back(world: World) -> None:
    world.running_job()
    now = clock.now()
    world.agents["n2"].train()
    world.agents["n2"].beat()
    if connection.vendor == "sqlite":
        # One writer at a time: the end is simply there before the heartbeats.
        Rank.objects.filter(rank=1).update(state=Rank.State.FAILED)
        beats.flush(now)
    else:
        with transaction.atomic():
            Rank.objects.filter(rank=1).update(state=Rank.State.FAILED)
            writing = _beside(lambda: beats.flush(now))
            writing.join(1.0)
        writing.join(LIMIT_S)
        assert not writing.is_alive()
    assert Rank.objects.get(rank=1).state == Rank.State.FAILED


def test_heartbeats_do_not_wait_for_who_writes_a_rank(world: World) -> None:
    """Whoever holds a rank may want a node next, as the end of a recovery does."""
    world.running_job()
    for agent in world.agents.values():
        agent.train()
        agent.beat()
    before = Rank.objects.get(rank=0).step or 0
    with transaction.atomic():
        if connection.vendor != "sqlite":  # there a writer holds everything, and nothing can wait in a circle
            Rank.objects.filter(rank=1).update(phase="held")
            _flush_beside()
    beats.flush(clock.now())
    assert (Rank.objects.get(rank=0).step or 0) > before


def _flush_beside() -> None:
    writing = _beside(lambda: beats.flush(clock.now()))
    writing.join(LIMIT_S)
    assert not writing.is_alive()
