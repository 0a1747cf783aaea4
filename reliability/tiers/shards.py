"""How are the shards of a job named on each tier?"""

import re
from dataclasses import dataclass

_FLAT = re.compile(r"e(\d{1,10})-s(\d{1,15})-r(\d{1,8})")
_STORED = re.compile(r"e(\d{1,10})/s(\d{1,15})-r(\d{1,8})")


@dataclass(frozen=True, order=True)
class Shard:
    """One rank's part of the snapshot that `epoch` took after `step`. Sorts oldest first within a lineage."""

    epoch: int
    step: int
    rank: int

    @property
    def flat_key(self) -> str:
        """Key on the node's own tiers."""
        return f"e{self.epoch}-s{self.step}-r{self.rank}"

    @property
    def stored_key(self) -> str:
        """Key on the storage tier."""
        return f"e{self.epoch}/s{self.step}-r{self.rank}"


def parse(key: str) -> Shard | None:
    """Return the shard a key of either form names, or None for a foreign file."""
    match = _FLAT.fullmatch(key) or _STORED.fullmatch(key)
    return Shard(*map(int, match.groups())) if match else None
