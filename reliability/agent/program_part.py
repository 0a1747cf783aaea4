"""What do orders do to the snapshot folder of a job's program on this node?"""

import logging
import threading
from collections.abc import Callable, Mapping
from pathlib import Path

from reliability.agent import program_restoring
from reliability.agent.clock import steady
from reliability.agent.jobrecord import JobRecord
from reliability.agent.payloads import ContainerPlan, ProgramRestore, StartPlan
from reliability.agent.program_folder import Attempt, ProgramFolder
from reliability.domain import program_folders
from reliability.tiers.directory import DirectoryTier

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

    def bring(self, wanted: ProgramRestore) -> None:
        """Make a folder again of what a restore brought to the SSD. Raises TierError."""
        program_restoring.bring(
            self.folder,
            wanted.rule,
            self.tier,
            snapshot=wanted.snapshot,
            ranks=wanted.ranks,
            all_ranks=wanted.all_ranks,
        )

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
    found = {"STEPKEEPER_SNAPSHOT_DIR": f"{inside}/{place}", "STEPKEEPER_SNAPSHOT_MARKER": marker}
    if attempt.step is not None:
        found["STEPKEEPER_RESTORE_DIR"] = f"{inside}/{place}/{attempt.restored[place]}"
        found["STEPKEEPER_RESTORE_STEP"] = str(attempt.step)
    return found
