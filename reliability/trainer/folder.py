"""Where does what lie in the job's folder on the node, and how is a small file replaced whole?"""

import json
import os
import re
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .errors import CorruptSnapshot

_SHARD = re.compile(r"e(\d+)-s(\d+)-r(\d+)")


@dataclass(frozen=True, order=True)
class Shard:
    """One rank's part of a snapshot. Sorted by epoch, then step: the order of history, not of time."""

    epoch: int
    step: int
    rank: int

    @property
    def stem(self) -> str:
        """The name of its files without the ending."""
        return f"e{self.epoch}-s{self.step}-r{self.rank}"

    @classmethod
    def of(cls, path: Path) -> "Shard | None":
        """Return the shard a file belongs to, by its name; None for any other file."""
        found = _SHARD.fullmatch(path.name.split(".", 1)[0])
        return cls(*(int(number) for number in found.groups())) if found else None


@dataclass(frozen=True)
class JobFolder:
    """The folder that agent, launcher and ranks share. It outlives the container and not the host."""

    root: Path

    @property
    def ctl(self) -> Path:
        """What agent and launcher tell each other."""
        return self.root / "ctl"

    @property
    def memory(self) -> Path:
        """The memory tier: shards and their commit records."""
        return self.root / "mem"

    @property
    def log(self) -> Path:
        """What the ranks print."""
        return self.root / "log"

    @property
    def run(self) -> Path:
        """The agent's socket and the progress records."""
        return self.root / "run"

    @property
    def period(self) -> Path:
        """The plan that says when a snapshot is due."""
        return self.ctl / "period.json"

    @property
    def agent_socket(self) -> Path:
        """Where hints go."""
        return self.run / "agent.sock"

    def progress(self, rank: int) -> Path:
        """The progress record of a rank."""
        return self.run / f"progress-{rank}"

    def make(self) -> None:
        """Make the parts that are missing."""
        for part in (self.ctl, self.memory, self.log, self.run):
            part.mkdir(parents=True, exist_ok=True)


@dataclass(frozen=True, kw_only=True)
class CommitRecord:
    """What makes a shard exist; the node's second process writes it once it has read all of the shard.

    `taken_at` is the Unix time at which the save began; training stood still for `stall_s` of the time since (0 and 0
    of a shard that nobody saw being saved, None where nobody could tell). `digest` covers the whole shard file, `sums`
    are those of `sums.py` for each chunk.
    """

    job: str
    epoch: int
    step: int
    rank: int
    size_bytes: int
    digest: str
    taken_at: float
    stall_s: float | None
    format: str
    sums: list[str]

    @classmethod
    def read(cls, path: Path) -> "CommitRecord":
        """Return the record in a file. Raises CorruptSnapshot, which names the field."""
        try:
            raw = json.loads(path.read_bytes())
        except (OSError, ValueError) as error:
            raise CorruptSnapshot(f"the commit record {path} cannot be read: {error}") from error
        if not isinstance(raw, dict):
            raise CorruptSnapshot(f"the commit record {path} is not an object")
        if raw.pop("check", None) != check_of(raw):
            raise CorruptSnapshot(f"the commit record {path} is damaged")
        for name, kind in _RECORD_FIELDS.items():
            if not isinstance(raw.get(name), kind) or isinstance(raw.get(name), bool):
                raise CorruptSnapshot(f"the commit record {path} has a wrong field {name}: {raw.get(name)!r}")
        if Shard.of(path) != Shard(raw["epoch"], raw["step"], raw["rank"]):
            raise CorruptSnapshot(f"the commit record {path} is that of another shard")
        return cls(**{name: raw[name] for name in _RECORD_FIELDS})


_RECORD_FIELDS: dict[str, Any] = {
    "job": str,
    "epoch": int,
    "step": int,
    "rank": int,
    "size_bytes": int,
    "digest": str,
    "taken_at": (int, float),
    "stall_s": (int, float, type(None)),
    "format": str,
    "sums": list,
}


def check_of(record: dict[str, Any]) -> str:
    """Return what guards the fields of a record against a flipped bit: the CRC-32 of its canonical form."""
    return f"{zlib.crc32(json.dumps(record, sort_keys=True, separators=(',', ':')).encode()):08x}"


def write_json(path: Path, value: Any) -> None:
    """Replace a file whole: a reader sees the old or the new one. Raises OSError and leaves no part behind."""
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        part.write_text(json.dumps(value), encoding="utf-8")
        part.replace(path)
    except OSError:
        part.unlink(missing_ok=True)
        raise
