"""Which snapshots never got to storage because newer ones overtook them? They are counted, never silent.

The SSD keeps only the newest, or keeps more than are ever taken from it, and storing one may take so long that others
come and go there meanwhile: so the SSD is looked at while a copy is under way too.
"""

import contextlib
import itertools
import threading
from collections import Counter
from collections.abc import Iterable, Iterator

from reliability.errors import TierError
from reliability.tiers import shards
from reliability.tiers.directory import DirectoryTier
from reliability.tiers.shards import Shard

LOOK_S = 0.1


class PassedOver:
    """Counts the shards that could be stored, no longer can, and were not stored before a newer one was.

    `newest`: of how many shards of each rank, the newest on the SSD, one is ever taken.
    """

    def __init__(self, source: DirectoryTier, newest: int) -> None:
        self._source = source
        self._newest = newest
        self._seen: set[Shard] = set()
        self._stored: dict[int, Shard] = {}
        self._owed: dict[int, int] = {}
        self._count = 0
        self.last_s = 0.0

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """Look at the SSD again and again inside the block."""
        over = threading.Event()
        watcher = threading.Thread(target=self._watch, args=(over,), name="passed-over", daemon=True)
        watcher.start()
        try:
            yield
        finally:
            over.set()
            watcher.join()

    def before(self, shard: Shard) -> int:
        """Return how many of its rank were passed over for a shard that is stored now."""
        self._count_gone(shard.rank, shard, self._look())
        return self._owed.get(shard.rank, 0)

    def stored(self, shard: Shard, seconds: float) -> None:
        """Take note that a shard is on storage, and how long that took."""
        self.last_s = seconds
        self._seen.discard(shard)
        self._owed.pop(shard.rank, None)
        self._stored[shard.rank] = max(shard, self._stored.get(shard.rank, shard))

    def period_s(self) -> float | None:
        """Return the shortest time between two saves of a rank that lie on the SSD; None when nothing tells it."""
        taken: dict[tuple[int, int], list[float]] = {}
        for shard in sorted(self._look()):
            with contextlib.suppress(TierError):
                taken_at = self._source.record(shard.flat_key).get("taken_at")
                taken.setdefault((shard.epoch, shard.rank), []).extend([] if taken_at is None else [float(taken_at)])
        gaps = [later - earlier for of_rank in taken.values() for earlier, later in itertools.pairwise(of_rank)]
        return min(gaps, default=None)

    def known(self, shard: Shard) -> None:
        """Take note that a shard lay on storage before anything was stored here: none below it is passed over."""
        self._stored[shard.rank] = max(shard, self._stored.get(shard.rank, shard))

    def take(self) -> int:
        """Return how many were passed over since the last call."""
        there = self._look()
        for rank, newest in self._stored.items():
            self._count_gone(rank, newest, there)
        count, self._count = self._count, 0
        return count

    def _count_gone(self, rank: int, newest: Shard, there: set[Shard]) -> None:
        gone = {shard for shard in self._seen - there if shard.rank == rank and shard < newest}
        self._seen -= gone
        self._count += len(gone)
        self._owed[rank] = self._owed.get(rank, 0) + len(gone)

    def _watch(self, over: threading.Event) -> None:
        while not over.is_set():
            self._look()
            over.wait(LOOK_S)

    def _look(self) -> set[Shard]:
        try:
            found = self._within_reach(self._source.keys(""))
        except TierError:
            return set(self._seen)
        self._seen |= {shard for shard in found if shard.rank not in self._stored or shard > self._stored[shard.rank]}
        return found

    def _within_reach(self, keys: Iterable[str]) -> set[Shard]:
        """Return the shards on the SSD that may still be taken."""
        counts: Counter[int] = Counter()
        within = set()
        for shard in sorted((shard for shard in map(shards.parse, keys) if shard is not None), reverse=True):
            counts[shard.rank] += 1
            if counts[shard.rank] <= self._newest:
                within.add(shard)
        return within
