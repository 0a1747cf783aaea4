"""Threads that serve pages stay: one for each request at a time, and the next request finds it with its connection."""

import asyncio
import threading

from asgiref.sync import sync_to_async

from webapp import threads


async def served(together: asyncio.Barrier | None = None) -> int:
    async with threads.own_thread():
        first = await sync_to_async(threading.get_ident)()
        if together:
            await together.wait()
        assert await sync_to_async(threading.get_ident)() == first
    return first


async def test_one_request_after_the_other_is_served_by_the_same_thread() -> None:
    assert await served() == await served() == await served()


async def test_requests_at_once_never_share_a_thread_and_only_some_stay() -> None:
    count = 2 * threads.MOST_KEPT
    together = asyncio.Barrier(count)
    found = await asyncio.gather(*(served(together) for _ in range(count)))
    assert len(set(found)) == count
    assert len(threads._free) == threads.MOST_KEPT


async def test_a_request_that_fails_gives_its_thread_back() -> None:
    first = await served()
    try:
        async with threads.own_thread():
            raise RuntimeError("as a view might")
    except RuntimeError:
        pass
    assert await served() == first
