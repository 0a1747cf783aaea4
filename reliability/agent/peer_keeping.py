"""Whose shards does this node keep in memory for its neighbours? One child for each job and neighbour."""

import contextlib
import json
import logging
import shutil
import threading
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

from reliability.agent.clock import steady
from reliability.agent.fields import Fields
from reliability.agent.jobs import LocalJobs
from reliability.agent.peer_serving import MOST_LIMIT_S, PARTNERS
from reliability.agent.probes import children
from reliability.agent.probes.children import Child, Children

_MODULE = "reliability.agent.peer_keeper"

log = logging.getLogger("stepkeeper.agent")


ENDING_S = 5.0
FIRST_WAIT_S, LONGEST_WAIT_S = 0.5, 30.0
"""How long after a child ended by itself the next one is started."""


class _Keeping:
    """One neighbour's shards of a job being kept, from the order on until nothing of it runs any more."""

    def __init__(self, epoch: int, ranks: frozenset[int]) -> None:
        self.epoch = epoch
        self.ranks = ranks
        self.ended = threading.Event()
        self.over = threading.Event()
        self._lock = threading.Lock()
        self._child: Child | None = None

    def begin(self, start: Callable[[], Child]) -> Child | None:
        """Return the child that keeps them, None when that was ended before it began."""
        with self._lock:
            self._child = None if self.over.is_set() else start()
            return self._child

    def kill(self) -> None:
        """End it, whether it runs by now or not."""
        with self._lock:
            self.over.set()
            if self._child is not None and self._child.poll() is None:
                children.kill(self._child.pid)


class PeerKeeping:
    """Starts and ends the children that keep neighbours' shards, and passes on what they tell."""

    def __init__(self, *, memory_dir: Path, jobs: LocalJobs, log_dir: Path, report: Callable[..., None]) -> None:
        self._memory_dir = memory_dir
        self._jobs = jobs
        self._report = report
        self._children = Children(log_dir)
        self._lock = threading.Lock()
        self._beginning = threading.Lock()
        self._keeping: dict[tuple[str, str], _Keeping] = {}

    def keep(self, payload: Mapping[str, Any], *, job: str, epoch: int) -> dict[str, Any]:
        """Have a child keep what an order names, in the place of one that did so before."""
        fields = Fields(payload, "payload")
        peer = fields.inner("peer")
        ranks = [int(rank) for rank in peer.sequence("ranks")]
        kept = [int(rank) for rank in fields.sequence("kept_ranks")] if "kept_ranks" in payload else None
        request = {
            "job": job,
            "epoch": epoch,
            "peer": {
                "node": peer.text("node"),
                "address": peer.text("address"),
                "port": peer.integer("port"),
                "token": peer.text("token"),
                "ranks": ranks,
            },
            "kept_ranks": kept,
            "folder": str(self.folder(job)),
            "bytes_per_s": fields.number("bytes_per_s", 0.0),
            "limit_s": min(max(fields.number("limit_s"), 0.1), MOST_LIMIT_S),
        }
        place, keeping = (job, peer.text("node")), _Keeping(epoch, frozenset(ranks))
        with self._beginning:
            self._end(lambda key, each: key == place or (key[0] == job and kept is not None and _is_over(each, kept)))
            with self._lock:
                self._keeping[place] = keeping
            threading.Thread(target=self._run, args=(place, keeping, request), name="partner", daemon=True).start()
        return {}

    def folder(self, job: str) -> Path:
        """Return where shards of a job's other nodes lie."""
        return self._memory_dir / PARTNERS / job

    def end_below(self, job: str, epoch: int) -> None:
        """End what keeps shards of an older attempt; what was kept stays, a restore may need it."""
        self._end(lambda key, each: key[0] == job and each.epoch < epoch)

    def forget(self, job: str) -> None:
        """Give the memory back: the job's part here is released."""
        self._end(lambda key, _each: key[0] == job)
        with contextlib.suppress(OSError):
            shutil.rmtree(self.folder(job))

    def stop(self) -> None:
        """End all of them."""
        with self._lock:
            for each in self._keeping.values():
                each.over.set()
        self._children.stop()

    def _end(self, which: Callable[[tuple[str, str], _Keeping], bool]) -> None:
        """End those, and wait until nothing of them writes any more."""
        with self._lock:
            over = {key: each for key, each in self._keeping.items() if which(key, each)}
            for key in over:
                del self._keeping[key]
        for each in over.values():
            each.kill()
        for place, each in over.items():
            if not each.ended.wait(ENDING_S):
                log.warning("what keeps a partner's copies does not end: job=%s node=%s", *place)

    def _run(self, place: tuple[str, str], keeping: _Keeping, request: Mapping[str, Any]) -> None:
        """Start the child in the thread that reads it: it ends with that thread."""
        wait_s, end = FIRST_WAIT_S, steady() + float(request["limit_s"])
        try:
            while not keeping.over.is_set() and (left_s := end - steady()) > 0:
                self._keep_once(place, keeping, {**request, "limit_s": left_s})
                if not keeping.over.wait(wait_s):
                    log.warning("a partner's copies are kept anew: job=%s node=%s", *place)
                wait_s = min(2 * wait_s, LONGEST_WAIT_S)
        finally:
            keeping.ended.set()
            with self._lock:
                if self._keeping.get(place) is keeping:
                    del self._keeping[place]

    def _keep_once(self, place: tuple[str, str], keeping: _Keeping, request: Mapping[str, Any]) -> None:
        """Have a child keep them until it ends. Boundary: whatever goes wrong, it is tried again."""
        try:
            child = keeping.begin(lambda: self._children.begin(_MODULE, "keep", request))
            if child is not None:
                self._read(place, child)
        except Exception:
            log.exception("a partner's copies are not kept for the moment: job=%s node=%s", *place)

    def _read(self, place: tuple[str, str], child: Child) -> None:
        try:
            for line in child.stdout or ():
                self._pass_on(place[0], line)
        finally:
            self._children.end(child)

    def _pass_on(self, job: str, line: bytes) -> None:
        try:
            said = json.loads(line)
            kind, body = said["kind"], said["body"]
        except (ValueError, KeyError, TypeError):
            log.warning("the keeper of partners' copies said: %r", line[:300])
            return
        self._report(kind, body, job=job, epoch=self._jobs.epoch(job))


def _is_over(keeping: _Keeping, kept: Collection[int]) -> bool:
    """Return whether no pair names its ranks any more."""
    return not keeping.ranks <= set(kept)
