"""Which of a neighbour's shards lie in this node's memory too? A child of the agent that fetches the newest of them.

It asks the neighbour again and again what is newest, takes what it lacks, and lets go of what two newer steps have
taken the place of, and of ranks that no order names any more. A shard counts through its commit record, which is
written last; whatever kills this process leaves nothing that looks whole. Every copy made or let go, and every trouble,
is one JSON line on standard output.
"""

import json
import os
import time
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from reliability.agent.lane import say, where_is
from reliability.agent.peer_store import Asked, Peer, PeerShard, newest
from reliability.agent.probes import request
from reliability.domain.snapshots import Tier
from reliability.errors import CopyMissing, DigestMismatch, ReliabilityError, TierFull, TierUnreachable
from reliability.tiers import opening, shards
from reliability.tiers.copying import PART_SUFFIX
from reliability.tiers.directory import DirectoryTier
from reliability.tiers.pacing import Pace
from reliability.tiers.shards import Shard

LOOK_S = 0.25
LONGEST_PAUSE_S = 5.0
LIST_LIMIT_S = 10.0
REPEAT_PROBLEM_S = 30.0
STEPS_KEPT = 2
LEAST_FREE = 0.1
"""This part of the memory tier's room is left to others."""
OWNER = "partner"
"""With the neighbour's name: another neighbour's shard may be coming into the same folder."""


