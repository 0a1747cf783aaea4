"""How do the threads of one process share it? Those that serve pages stay, and none waits long for the interpreter."""

import sys
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager

from asgiref.sync import ThreadSensitiveContext

MOST_KEPT = 8
"""So many threads wait for requests; more are made when they are needed and end with theirs."""

SWITCH_S = 0.0005
"""A thread that asks the database lets go of the interpreter each time, and gets it back only after this long from one
that computes: with Python's own 5 ms a decision of a hundred queries takes half a second beside any other work."""

_free: list[ThreadPoolExecutor] = []


def take_turns_often() -> None:
    """Have the threads of this process take turns more often than they do by themselves."""
    sys.setswitchinterval(SWITCH_S)


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
