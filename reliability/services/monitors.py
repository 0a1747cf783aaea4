"""What foreign monitors see: who may send it, and how it becomes findings like those of the nodes' own agents.

A monitor's token is no agent's and no person's: it lets findings in and opens nothing else. What is new becomes reports
of the node, so that it waits, is merged and is judged as everything else that is found there.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from django.db import IntegrityError, transaction
from django.db.models import F

from reliability.domain import fields
from reliability.domain.monitors import Advance, Found, Item, advance
from reliability.domain.monitors.placing import Directory
from reliability.domain.monitors.words import Said
from reliability.errors import InvalidInput, ReliabilityError
from reliability.models import Incident, MonitorState, MonitorToken, Node, Report
from reliability.selectors import monitors as reads
from reliability.services import access, clock, dispatch, flood, reports

PREFIX = "skm_"
"""Monitors' tokens begin with it, so that one is told from an agent's wherever it turns up."""
Place = tuple[str, str]
"""A node's name, and the kind of monitor that speaks of it."""
_read_name = fields.text(most=80, least=1)


class UnknownNode(ReliabilityError):
    """A node that is not known here (HTTP 404)."""

    code = "unknown_node"
    hint = "Give its name, host name, address or the UUID of one of its GPUs, as on the page of nodes."


class _Full(ReliabilityError):
    """Too much of a node waits to be read."""


@dataclass
class _Tally:
    """What came of what was sent."""

    found: Counter[str] = field(default_factory=Counter)
    no_news: Counter[str] = field(default_factory=Counter)
    refused: dict[str, dict[str, Any]] = field(default_factory=dict)

    def refuse(self, named: str, status: int, message: str, hint: str, *items: Item) -> None:
        """Note that what was said of one node was not taken."""
        place = self.refused.setdefault(
            named, {"node": named, "status": status, "message": message, "hint": hint, "first": "", "items": 0}
        )
        place["first"] = place["first"] or items[0].where
        place["items"] += len(items)


def give_token(name: str, *, node: Node | None, by: str) -> tuple[MonitorToken, str]:
    """Make a token for a monitor, of one node or of all; returns it with its text, which is kept nowhere.

    Raises InvalidInput (field `name`).
    """
    called = str(_read_name(name.strip(), "name"))
    text = PREFIX + access.new_token()
    try:
        with transaction.atomic():
            token = MonitorToken.objects.create(
                name=called, node=node, token_hash=access.token_digest(text), created_by=by, created_at=clock.now()
            )
    except IntegrityError as error:
        hint = "Revoke that one first, or choose another name."
        raise InvalidInput("name", f"{called!r} has a token already", hint=hint) from error
    return token, text


def revoke(token: MonitorToken, *, by: str) -> None:
    """Take a token back: nothing is let in with it any more."""
    standing = MonitorToken.objects.filter(pk=token.pk, revoked_at=None)
    if not standing.update(revoked_at=clock.now(), revoked_by=by):
        raise ReliabilityError(f"The token {token.name} is revoked already.")


def sender(text: str) -> MonitorToken:
    """Return the token that this is the text of. Raises TokenRefused."""
    token = None
    if text.startswith(PREFIX):
        digest = access.token_digest(text)
        token = MonitorToken.objects.select_related("node").filter(token_hash=digest, revoked_at=None).first()
    if token is None:
        hint = (
            "Give the token of a monitor, as made on the page of monitors. An agent's or a person's opens nothing here."
        )
        raise access.TokenRefused("The monitor's token is missing, unknown or revoked.", hint=hint)
    return token


def take(token: MonitorToken, said: Said, *, named: str, now: datetime) -> dict[str, Any]:
    """Take in what a monitor says; `named` is the node that all of it is of, '' where each statement names its own.

    Returns what came of it. Raises UnknownNode when nothing of it can be placed.
    """
    directory, tally = reads.directory(), _Tally()
    fixed = token.node.name if token.node else ""
    if named:
        found = directory.find(named)
        if found is None or (fixed and found != fixed):
            raise UnknownNode(f"{named[:80]} is no node that this token may speak of.")
        fixed = found
    placed = _placed(said.items, directory, fixed, tally)
    if tally.refused and not placed:
        first = next(iter(tally.refused.values()))
        raise UnknownNode(first["message"], hint=first["hint"])
    _take_placed(token, placed, tally, now)
    MonitorToken.objects.filter(pk=token.pk).update(used_at=now)
    return _answer(said, tally, placed)


