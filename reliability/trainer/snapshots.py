"""How does a rank's state get into the memory tier whole or not at all, which shards are kept, and how is one read?

A shard file is written under another name and renamed; its commit record comes last, and only a shard with a
commit record exists. Memory does not outlive the host anyway, so nothing is flushed to a disk here.
"""

import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from . import codec
from .errors import ConfigurationError, CorruptSnapshot
from .folder import CommitRecord, JobFolder, Shard, write_json

KEPT = 3


class MemoryTier:
    """The shards of one rank in the job's folder."""

    def __init__(self, folder: JobFolder, *, job: str, epoch: int, rank: int, restored: Shard | None = None) -> None:
        self._folder = folder
        self._job = job
        self._epoch = epoch
        self._rank = rank
        self._restored = restored
        self._tail_s = 0.0

    def save(self, step: int, state: Any, *, began: float | None = None) -> CommitRecord:
        """Write and commit the state after `step`, then let go of older shards.

        `began`: monotonic time at which training stopped for it, before the state was gathered. The record's stall_s
        counts from there; what comes after the record is written is known only then, so it is the last save's.
        Raises OSError or UnsupportedState; then nothing of it is left and the older shards are untouched.
        """
        began = time.monotonic() if began is None else began
        taken_at = time.time() - (time.monotonic() - began)
        shard = Shard(self._epoch, step, self._rank)
        final = self._path(shard, ".snap")
        part = self._path(shard, ".snap.part")
        try:
            size, digest = codec.write(part, state)
            part.replace(final)
            record = CommitRecord(
                job=self._job,
                epoch=self._epoch,
                step=step,
                rank=self._rank,
                size_bytes=size,
                digest=digest,
                taken_at=taken_at,
                stall_s=(known := time.monotonic()) - began + self._tail_s,
                format=codec.FORMAT,
            )
            write_json(self._path(shard, ".json"), vars(record))
        except BaseException:
            part.unlink(missing_ok=True)
            final.unlink(missing_ok=True)
            raise
        self._retain()
        self._tail_s = time.monotonic() - known
        return record

    def sweep(self) -> None:
        """Remove what an earlier attempt of this rank left unfinished: nobody may ever read it."""
        for path in self._mine(self._folder.memory.glob(f"*-r{self._rank}.*")):
            unfinished = path.name.endswith(".part")
            uncommitted = path.suffix == ".snap" and not path.with_suffix(".json").exists()
            if unfinished or uncommitted:
                path.unlink(missing_ok=True)

    def committed(self) -> list[Shard]:
        """Return this rank's committed shards, oldest first by epoch and step."""
        shards = (Shard.of(path) for path in self._mine(self._folder.memory.glob(f"*-r{self._rank}.json")))
        return sorted(shard for shard in shards if shard is not None)

    def _retain(self) -> None:
        """Keep the newest shards of the history that goes on.

        A shard beyond the restored step, taken by an older attempt, belongs to a history that was given up: it
        must not push out one that can still be restored. By now a newer shard than the restored one exists.
        """
        shards = self.committed()
        live = [shard for shard in shards if self._in_lineage(shard)]
        for shard in set(shards) - set(live[-KEPT:]):
            self._path(shard, ".json").unlink(missing_ok=True)  # first: without it the shard no longer exists
            self._path(shard, ".snap").unlink(missing_ok=True)

    def _in_lineage(self, shard: Shard) -> bool:
        if shard.epoch >= self._epoch:
            return True
        return self._restored is not None and shard <= self._restored

    def _path(self, shard: Shard, ending: str) -> Path:
        return self._folder.memory / f"{shard.stem}{ending}"

    def _mine(self, paths: Iterable[Path]) -> list[Path]:
        """Leave out files of other ranks and of newer attempts."""
        found = ((Shard.of(path), path) for path in paths)
        return [path for shard, path in found if shard and shard.rank == self._rank and shard.epoch <= self._epoch]


def load(record_path: Path, *, rank: int) -> tuple[Shard, Any]:
    """Return (shard, state) of a committed shard, verified against its record.

    Raises CorruptSnapshot when anything differs, ConfigurationError when it is another rank's.
    """
    record = CommitRecord.read(record_path)
    if record.rank != rank:
        raise ConfigurationError(f"rank {rank} was told to restore {record_path}, the shard of rank {record.rank}")
    if record.format != codec.FORMAT:
        raise CorruptSnapshot(f"{record_path} has the format {record.format!r}, this client reads {codec.FORMAT!r}")
    try:
        state = codec.read(record_path.with_suffix(".snap"), digest=record.digest, size=record.size_bytes)
    except OSError as error:
        raise CorruptSnapshot(f"the shard of {record_path} cannot be read: {error}") from error
    return Shard(record.epoch, record.step, record.rank), state
