"""A node on which a program writes its own snapshots: a real launcher, and the agent's own sealing and restoring."""

import os
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from reliability.agent import program_restoring, program_watch
from reliability.agent.jobrecord import JobRecord
from reliability.agent.payloads import RankPlace
from reliability.agent.program_folder import ProgramFolder
from reliability.agent.program_part import environment
from reliability.agent.program_watch import ProgramWatch
from reliability.domain.program_folders import FolderRule
from reliability.tiers.directory import DirectoryTier
from reliability.tiers.shards import Shard
from tests.trainer.node import Node, wait_until, write_whole

JOB = "j"


class ProgramNode:
    """One node: `begin` starts an attempt as an order would, `sealed` is the second process, `restore` the recovery."""

    def __init__(
        self, node: Node, folder: Path, rule: FolderRule, monkeypatch: pytest.MonkeyPatch, *, ranks: int = 1
    ) -> None:
        self.node = node
        self.rule = rule
        self.ranks = list(range(ranks))
        self.said: list[dict[str, Any]] = []
        monkeypatch.setattr(program_watch, "say", lambda kind, _job, body: self.said.append({"kind": kind, **body}))
        monkeypatch.setattr(program_watch, "SELDOM_S", 0.2)
        (folder / "ssd").mkdir()
        (folder / "jobs").mkdir()
        (folder / "jobs" / JOB).symlink_to(node.root)
        self.folder = ProgramFolder.of(folder / "ssd", JOB)
        self.ssd = DirectoryTier(folder / "ssd" / JOB, owner="n", private=True)
        self.watch = ProgramWatch(ssd_dir=folder / "ssd", memory_dir=folder / "jobs", ssd=self.ssd, job=JOB)
        self.record = JobRecord(job=JOB, snapshot_folder=rule.as_dict())
        self.epoch = 0
        self.pids: dict[str, int] = {}

    def begin(self, program: Sequence[str], *, every: int, restore: Shard | None = None, **env: str) -> None:
        """Start the next attempt."""
        self.epoch += 1
        snapshot = (restore.epoch, restore.step) if restore else None
        found = program_restoring.begin(
            self.folder, self.rule, epoch=self.epoch, job_key="k", snapshot=snapshot, ranks=self.ranks
        )
        self.record.begin(self.epoch, self.ranks, snapshot)
        self.record.ended_well = []
        plan = {"version": self.epoch, "plan": [{"from_step": 0, "every_steps": every}]}
        write_whole(self.node.root / "ctl/period.json", plan)
        shared = {
            "STEPKEEPER_DIR": str(self.node.root),
            "STEPKEEPER_JOB": JOB,
            "STEPKEEPER_EPOCH": str(self.epoch),
            "WORLD_SIZE": str(len(self.ranks)),
            "LOCAL_WORLD_SIZE": str(len(self.ranks)),
            **env,
        }
        places = [RankPlace(rank=rank, local_rank=rank) for rank in self.ranks]
        told = [
            environment(str(self.folder.out), self.folder.place(self.rule, p.rank), found, self.rule.marker)
            for p in places
        ]
        self.node.order(
            self.epoch,
            program,
            [{**shared, "LOCAL_RANK": str(rank), **told[rank]} for rank in self.ranks],
            mode="plain",
        )
        self.pids = self.node.pids(self.epoch)

    def sealed(self, step: int = 1, limit_s: float = 60.0) -> Shard:
        """Seal until a step of this attempt is at least `step`; return the first rank's shard."""

        def look() -> Shard | None:
            made = self.watch.look(self.record)
            return made[0] if made and made[0].step >= step else None

        try:
            found = wait_until(look, f"step {step} sealed", limit_s)
        except AssertionError as error:
            raise AssertionError(f"{error}; {self.node.said()} {self.said} {self.logs()[-1500:]}") from None
        return Shard(found.epoch, found.step, found.rank)

    def kill(self) -> None:
        """Kill the ranks with -9."""
        for rank, pid in self.pids.items():
            os.kill(pid, signal.SIGKILL)
            self.node.exit_of(self.epoch, int(rank))
            self.record.exits_reported.append(int(rank))

    def restore(self, shard: Shard) -> None:
        """Make a folder of a step on the SSD, as the order of a recovery does."""
        at = (shard.epoch, shard.step)
        program_restoring.bring(self.folder, self.rule, self.ssd, snapshot=at, ranks=self.ranks, all_ranks=())

    def logs(self) -> str:
        return "".join(path.read_text() for path in sorted((self.node.root / "log").glob("*.log")))
