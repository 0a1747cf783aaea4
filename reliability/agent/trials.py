"""One trial restore at a time on this node, which makes way at once for anything that a recovery asks for.

The child loads shards into a folder of its own beside the SSD tier, which no job can be named after. The folder is gone
when the trial is over, however it ended; what an agent left that was killed goes when the next one begins.
"""

import contextlib
import shutil
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from reliability.agent.desk import OrderFailed
from reliability.agent.fields import Fields
from reliability.agent.probes.children import Children, ProbeCrashed, ProbeTimeout
from reliability.errors import InvalidInput, ReliabilityError

MOST_LIMIT_S = 6 * 3600.0
WAY_LIMIT_S = 5.0
LOOK_S = 0.02
PREFIX = ".trial-"
_MODULE = "reliability.agent.trial_restore"


class TrialEnded(ReliabilityError):
    """A trial made way for something more urgent."""

    code = "trial_ended"
    hint = "Nothing is wrong with the snapshot; it is tried again later."


class TrialBusy(ReliabilityError):
    """Another trial runs on this node."""

    code = "trial_busy"
    hint = "Wait for its end, or try on another standby."


class TrialFailed(ReliabilityError):
    """A copy does not load, or could not be read."""

    code = "trial_failed"
    hint = "The copies that are bad are not restored from; look at the store or disk they lie on."


class _Running:
    """The trial that runs: why it must end, once it must, and when it has."""

    def __init__(self) -> None:
        self.why = ""
        self.over = threading.Event()


class Trials:
    """Runs trial restores of this node; their output for people goes to `log_dir`, their shards below `room`."""

    def __init__(self, log_dir: Path, room: Path, *, node: str) -> None:
        self._children = Children(log_dir)
        self._room = room
        self._node = node
        self._lock = threading.Lock()
        self._running: _Running | None = None
        for left in room.glob(f"{PREFIX}*"):
            shutil.rmtree(left, ignore_errors=True)

    def run(self, order_id: str, payload: Mapping[str, Any]) -> dict[str, Any]:
        """Try a snapshot; return what was read. Raises OrderFailed naming bad and unread copies, TrialEnded."""
        asked, limit_s = self._asked(order_id, payload)
        running = _Running()
        with self._lock:
            if self._running is not None:
                raise TrialBusy("Another trial restore runs on this node.")
            self._running = running
        try:
            found = self._answer(asked, limit_s, running)
        finally:
            shutil.rmtree(asked["folder"], ignore_errors=True)
            with self._lock:
                self._running = None
            running.over.set()
        return _judged(found)

    def make_way(self, why: str) -> None:
        """End a trial that runs, now, and return when its child and its shards are gone."""
        with self._lock:
            running = self._running
            if running is None:
                return
            running.why = why
        for _ in range(round(WAY_LIMIT_S / LOOK_S)):
            self._children.stop()  # again and again: it may just be starting
            if running.over.wait(LOOK_S):
                return

    def stop(self) -> None:
        """End with the agent."""
        self.make_way("the agent ends")

    def _answer(self, asked: Mapping[str, Any], limit_s: float, running: _Running) -> dict[str, Any]:
        with contextlib.suppress(OSError):
            Path(asked["folder"]).mkdir(mode=0o700)
        try:
            return self._children.run(_MODULE, "run", asked, limit_s=limit_s)
        except (ProbeCrashed, ProbeTimeout):
            if running.why:
                raise TrialEnded(f"It made way: {running.why}.") from None
            raise

    def _asked(self, order_id: str, payload: Mapping[str, Any]) -> tuple[dict[str, Any], float]:
        fields = Fields(payload, "payload")
        ranks = [
            {"rank": rank.integer("rank"), "sources": [self._source(source) for source in rank.items("sources")]}
            for rank in fields.items("ranks")
        ]
        asked = {
            "job": fields.text("job"),
            "snapshot_epoch": fields.integer("snapshot_epoch"),
            "step": fields.integer("step"),
            "ranks": ranks,
            "bytes_per_s": fields.number("bytes_per_s", 0.0),
            "folder": str(self._room / f"{PREFIX}{''.join(filter(str.isalnum, order_id))[:40]}"),
        }
        return asked, min(max(fields.number("limit_s"), 0.1), MOST_LIMIT_S)

    def _source(self, source: Fields) -> dict[str, str]:
        tier = source.choice("tier", ("ssd", "storage"))
        if tier == "ssd" and source.text("node") != self._node:
            raise InvalidInput(
                "payload.ranks.sources.node", f"{source.text('node')} is not this node", hint="Only storage is shared."
            )
        return {"tier": tier, "path": source.text("path"), "digest": source.text("digest")}


def _judged(found: dict[str, Any]) -> dict[str, Any]:
    """Return what a child answered, if all was read and good. Raises OrderFailed with the whole answer otherwise."""
    troubles = [*found["bad"], *found["unread"]]
    if troubles:
        first = troubles[0]
        words = f"Rank {first['rank']} from {first['tier']}: {first['message']}"
        more = f" And {len(troubles) - 1} more." if len(troubles) > 1 else ""
        raise OrderFailed(TrialFailed(words + more), found)
    return found
