"""What did the nodes report, is it kept, and what does each report mean?

`accept` keeps reports before they are answered: (node, incarnation, seq) once. `process_new` gives each its meaning,
in the order of arrival; when more wait than it reads at once, each node gets the same share. Only what tells of copies
of snapshots, which is most of all by far, waits until nothing else does. A report that cannot be used is refused with
the reason and never blocks those behind it.
"""

import logging
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from itertools import groupby
from typing import Any

from django.db import InterfaceError, OperationalError, connection, transaction
from django.db.models import Min, QuerySet

from reliability.domain.report_bodies import OF_COPIES
from reliability.domain.reports import Item
from reliability.errors import InvalidInput, ReliabilityError, StaleEpoch
from reliability.models import Job, Node, Report
from reliability.selectors import fault_codes
from reliability.services import clock, dispatch, flood, snapshot_tally, turns
from reliability.services.database_trouble import Trouble, trouble
from reliability.services.reading import READERS, FollowUp, follow_up

CHUNK = 100
COPIES_AT_ONCE = 50
"""So many reports of copies are read before it is looked again for others, if `TOGETHER_S` is enough for them."""
TOGETHER_S = 0.06
"""After so long, in seconds, a transaction begins no other report of a copy: whoever writes to the database waits for
it, and for the counts at its end.
"""
READ_TOGETHER = frozenset({"snapshot_copy", "snapshot_removed"})
"""What changes counts: a save of many ranks comes as many of these, and is counted once for all."""
EPOCH_FREE = frozenset({"order_result", "order_refused", "snapshot_removed"})
"""An order's result is matched with the order itself, whose epoch is known; what is removed is gone in every epoch."""
WAITING = "reports-waiting"
ASK_AGAIN_S = 2.0
"""A message that was lost is sent again after so long; each round of reconciliation reads reports too."""
READING_S = 10.0
"""A reading goes on for so long at most, then the next message does: other work of the controller gets its turn."""

log = logging.getLogger(__name__)
_reading = threading.Lock()
"""Held by the thread of this process that reads. Readings of other processes take turns by the locks of the rows."""
_asked = threading.Event()
"""A reading was asked for since the one that goes on looked last."""


def accept(node: Node, *, incarnation: str, items: Sequence[Item], now: datetime) -> list[dict[str, Any]]:
    """Keep reports and return for each whether it was accepted, known already, or refused as stale."""
    if not items:
        return []
    with transaction.atomic():
        known = _known(node, incarnation, items)
        epochs = dict(Job.objects.filter(name__in={item.job for item in items}).values_list("name", "epoch"))
        results, rows, gathered = [], [], flood.Gathered(node, now)
        for item in items:
            place = (item.incarnation or incarnation, item.seq)
            if place in known:
                results.append({"seq": item.seq, "status": "duplicate", "code": "", "message": "", "hint": ""})
                continue
            refusal = _refusal(item, epochs)
            row = _row(node, place[0], item, refusal, now)
            if not gathered.take(row):
                results.append({"seq": item.seq, "status": "later", "code": "", "message": "", "hint": flood.LATER})
                continue
            known.add(place)
            rows.append(row)
            results.append(_result(item, refusal))
        keep(rows, gathered)
    return results


def keep(rows: Sequence[Report], gathered: flood.Gathered) -> None:
    """Write reports that were taken, and have them read soon. Inside a transaction."""
    gathered.count_up()
    Report.objects.bulk_create(rows)
    if gathered.waits() or any(row.state == Report.State.NEW for row in rows):
        # Taken here it costs no second wait for other writers. Where it was taken already it is asked for again after
        # the commit: the reading that it stands for may have looked before.
        taken = turns.take(WAITING, clock.now(), ASK_AGAIN_S)
        transaction.on_commit(_ask if taken else _ask_for_reading, robust=True)


def _ask_for_reading() -> None:
    """Ask once, until a reading begins: that one finds all that was kept before, whoever asks meanwhile."""
    if turns.take(WAITING, clock.now(), ASK_AGAIN_S):
        _ask()


def _ask() -> None:
    dispatch.task("controller.process_reports")


def _known(node: Node, incarnation: str, items: Sequence[Item]) -> set[tuple[str, int]]:
    wanted: dict[str, list[int]] = {}
    for item in items:
        wanted.setdefault(item.incarnation or incarnation, []).append(item.seq)
    return {
        (name, seq)
        for name, seqs in wanted.items()
        for seq in Report.objects.filter(node=node, incarnation=name, seq__in=seqs).values_list("seq", flat=True)
    }


