"""What do orders do to the snapshot folder of a job's program on this node?"""

import logging
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from reliability.agent import program_restoring
from reliability.agent.clock import steady
from reliability.agent.jobrecord import JobRecord
from reliability.agent.lane import where_is
from reliability.agent.payloads import ContainerPlan, ProgramRestore, StartPlan
from reliability.agent.program_folder import Attempt, ProgramFolder
from reliability.domain import program_folders
from reliability.domain.snapshots import Tier
from reliability.errors import TierConflict
from reliability.tiers.directory import DirectoryTier
from reliability.tiers.shards import Shard

DRAIN_LOOK_S = 0.05

log = logging.getLogger("stepkeeper.agent")

Environment = Callable[[int], Mapping[str, str]]


class ProgramPart:
    """The snapshot folder of one job's program; nothing of it is touched for a job that has none."""

    def __init__(self, ssd_dir: Path, job: str) -> None:
        self.folder = ProgramFolder.of(ssd_dir, job)
        self.tier = DirectoryTier(ssd_dir / job, owner="restore", private=True)
        """Where a restore brings shards that become files: the SSD, for they may be larger than memory."""

    def make(self, plan: ContainerPlan) -> None:
        """Have the folder that the container is to see. Raises TierFull, TierUnreachable."""
        if plan.snapshot_folder is not None:
            self.folder.make()

    def claim(self, wanted: ProgramRestore) -> list[dict[str, Any]]:
        """Write down on the SSD whose place it is, before anything is brought there: else it would be moved aside as
        another job's. What another job of the name left there is; return the reports of that. Raises TierError."""
        if not wanted.job_key:
            return []
        try:
            self.tier.claim(wanted.job_key, ranks=wanted.world_size)
        except TierConflict as error:
            aside = self.tier.set_aside()
            self.tier.claim(wanted.job_key, ranks=wanted.world_size)
            hint = "Remove it when it is not needed."
            return [{"tier": Tier.SSD, **type(error)(f"{error.message} It was moved to {aside}.", hint=hint).detail}]
        return []

    def bring(self, wanted: ProgramRestore) -> list[dict[str, Any]]:
        """Make a folder again of what a restore brought to the SSD; return the reports of the copies that stay there.

        Shards of other nodes' ranks do not: nobody would ever remove them. Raises TierError.
        """
        program_restoring.bring(
            self.folder,
            wanted.rule,
            self.tier,
            snapshot=wanted.snapshot,
            ranks=wanted.ranks,
            all_ranks=wanted.all_ranks,
        )
        for rank in set(wanted.all_ranks) - set(wanted.ranks):
            self.tier.delete(Shard(*wanted.snapshot, rank).flat_key)
        return [self._report_of(Shard(*wanted.snapshot, rank)) for rank in wanted.ranks]

    def _report_of(self, shard: Shard) -> dict[str, Any]:
        record = self.tier.record(shard.flat_key)
        copy = {"tier": Tier.SSD, "path": self.tier.place(shard.flat_key), "restored": True}
        known = {"size_bytes": record["size_bytes"], "digest": record["digest"], "stall_s": None, "drain_s": None}
        return {**where_is(shard), **copy, **known}

    def leave(self) -> None:
        """The job has left this node: nothing stays that only a beginning here would have needed."""
        program_restoring.leave(self.folder)

    def drain(self, record: JobRecord, nudge: Callable[[], None], limit_s: float) -> bool:
        """Wait until what the program left whole is sealed; return whether it is."""
        rule, end, pause = program_folders.rule_of(record.snapshot_folder), steady() + limit_s, threading.Event()
        while rule is not None and self.folder.unsealed(rule, record.ranks, record.ended_well):
            if steady() > end:
                log.warning("last step of a program not sealed in time: job=%s limit_s=%s", record.job, limit_s)
                return False
            nudge()
            pause.wait(DRAIN_LOOK_S)
        return True

    def begin(self, plan: StartPlan, epoch: int, *, inside: str) -> Environment:
        """Have the program find the step it begins from, and nothing newer; return what each rank is told of it.

        `inside` is where a rank sees the folders. Raises TierError.
        """
        rule = program_folders.rule_of(plan.container.snapshot_folder)
        if rule is None:
            return lambda _rank: {}
        attempt = program_restoring.begin(
            self.folder,
            rule,
            epoch=epoch,
            job_key=plan.job_key,
            snapshot=plan.restore,
            ranks=[place.rank for place in plan.ranks],
        )
        return lambda rank: environment(inside, self.folder.place(rule, rank), attempt, rule.marker)


def environment(inside: str, place: str, attempt: Attempt, marker: str) -> dict[str, str]:
    """Return the environment of a rank: where it writes its steps, below `inside`, and what it begins from."""
    found = {"STEPKEEPER_SNAPSHOT_DIR": f"{inside}/{place}", "STEPKEEPER_SNAPSHOT_MARKER": marker}
    if attempt.step is not None:
        found["STEPKEEPER_RESTORE_DIR"] = f"{inside}/{place}/{attempt.restored[place]}"
        found["STEPKEEPER_RESTORE_STEP"] = str(attempt.step)
    return found
