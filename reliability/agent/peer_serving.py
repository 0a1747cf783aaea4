"""Which shards of this node may other nodes read now? One child a signed order, ended with its attempt.

An order names the job's attempt, the shards and a token; the child that serves them ends when its time is over, when a
newer attempt of the job begins, or with the agent.
"""

import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reliability.agent.fields import Fields
from reliability.agent.probes import children
from reliability.agent.probes.children import Child, Children
from reliability.errors import InvalidInput
from reliability.tiers import shards

MOST_LIMIT_S = 3600.0
MOST_SHARDS = 10_000
TIERS = ("memory", "partner", "ssd")
PARTNERS = ".partners"
"""Folder below the memory tier's for shards of other nodes' ranks; no job can have this name."""
_MODULE = "reliability.agent.peer_server"


@dataclass(frozen=True)
class _Serving:
    epoch: int
    child: Child


class PeerServing:
    """Starts and ends the children that serve shards to other nodes."""

    def __init__(self, *, address: str, memory_dir: Path, ssd_dir: Path, log_dir: Path) -> None:
        self._address = address
        self._folders = {
            "memory_dir": str(memory_dir),
            "partner_dir": str(memory_dir / PARTNERS),
            "ssd_dir": str(ssd_dir),
        }
        self._children = Children(log_dir)
        self._lock = threading.Lock()
        self._serving: dict[str, list[_Serving]] = {}

    def serve(self, payload: Mapping[str, Any], *, job: str, epoch: int) -> dict[str, Any]:
        """Have a child serve the shards an order names; return its port. Raises ProbeCrashed, InvalidInput."""
        fields = Fields(payload, "payload")
        limit_s = min(max(fields.number("limit_s"), 0.1), MOST_LIMIT_S)
        request = {
            **self._folders,
            "address": self._address,
            "job": job,
            "epoch": epoch,
            "token": _token(fields),
            "limit_s": limit_s,
            "hold": bool(fields.raw.get("hold", True)),
            "shards": _shards(fields),
            "ranks": [int(rank) for rank in fields.sequence("ranks", ())],
        }
        self.end_below(job, epoch)
        child, answer = self._children.serve(_MODULE, request, limit_s=limit_s)
        with self._lock:
            kept = [each for each in self._serving.get(job, ()) if each.child.poll() is None]
            self._serving[job] = [*kept, _Serving(epoch, child)]
        return answer

    def end_below(self, job: str, epoch: int) -> None:
        """End what serves shards for an older attempt of a job: its orders do not count any more."""
        with self._lock:
            over = [each for each in self._serving.get(job, ()) if each.epoch < epoch]
            self._serving[job] = [each for each in self._serving.get(job, ()) if each.epoch >= epoch]
        for each in over:
            if each.child.poll() is None:
                children.kill(each.child.pid)

    def stop(self) -> None:
        """End all of them."""
        self._children.stop()


def _token(fields: Fields) -> str:
    token = fields.text("token")
    if len(token) < 32:
        raise InvalidInput("payload.token", "is too short", hint="At least 32 characters that nobody can guess.")
    return token


def _shards(fields: Fields) -> list[dict[str, str]]:
    found = [{"tier": item.choice("tier", TIERS), "key": item.text("key")} for item in fields.items("shards")]
    for number, each in enumerate(found):
        shard = shards.parse(each["key"])
        if shard is None or shard.flat_key != each["key"]:
            raise InvalidInput(f"payload.shards.{number}.key", "names no shard", hint="As in e1-s40-r0.")
    if len(found) > MOST_SHARDS:
        raise InvalidInput("payload.shards", f"{len(found)} are too many", hint=f"At most {MOST_SHARDS}.")
    return found