def _refusal(item: Item, epochs: Mapping[str, int]) -> ReliabilityError | None:
    if not item.job or item.kind in EPOCH_FREE:
        return None
    current = epochs.get(item.job)
    if current is None:
        return ReliabilityError(f"There is no job {item.job}.", hint="The job was removed, or the name is wrong.")
    if item.epoch is not None and item.epoch < current:
        return StaleEpoch(f"Epoch {item.epoch} of job {item.job} is over: {current} is in charge.")
    return _of_the_future(item, current)


def _of_the_future(item: Item, current: int) -> ReliabilityError | None:
    """No node can know an attempt that was not ordered, nor hold state that a later attempt took."""
    if item.epoch is not None and item.epoch > current:
        return InvalidInput(
            "epoch",
            f"{item.epoch} of job {item.job} was never begun: {current} is in charge",
            hint="Send the epoch of the order that the ranks were started with.",
        )
    taken = item.body.get("snapshot_epoch")
    newest = current if item.epoch is None else item.epoch
    if taken is not None and taken > newest:
        return InvalidInput(
            "body.snapshot_epoch",
            f"{taken} is later than epoch {newest} that reports it",
            hint="Name the epoch that took the snapshot.",
        )
    return None


def _row(node: Node, incarnation: str, item: Item, refusal: ReliabilityError | None, now: datetime) -> Report:
    return Report(
        node=node,
        incarnation=incarnation,
        seq=item.seq,
        kind=item.kind,
        job_name=item.job,
        epoch=item.epoch,
        body=dict(item.body),
        count=item.body.get("count") or 1,
        agent_at=item.at,
        received_at=now,
        state=Report.State.REFUSED if refusal else Report.State.NEW,
        refusal=f"{refusal.code}: {refusal.message}" if refusal else "",
    )


def _result(item: Item, refusal: ReliabilityError | None) -> dict[str, Any]:
    if refusal is None:
        return {"seq": item.seq, "status": "accepted", "code": "", "message": "", "hint": ""}
    return {
        "seq": item.seq,
        "status": "refused",
        "code": refusal.code,
        "message": refusal.message,
        "hint": refusal.hint,
    }


def process_new(limit_s: float = READING_S) -> int:
    """Give every new report its meaning and do what follows from it. Returns how many were read.

    Ends after about `limit_s` seconds with the rest left; then a message asks for the next reading. While another
    thread reads, it leaves at once with 0: that one looks again before it ends.
    """
    total, until = 0, time.monotonic() + limit_s
    _asked.set()  # before the lock is tried: who has it looks here after letting it go
    while _asked.is_set() and _reading.acquire(blocking=False):
        try:
            read, ended = _read(until)
        finally:
            _reading.release()
        total += read
        if not ended:
            _ask_for_the_rest()
            break
    return total


def _read(until: float) -> tuple[int, bool]:
    """Read until nothing waits or the time (monotonic seconds) is over. Returns how many, and whether nothing waits."""
    total = 0
    while ids := _looked():
        total += _read_these(ids)
        if time.monotonic() >= until:
            return total, False
    return total, True


def _looked() -> list[int]:
    """Look for what is read next. Who keeps a report from now on asks anew, and whoever asked before is answered."""
    if _asked.is_set():
        _asked.clear()
        turns.give_back(WAITING)
    return _next()


def _read_these(ids: Sequence[int]) -> int:
    """Read reports, then do what follows; also when the database fails in between, of those that were read.

    Returns how many were read. What is left of a group too long for one transaction waits for the next look, and so
    does all that came after it.
    """
    read, following = 0, dict[FollowUp, None]()
    try:
        for group in _groups(ids):
            done = 0
            for pks, found in _process(group):
                done += pks
                following.update(dict.fromkeys(found))
            read += done
            if done < len(group):
                break
    finally:
        for each in following:
            follow_up(each)
    return read


def _groups(ids: Sequence[int]) -> Iterator[list[int]]:
    """Yield what one transaction reads, in the order given: neighbours that are read together, all else alone."""
    if len(ids) == 1:  # as most often: what kind it is makes no difference
        yield list(ids)
        return
    kinds = dict(Report.objects.filter(pk__in=ids).values_list("pk", "kind"))
    for together, group in groupby(ids, key=lambda pk: kinds.get(pk) in READ_TOGETHER):
        if together:
            yield list(group)
        else:
            yield from ([pk] for pk in group)


