"""The two checks of a standby, as far as the answers of its probes allow: one bandwidth check, one corruption check.

What a check has learnt so far stands in `Validation.measured`; orders are keyed by the check, so that a step that is
repeated asks nobody twice.
"""

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from reliability.domain import standby
from reliability.domain.health import USABLE, NodeHealth, NodeRole
from reliability.domain.orders import OrderKind
from reliability.domain.standby import PairBandwidth, Verdict
from reliability.models import Node, OrderRecord, Validation
from reliability.selectors import core
from reliability.services import clock, orders

PEERS = 2
VOTERS = 3
"""One wrong node among three others is outvoted; among two it could not be told which of them is wrong."""
BYTES = 8 * 2**20
ROUNDS = 3
LIMIT_S = 20.0
SECOND_TRY_S = 3.0
"""In the background a measurement that failed is made again after this pause."""
SDC_ROUNDS = 4
SDC_SIZE = 256


@dataclass(frozen=True)
class Finished:
    """How a check ended. `verdict` is None when there was nothing to judge by: that is neither a pass nor a fault."""

    verdict: Verdict | None
    reason: str


def drive(row: Validation, node: Node) -> Finished | None:
    """Take one check as far as it goes; returns how it ended, None while answers are awaited."""
    if row.check_kind != Validation.Check.BANDWIDTH:
        return _corruption(row, node)
    return None if _pauses(row) else _bandwidth(row, node)


def peers(node: Node, *, without: Sequence[str], most: int) -> list[Node]:
    """Return nodes to measure against: healthy ones and other standbys first, because training should not notice."""
    held = core.active_holds().values("node_id")
    healthy = Node.objects.filter(health__in=USABLE).exclude(pk=node.pk).exclude(name__in=list(without))
    busy = set(core.active_slots().values_list("node_id", flat=True))
    idle_first = sorted(
        healthy.exclude(pk__in=held),
        key=lambda each: (each.health != NodeHealth.HEALTHY, each.pk in busy, each.role != NodeRole.STANDBY, each.name),
    )
    return idle_first[:most]


def _chosen_peers(row: Validation, node: Node) -> list[Node]:
    """Return the peers of this check: chosen once, and again only when one of them did not answer."""
    bad = row.measured.get("bad_peers", [])
    names = row.measured.get("peers")
    if names is None:
        most = PEERS if row.check_kind == Validation.Check.BANDWIDTH else VOTERS
        names = [peer.name for peer in peers(node, without=bad, most=most)]
        row.measured = {**row.measured, "peers": names, "token": row.measured.get("token") or secrets.token_hex(16)}
        row.save(update_fields=["measured"])
    found = {peer.name: peer for peer in Node.objects.filter(name__in=names)}
    return [found[name] for name in names if name in found]


def _drop_peer(row: Validation, name: str) -> None:
    """A peer that does not answer says nothing about the candidate: measure against another."""
    bad = [*row.measured.get("bad_peers", []), name]
    kept = {name: row.measured[name] for name in ("first_try",) if name in row.measured}
    row.measured = {**kept, "bad_peers": bad, "token": secrets.token_hex(16)}
    row.save(update_fields=["measured"])


def _bandwidth(row: Validation, node: Node) -> Finished | None:
    chosen = _chosen_peers(row, node)
    if not chosen:
        return Finished(None, "No other healthy node to measure against: bandwidth could not be judged.")
    serving = [_serve(row, peer) for peer in chosen]
    for order in serving:
        if _gave_up(order):
            _drop_peer(row, order.node.name)
            return _bandwidth(row, node)
    if not all(orders.succeeded(order) for order in serving):
        return None
    measured = _measure(row, node, serving)
    if _gave_up(measured):
        return _own_failure(measured)
    if not orders.succeeded(measured):
        return None
    return _with_reference(row, node, serving, measured)


def _with_reference(
    row: Validation, node: Node, serving: Sequence[OrderRecord], measured: OrderRecord
) -> Finished | None:
    """The pair without the candidate is measured after it, so that the two do not disturb each other."""
    pairs = _pairs(node.name, measured)
    if len(serving) < PEERS:
        return _twice(row, node, _without_reference(row, node, pairs))
    first, second = serving
    reference = _measure(row, first.node, [second])
    if _gave_up(reference):
        _drop_peer(row, first.node.name)
        return _bandwidth(row, node)
    if not orders.succeeded(reference):
        return None
    pairs += _pairs(first.node.name, reference)
    _keep(row, pairs=[asdict(pair) for pair in pairs])
    return _twice(row, node, Finished(*standby.judge_bandwidth(node.name, pairs)))


def _twice(row: Validation, node: Node, finished: Finished) -> Finished | None:
    """One noisy measurement holds nobody: a failure counts when a second, fresh one of all pairs fails as well."""
    if finished.verdict is not Verdict.FAIL or "first_try" in row.measured:
        return finished
    first = {"reason": finished.reason, "pairs": row.measured["pairs"], "ended": clock.now().timestamp()}
    bad = row.measured.get("bad_peers", [])
    row.measured = {"bad_peers": bad, "token": secrets.token_hex(16), "first_try": first}
    row.save(update_fields=["measured"])
    return None if _pauses(row) else _bandwidth(row, node)