def _placed(items: Sequence[Item], directory: Directory, fixed: str, tally: _Tally) -> dict[Place, list[Item]]:
    """Return the statements by node and kind of monitor; those of nodes that may not be spoken of are refused."""
    placed: dict[Place, list[Item]] = {}
    for item in items:
        node = directory.find(item.node, item.uuid) or fixed
        if not node:
            name = (item.node or item.uuid or "a node without a name")[:80]
            tally.refuse(name, 404, f"{name} is no node here.", UnknownNode.hint, item)
        elif fixed and node != fixed:
            tally.refuse(node, 403, f"This is of {node}, not of {fixed}.", "A token for every node may send it.", item)
        else:
            placed.setdefault((node, item.source), []).append(item)
    return placed


def _take_placed(token: MonitorToken, placed: Mapping[Place, Sequence[Item]], tally: _Tally, now: datetime) -> None:
    nodes = {node.name: node for node in Node.objects.filter(name__in={name for name, _ in placed})}
    for (name, source), items in sorted(placed.items()):
        if name not in nodes:
            continue
        try:
            _take_of(token, nodes[name], source, items, tally, now)
        except _Full as error:
            tally.refuse(name, 429, error.message, error.hint, *items)


def _answer(said: Said, tally: _Tally, placed: Iterable[Place]) -> dict[str, Any]:
    return {
        "findings": sum(tally.found.values()),
        "nodes": {name: tally.found[name] for name, _ in sorted(placed)},
        "no_news": dict(tally.no_news),
        "ignored": dict(said.ignored),
        "refused": list(tally.refused.values()),
    }


def _take_of(token: MonitorToken, node: Node, source: str, items: Sequence[Item], tally: _Tally, now: datetime) -> None:
    """Take in what one kind of monitor says of one node: all of it, or nothing."""
    with transaction.atomic():
        state, _ = MonitorState.objects.get_or_create(node=node, source=source, defaults={"seen_at": now})
        state = MonitorState.objects.select_for_update().get(pk=state.pk)
        advanced = advance(state.kept, items, now=now.timestamp())
        state.kept, state.standing, state.seen_at = advanced.kept, list(advanced.standing), now
        state.save(update_fields=["kept", "standing", "seen_at"])
        _close(node, source, advanced, now)
        if advanced.found:  # last: from here on others wait who keep reports
            _keep(token, node, advanced.found, now)
    tally.found[node.name] += sum(each.count for each in advanced.found)
    tally.no_news += advanced.no_news


def _keep(token: MonitorToken, node: Node, found: Sequence[Found], now: datetime) -> None:
    MonitorToken.objects.filter(pk=token.pk).update(sent=F("sent") + len(found))
    last = MonitorToken.objects.values_list("sent", flat=True).get(pk=token.pk)
    gathered = flood.Gathered(node, now)
    rows = [
        Report(
            node=node,
            incarnation=f"monitor:{token.token_hash[:24]}",
            seq=seq,
            kind="finding",
            body={
                "code": each.code,
                "evidence": each.evidence,
                "fields": dict(each.fields),
                "source": each.source,
                "count": each.count,
            },
            count=each.count,
            received_at=now,
        )
        for seq, each in enumerate(found, start=last - len(found) + 1)
    ]
    if not all(gathered.take(row) for row in rows):
        raise _Full("Too many findings of this node wait to be read.", hint="Nothing was taken: send it again later.")
    reports.keep(rows, gathered)


def _close(node: Node, source: str, advanced: Advance, now: datetime) -> None:
    """Close what was only observed, when the monitor that told of it says that it is over."""
    for code in advanced.over:
        standing = Incident.objects.filter(node=node, job=None, code=code, closed_at=None, action="observe")
        if not reads.stands(node.pk, code, now) and standing.update(
            closed_at=now, close_reason=f"{source} says that it is over."
        ):
            dispatch.changed("overview", f"node:{node.pk}")
