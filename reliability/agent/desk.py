"""Which orders does this node obey, and how is each done exactly once?

Orders come from the node's queue and in the server's answers. Each is checked (domain/orders.py), then carried out
in a thread of its own, so that a stop never waits behind a long validation.
"""

import logging
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from reliability.agent import background
from reliability.agent.clock import ServerClock, steady
from reliability.agent.orderbook import OrderBook
from reliability.domain.orders import Order, unseal
from reliability.errors import InvalidInput, OrderRefused, ReliabilityError, StaleEpoch

THREADS = 32
MOST_REFUSALS = 20
REFUSAL_WINDOW_S = 10.0

log = logging.getLogger("stepkeeper.agent")


class OrderFailed(ReliabilityError):
    """An order that failed but has something to tell beside the error."""

    def __init__(self, cause: ReliabilityError, result: Mapping[str, Any]) -> None:
        super().__init__(cause.message, hint=cause.hint)
        self.code = cause.code
        self.result = result


class OrderDesk:
    """Checks orders and has them carried out.

    `carry_out` does one order and returns its result; `report` sends a report; `deaf` tells whether a drill makes
    this node obey nothing now.
    """

    def __init__(
        self,
        *,
        node: str,
        key: Callable[[], str],
        clock: ServerClock,
        book: OrderBook,
        carry_out: Callable[[Order], Mapping[str, Any]],
        report: Callable[..., None],
        deaf: Callable[[], bool],
    ) -> None:
        self._node = node
        self._key = key
        self._clock = clock
        self._book = book
        self._carry_out = carry_out
        self._report = report
        self._deaf = deaf
        self._lock = threading.Lock()
        self._under_way: set[str] = set()
        self._refusals: list[float] = []
        self._pool = ThreadPoolExecutor(max_workers=THREADS, thread_name_prefix="order")

    def receive(self, envelope: object) -> None:
        """Check an envelope and begin the order in it. Never raises: what is refused is reported."""
        if self._deaf():
            return
        try:
            order = self._genuine(envelope)
        except OrderRefused as error:
            self._refuse(error.reason, error.message, _claimed_id(envelope))
        except InvalidInput as error:
            self._refuse("forged", error.message, "")
        else:
            self._begin(order)

    def stop(self) -> None:
        """Take no more orders; those under way are left to their own limits."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _genuine(self, envelope: object) -> Order:
        if not isinstance(envelope, Mapping):
            raise OrderRefused("forged", "The message is not a signed order.")
        now = self._clock.now()
        order = unseal(envelope, key=self._key(), node=self._node, now=now, seen_nonces=_Seen(self._book))
        # Two deliveries may be checked at the same time: the one that writes the nonce wins.
        if not self._book.remember(order.nonce, expires_at=order.expires_at, now=now):
            raise OrderRefused("replayed", f"Order {order.id} ({order.kind}) was delivered with a nonce already used.")
        return order

    def _begin(self, order: Order) -> None:
        kept = self._book.result(order.id)
        if kept is not None:
            self._report("order_result", kept, job=order.job, epoch=self._epoch_of(order))
            return
        with self._lock:
            if order.id in self._under_way:
                return
            self._under_way.add(order.id)
        try:
            background.submit(self._pool, f"order {order.id}", self._do, order)
        except RuntimeError:
            log.info("order not begun, the agent is ending: job=%s order=%s", order.job, order.id)

    def _do(self, order: Order) -> None:
        began = steady()
        try:
            body = self._outcome(order)
            if self._book.result(order.id) is None:  # an order may have answered ahead of its end (drill)
                self._book.keep(order.id, body, now=self._clock.now())
                self._report("order_result", body, job=order.job, epoch=self._epoch_of(order))
            log.info(
                "order %s: node=%s job=%s epoch=%s kind=%s order=%s seconds=%.3f",
                *(body["status"], self._node, order.job, order.epoch, order.kind, order.id, steady() - began),
            )
        finally:
            with self._lock:
                self._under_way.discard(order.id)

    def _outcome(self, order: Order) -> dict[str, Any]:
        try:
            self._check_epoch(order)
            return {"order": order.id, "status": "done", "result": dict(self._carry_out(order)), "error": None}
        except StaleEpoch as error:
            self._refuse("stale", error.message, order.id, job=order.job)
            return _failed(order, "refused", error, {})
        except OrderFailed as error:
            return _failed(order, "failed", error, error.result)
        except ReliabilityError as error:
            return _failed(order, "failed", error, {})
        except Exception as error:
            # The boundary of an order: whatever broke, the server must hear that the order failed.
            log.exception("order broke: job=%s order=%s kind=%s", order.job, order.id, order.kind)
            return _failed(order, "failed", ReliabilityError(f"{type(error).__name__}: {error}"), {})

    def _check_epoch(self, order: Order) -> None:
        seen = self._book.epoch(order.job) if order.job else 0
        if order.job and order.epoch < seen:
            raise StaleEpoch(
                f"Order {order.id} ({order.kind}) is for epoch {order.epoch} of {order.job}, seen was {seen}."
            )

    def _epoch_of(self, order: Order) -> int:
        return max(order.epoch, self._book.epoch(order.job)) if order.job else 0

    def _refuse(self, reason: str, message: str, order_id: str, *, job: str = "") -> None:
        log.warning("order refused: node=%s order=%s reason=%s %s", self._node, order_id, reason, message)
        now = steady()
        with self._lock:
            self._refusals = [at for at in self._refusals if at > now - REFUSAL_WINDOW_S]
            if len(self._refusals) >= MOST_REFUSALS:
                return  # somebody floods the queue: the log has them all, the server a sample
            self._refusals.append(now)
        epoch = self._book.epoch(job) if job else 0
        self._report("order_refused", {"reason": reason, "message": message, "order": order_id}, job=job, epoch=epoch)


class _Seen:
    """Lets the check of an order look a nonce up without reading them all."""

    def __init__(self, book: OrderBook) -> None:
        self._book = book

    def __contains__(self, nonce: object) -> bool:
        return isinstance(nonce, str) and self._book.seen(nonce)

    def __iter__(self) -> Any:
        return iter(())

    def __len__(self) -> int:
        return 0


def _failed(order: Order, status: str, error: ReliabilityError, result: Mapping[str, Any]) -> dict[str, Any]:
    return {"order": order.id, "status": status, "result": dict(result), "error": error.detail}


def _claimed_id(envelope: object) -> str:
    """Return the order id an envelope claims to carry, for the report about its refusal only."""
    text = envelope.get("order") if isinstance(envelope, Mapping) else None
    if not isinstance(text, str):
        return ""
    marker = '"id":"'
    start = text.find(marker)
    return text[start + len(marker) :].split('"', 1)[0][:64] if start >= 0 else ""