class Keeper:
    """Keeps the newest shards of some ranks of one job.

    `wanted`: job, epoch, peer, folder, bytes_per_s, limit_s, and kept_ranks: all whose shards may lie in the folder;
    None for any. A shard has the rest of `limit_s` to come, as long as its pieces go on coming.
    """

    def __init__(self, wanted: Mapping[str, Any]) -> None:
        peer = wanted["peer"]
        self._job, self._epoch = str(wanted["job"]), int(wanted["epoch"])
        self._peer = Peer(
            node=str(peer["node"]), address=str(peer["address"]), port=int(peer["port"]), token=str(peer["token"])
        )
        self._ranks = {int(rank) for rank in peer["ranks"]}
        self._pace = Pace(float(wanted["bytes_per_s"]))
        self._store = DirectoryTier(Path(wanted["folder"]), owner=f"{OWNER}-{self._peer.node}", private=True)
        kept = wanted.get("kept_ranks")
        self._kept_ranks = None if kept is None else self._ranks | {int(rank) for rank in kept}
        self._problem = ("", 0.0)
        self._damaged: set[tuple[Shard, str]] = set()
        self._end = time.monotonic() + float(wanted["limit_s"])

    def run(self) -> None:
        """Keep them until the time is over."""
        self.begin()
        pause_s = LOOK_S
        while time.monotonic() < self._end:
            pause_s = LOOK_S if self.look() else min(2 * pause_s, LONGEST_PAUSE_S)
            time.sleep(pause_s)

    def begin(self) -> None:
        """Sweep what an earlier life left unfinished, and tell what is there."""
        opening.make_private(self._store.root.parent)
        opening.make_private(self._store.root)
        self._store.sweep()
        if self._kept_ranks is not None:
            self._let_go_of_others(self._kept_ranks)
        for shard in self._held():
            self._tell(shard)

    def _let_go_of_others(self, kept: Collection[int]) -> None:
        """Remove what lies there, whole or begun, of ranks that no pair names any more."""
        for shard in self._all_held():
            if shard.rank not in kept:
                self._remove(shard)
        for part in self._store.root.glob(f"*{PART_SUFFIX}"):
            begun = shards.parse(part.name.partition(".")[0])
            if begun is not None and begun.rank not in kept:
                opening.remove(part)

    def look(self) -> bool:
        """Take what is newer than what is kept; return whether the neighbour answered and all went well."""
        try:
            listed = self._listed()
            self._damaged &= set(listed)
            for shard, digest in listed:
                if self._is_news(shard) and (shard, digest) not in self._damaged:
                    self._take_if_it_stays(shard, digest)
        except ReliabilityError as error:
            self._trouble(error)
            return False
        self._problem = ("", 0.0)
        return True

    def _listed(self) -> list[tuple[Shard, str]]:
        listed = newest(self._peer, self._asked("newest", "", LIST_LIMIT_S))
        return [(shard, digest) for shard, digest in listed if shard.rank in self._ranks]

    def _take_if_it_stays(self, shard: Shard, digest: str) -> None:
        """Take a shard. One that is listed no more was written over while it was read: there is a newer one.

        One that still is and cannot be read whole is damaged there: that is told once, and the others' go on.
        """
        try:
            if not digest:
                raise CopyMissing(f"The record of {shard.flat_key} in the memory of {self._peer.node} cannot be read.")
            self._take(shard, digest)
        except (CopyMissing, DigestMismatch, TierUnreachable) as error:
            if (shard, digest) not in self._listed():
                return
            if isinstance(error, TierUnreachable):
                raise
            self._damaged.add((shard, digest))
            say("snapshot_problem", self._job, {**where_is(shard), "tier": Tier.PARTNER, **error.detail})

    def _is_news(self, shard: Shard) -> bool:
        mine = [each for each in self._held() if each.rank == shard.rank]
        return not mine or shard > max(mine)

    def _take(self, shard: Shard, digest: str) -> None:
        asked = self._asked(shard.flat_key, digest, max(self._end - time.monotonic(), 0.1))
        peer = PeerShard(self._peer, asked, pace=lambda count: self._pace.take(count))
        with peer.opened() as chunks:
            self._check_room(shard, int(peer.record["size_bytes"]))
            self._store.take_in(chunks, shard.flat_key, digest=digest, record=peer.record)
        self._tell(shard)
        self._let_go(shard.rank)

    def _check_room(self, shard: Shard, size: int) -> None:
        """Raise TierFull, with the figures, when this copy would leave too little memory to others."""
        space = os.statvfs(self._store.root)
        free, total = space.f_bavail * space.f_frsize, space.f_blocks * space.f_frsize
        if free - size < LEAST_FREE * total:
            raise TierFull(
                f"No room in memory for the copy of {shard.flat_key} of node {self._peer.node}: it takes {size} bytes, "
                f"{free} of {total} are free, and {int(LEAST_FREE * total)} stay free.",
                hint="Make the memory tier larger, or turn partner copies off for this job.",
            )

    def _let_go(self, rank: int) -> None:
        for shard in sorted(each for each in self._held() if each.rank == rank)[:-STEPS_KEPT]:
            self._remove(shard)

    def _remove(self, shard: Shard) -> None:
        self._store.delete(shard.flat_key)
        say("snapshot_removed", self._job, {**where_is(shard), "tier": Tier.PARTNER})

    def _all_held(self) -> list[Shard]:
        return [shard for shard in map(shards.parse, self._store.keys("")) if shard]

    def _held(self) -> list[Shard]:
        return [shard for shard in self._all_held() if shard.rank in self._ranks]

    def _tell(self, shard: Shard) -> None:
        record = self._store.record(shard.flat_key)
        copy = {"path": self._store.place(shard.flat_key), "size_bytes": record["size_bytes"]}
        body = {**where_is(shard), "tier": Tier.PARTNER, **copy, "digest": record["digest"]}
        say("snapshot_copy", self._job, {**body, "stall_s": None, "drain_s": None})

    def _trouble(self, error: ReliabilityError) -> None:
        """Tell a trouble when it begins and then now and again while it lasts."""
        code, since = self._problem
        if error.code == code and time.monotonic() - since < REPEAT_PROBLEM_S:
            return
        where = {"snapshot_epoch": None, "step": None, "rank": min(self._ranks)}
        say("snapshot_problem", self._job, {**where, "tier": Tier.PARTNER, **error.detail})
        self._problem = (error.code, time.monotonic())

    def _asked(self, key: str, digest: str, limit_s: float) -> Asked:
        return Asked(job=self._job, epoch=self._epoch, tier="memory", key=key, digest=digest, limit_s=limit_s)


def main() -> None:
    """Keep what the order names, until its time is over or the agent is gone."""
    _mode, wanted = request.take(("keep",))
    try:
        Keeper(wanted).run()
    except (OSError, ReliabilityError) as error:
        print(json.dumps({"error": str(error)}), flush=True)  # noqa: T201


if __name__ == "__main__":
    main()
