"""How is something done beside the thread that noticed it, without its failure going unseen?"""

import logging
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

log = logging.getLogger("stepkeeper.agent")


def submit(pool: ThreadPoolExecutor, what: str, work: Callable[..., object], *args: object) -> None:
    """Have it done by the pool; an exception that nobody expected is logged. Raises RuntimeError after a shutdown."""

    def tell(done: Future[object]) -> None:
        if not done.cancelled() and done.exception() is not None:
            log.error("%s failed", what, exc_info=done.exception())

    pool.submit(work, *args).add_done_callback(tell)