def _pauses(row: Validation) -> bool:
    """Return whether the second try waits a little for the noise to pass. In a recovery it does not."""
    first = row.measured.get("first_try")
    if first is None or row.failover_id is not None:
        return False
    return clock.now().timestamp() < float(first["ended"]) + SECOND_TRY_S


def _without_reference(row: Validation, node: Node, pairs: Sequence[PairBandwidth]) -> Finished:
    _keep(row, pairs=[asdict(pair) for pair in pairs])
    fastest = max((pair.bytes_per_s for pair in pairs), default=0.0)
    if fastest <= 0:
        return Finished(Verdict.FAIL, f"No bandwidth of {node.name} was measured, which is not a pass.")
    return Finished(
        Verdict.PASS, f"{fastest / 1e6:.1f} MB/s to the only other node; a comparison needs two other healthy nodes."
    )


def _serve(row: Validation, peer: Node) -> OrderRecord:
    payload = {"token": row.measured["token"], "limit_s": 3 * LIMIT_S, "bytes": BYTES}
    return _ask(row, peer, OrderKind.PROBE_SERVE, payload, of=row.measured["token"][:8])


def _measure(row: Validation, node: Node, serving: Sequence[OrderRecord]) -> OrderRecord:
    targets = [
        {"node": order.node.name, "address": order.node.address, "port": (order.result.get("result") or {}).get("port")}
        for order in serving
    ]
    payload = {
        "peers": targets,
        "token": row.measured["token"],
        "bytes": BYTES,
        "rounds": ROUNDS,
        "limit_s": LIMIT_S,
    }
    return _ask(row, node, OrderKind.PROBE_MEASURE, payload, of=row.measured["token"][:8])


def _pairs(name: str, order: OrderRecord) -> list[PairBandwidth]:
    """Every round of every pair; what cannot be read counts as nothing transferred."""
    told = (order.result.get("result") or {}).get("pairs") or []
    return [
        PairBandwidth(first=name, second=str(pair.get("node", "")), bytes_per_s=_number(value))
        for pair in told
        if isinstance(pair, dict)
        for value in pair.get("bytes_per_s") or [0.0]
    ]


def _number(value: object) -> float:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else 0.0


def _corruption(row: Validation, node: Node) -> Finished | None:
    own = _compute(row, node)
    fleet = [_compute(row, peer) for peer in _chosen_peers(row, node)]
    if _gave_up(own):
        return _own_failure(own)
    if orders.is_open(own) or any(orders.is_open(order) for order in fleet):
        return None
    rounds = _digests(own)
    votes = {order.node.name: _digests(order) for order in fleet if orders.succeeded(order)}
    _keep(row, digests=rounds, fleet=votes)
    if len(rounds) < SDC_ROUNDS:
        return Finished(Verdict.FAIL, f"It gave {len(rounds)} of {SDC_ROUNDS} rounds, which is not a pass.")
    return _with_own_vote(node, rounds, votes) or Finished(*standby.judge_digests(rounds, votes))


def _with_own_vote(node: Node, rounds: Sequence[str], votes: Mapping[str, Sequence[str]]) -> Finished | None:
    """Where two others contradict each other, the candidate's own vote tells which of them is alone.

    Without it a node that computes wrongly would have every other node set aside that is compared with it.
    """
    if len(votes) != 2:
        return None
    agreeing = [name for name, theirs in votes.items() if list(theirs) == list(rounds)]
    if len(agreeing) != 1 or len(set(rounds)) != 1:
        return None
    alone = next(name for name in votes if name not in agreeing)
    return Finished(Verdict.PASS, f"All rounds agree with {agreeing[0]}; {alone} differs from both and is suspect.")


def _compute(row: Validation, node: Node) -> OrderRecord:
    # The seed is the check's own number: an answer of an earlier check cannot be given again.
    payload = {"seed": row.pk, "rounds": SDC_ROUNDS, "size": SDC_SIZE, "limit_s": LIMIT_S}
    return _ask(row, node, OrderKind.PROBE_SDC, payload, of="sdc")


def _digests(order: OrderRecord) -> list[str]:
    told = (order.result.get("result") or {}).get("digests") or []
    return [str(digest) for digest in told]


def _ask(row: Validation, node: Node, kind: OrderKind, payload: Mapping[str, Any], *, of: str) -> OrderRecord:
    return orders.issue(
        node, kind=kind, key=f"check:{row.pk}:{of}:{kind}:{node.name}", payload=payload, ttl_s=LIMIT_S + 10
    )


def _gave_up(order: OrderRecord) -> bool:
    return not orders.is_open(order) and not orders.succeeded(order)


def _own_failure(order: OrderRecord) -> Finished:
    error = orders.error_of(order)
    timed_out = order.state == OrderRecord.State.EXPIRED or error["code"] == "timeout"
    return Finished(Verdict.TIMEOUT if timed_out else Verdict.CRASH, error["message"])


def _keep(row: Validation, **facts: Any) -> None:
    row.measured = {**row.measured, **facts}
    row.save(update_fields=["measured"])