def _ask_for_the_rest() -> None:
    """Ask for the next reading, whoever asked meanwhile: that message may have found this one and left."""
    turns.give_back(WAITING)
    try:
        _ask_for_reading()
    except (OperationalError, InterfaceError) as error:
        log.warning("The rest of the reports waits for reconciliation: %s", error)


def _next() -> list[int]:
    """Return which reports are read next: those of copies of snapshots while nothing else waits, and a few beside."""
    waiting = Report.objects.filter(state=Report.State.NEW)
    copies, others = waiting.filter(kind__in=OF_COPIES), waiting.exclude(kind__in=OF_COPIES)
    first = _shared(others, CHUNK)
    if len(first) < CHUNK / 2:  # no flood
        return first or _shared(copies, COPIES_AT_ONCE)
    return [*first, *_shared(copies, COPIES_AT_ONCE)]


def _shared(waiting: QuerySet[Report], most: int) -> list[int]:
    """Return `most` reports in the order of arrival: all that wait, or of each node the same share."""
    ids = list(waiting.order_by("id").values_list("pk", flat=True)[: most + 1])
    if len(ids) <= most:
        return ids
    senders = waiting.values("node_id").annotate(first=Min("id")).order_by("first").values_list("node_id", flat=True)
    nodes = list(senders[:most])
    share = max(1, most // max(1, len(nodes)))
    return sorted(
        pk for node in nodes for pk in waiting.filter(node=node).order_by("id").values_list("pk", flat=True)[:share]
    )


def _process(pks: Sequence[int]) -> Iterator[tuple[int, list[FollowUp]]]:
    """Read reports; yield for each transaction how many, and what follows. What could not be read together is read
    one by one.
    """
    if len(pks) > 1:
        try:
            done = _together(pks)
        except Exception as error:  # boundary: also two transactions that waited for each other, as one alone does not
            if _is_no_use_to_try_again(error):
                raise
            log.warning("Reports %s to %s are read one by one.", pks[0], pks[-1], exc_info=True)
        else:
            yield done
            return
    for pk in pks:
        yield 1, _alone(pk)


def _is_no_use_to_try_again(error: Exception) -> bool:
    """The database is away, or its one writer has been busy all the time that is waited for it."""
    found = trouble(error)
    return found is Trouble.AWAY or (found is Trouble.BUSY and connection.vendor == "sqlite")


def _alone(pk: int) -> list[FollowUp]:
    """Read one report under its own lock; two workers on the same row take turns and the second finds it done."""
    with transaction.atomic(), fault_codes.held():
        row = _locked([pk]).first()
        return [] if row is None else _understood(row)


def _together(pks: Sequence[int]) -> tuple[int, list[FollowUp]]:
    """Read reports of copies in one transaction, as many as there is time for, and count once.

    The jobs are locked first, as by all who lock their snapshots after them.
    """
    following: list[FollowUp] = []
    with transaction.atomic(), fault_codes.held(), snapshot_tally.once():
        rows = list(_locked(pks))
        until = time.monotonic() + TOGETHER_S
        jobs = Job.objects.filter(name__in={row.job_name for row in rows}).order_by("pk")
        list(jobs.select_for_update(no_key=True).values_list("pk", flat=True))
        for read, row in enumerate(rows, start=1):
            following += _understood(row)
            if read < len(rows) and time.monotonic() >= until:
                return read, following
    return len(pks), following


def _locked(pks: Sequence[int]) -> QuerySet[Report]:
    rows = Report.objects.filter(pk__in=pks, state=Report.State.NEW).order_by("pk")
    return rows.select_related("node").select_for_update(of=("self",))


def _understood(row: Report) -> list[FollowUp]:
    """Give a report its meaning, or refuse it; returns what follows."""
    try:
        with transaction.atomic():
            following = READERS[row.kind](row)
    except (OperationalError, InterfaceError):
        raise  # the database, not the report: it stays new
    except Exception as error:  # boundary: whatever else is wrong with a report is that report's
        _refuse(row, error)
        return []
    Report.objects.filter(pk=row.pk).update(state=Report.State.PROCESSED)
    return following


def _refuse(row: Report, error: Exception) -> None:
    known = isinstance(error, ReliabilityError)
    reason = (
        f"{error.code}: {error.message}" if isinstance(error, ReliabilityError) else f"{type(error).__name__}: {error}"
    )
    if not known:
        log.exception("Report %s (%s) could not be read. node=%s job=%s", row.pk, row.kind, row.node_id, row.job_name)
    Report.objects.filter(pk=row.pk).update(state=Report.State.REFUSED, refusal=reason[:4000])
