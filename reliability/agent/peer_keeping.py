"""Whose shards does this node keep in memory for its neighbours? One child for each job and neighbour."""

import contextlib
import json
import logging
import shutil
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reliability.agent.fields import Fields
from reliability.agent.jobs import LocalJobs
from reliability.agent.peer_serving import MOST_LIMIT_S, PARTNERS
from reliability.agent.probes import children
from reliability.agent.probes.children import Child, Children

_MODULE = "reliability.agent.peer_keeper"

log = logging.getLogger("stepkeeper.agent")


@dataclass(frozen=True)
class _Keeping:
    epoch: int
    child: Child


class PeerKeeping:
    """Starts and ends the children that keep neighbours' shards, and passes on what they tell."""

    def __init__(self, *, memory_dir: Path, jobs: LocalJobs, log_dir: Path, report: Callable[..., None]) -> None:
        self._memory_dir = memory_dir
        self._jobs = jobs
        self._report = report
        self._children = Children(log_dir)
        self._lock = threading.Lock()
        self._keeping: dict[tuple[str, str], _Keeping] = {}

    def keep(self, payload: Mapping[str, Any], *, job: str, epoch: int) -> dict[str, Any]:
        """Have a child keep what an order names, in the place of one that did so before."""
        fields = Fields(payload, "payload")
        peer = fields.inner("peer")
        request = {
            "job": job,
            "epoch": epoch,
            "peer": {
                "node": peer.text("node"),
                "address": peer.text("address"),
                "port": peer.integer("port"),
                "token": peer.text("token"),
                "ranks": [int(rank) for rank in peer.sequence("ranks")],
            },
            "folder": str(self.folder(job)),
            "bytes_per_s": fields.number("bytes_per_s", 0.0),
            "limit_s": min(max(fields.number("limit_s"), 0.1), MOST_LIMIT_S),
        }
        place = (job, peer.text("node"))
        self._end(lambda key, _epoch: key == place)
        thread = threading.Thread(target=self._run, args=(place, epoch, request), name="partner", daemon=True)
        thread.start()
        return {}

    def folder(self, job: str) -> Path:
        """Return where shards of a job's other nodes lie."""
        return self._memory_dir / PARTNERS / job

    def end_below(self, job: str, epoch: int) -> None:
        """End what keeps shards of an older attempt; what was kept stays, a restore may need it."""
        self._end(lambda key, kept: key[0] == job and kept < epoch)

    def forget(self, job: str) -> None:
        """Give the memory back: the job's part here is released."""
        self._end(lambda key, _epoch: key[0] == job)
        with contextlib.suppress(OSError):
            shutil.rmtree(self.folder(job))

    def stop(self) -> None:
        """End all of them."""
        self._children.stop()

    def _end(self, which: Callable[[tuple[str, str], int], bool]) -> None:
        with self._lock:
            over = {key: each for key, each in self._keeping.items() if which(key, each.epoch)}
            for key in over:
                del self._keeping[key]
        for each in over.values():
            if each.child.poll() is None:
                children.kill(each.child.pid)

    def _run(self, place: tuple[str, str], epoch: int, request: Mapping[str, Any]) -> None:
        """Start the child in the thread that reads it: it ends with that thread."""
        child = self._children.begin(_MODULE, "keep", request)
        with self._lock:
            self._keeping[place] = _Keeping(epoch, child)
        try:
            for line in child.stdout or ():
                self._pass_on(place[0], line)
        except Exception:
            log.exception("a partner's copies are not kept any more: job=%s node=%s", *place)
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
