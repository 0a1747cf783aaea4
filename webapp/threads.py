"""Threads that stay, for what serves pages: a new one for each request would open the database anew each time."""

from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager

from asgiref.sync import ThreadSensitiveContext

MOST_KEPT = 8
"""So many threads wait for requests; more are made when they are needed and end with theirs."""

_free: list[ThreadPoolExecutor] = []


@asynccontextmanager
async def own_thread() -> AsyncIterator[None]:
    """Run what Django does in threads within this block in one thread, which no other request uses meanwhile."""
    executor = _free.pop() if _free else ThreadPoolExecutor(max_workers=1, thread_name_prefix="page")
    try:
        async with ThreadSensitiveContext(executor=executor):
            yield
    finally:
        if len(_free) < MOST_KEPT:
            _free.append(executor)
        else:
            executor.shutdown(wait=False)
