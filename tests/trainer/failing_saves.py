"""Two ranks that save by torch.distributed.checkpoint or as Lightning does; the first save fails on rank 0 as named."""

import errno
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
import torch.distributed as dist
from stepkeeper.integrations.distributed_checkpoint import Checkpoints, Writer
from stepkeeper.integrations.steps import Steps


class Trainer:
    """As much of Lightning's trainer as saves: rank 0 writes, and all wait at the end."""

    strategy = SimpleNamespace(barrier=dist.barrier)
    fails = False

    @property
    def local_rank(self) -> int:
        return dist.get_rank()

    def save_checkpoint(self, path: Path) -> None:
        if self.fails:
            raise OSError(errno.ENOSPC, "No space left on device")
        if dist.get_rank() == 0:
            path.write_text("all of it")
        dist.barrier()


def lightning(folder: Path) -> None:
    from stepkeeper.integrations.pytorch_lightning import SnapshotCallback  # takes seconds

    dist.init_process_group("gloo")
    steps = Steps({"STEPKEEPER_SNAPSHOT_DIR": str(folder)})
    steps.run.local_rank = dist.get_rank()
    callback, trainer = SnapshotCallback(steps), Trainer()
    for step in (1, 2):
        trainer.fails = step == 1 and dist.get_rank() == 0
        callback._save(trainer, step)
    sys.stdout.write("went on\n")
    dist.destroy_process_group()


def main(folder: Path, fails: str) -> None:
    dist.init_process_group("gloo")
    steps = Steps({"STEPKEEPER_SNAPSHOT_DIR": str(folder)})
    steps.run.local_rank = dist.get_rank()
    checkpoints = Checkpoints(steps)
    owner, name = (Writer, "write_data") if fails == "save" else (Steps, fails)
    real = getattr(owner, name)

    def full(*_given: Any, **_more: Any) -> Any:
        raise OSError(errno.ENOSPC, "No space left on device")

    for step in (1, 2):
        setattr(owner, name, full if step == 1 and dist.get_rank() == 0 else real)
        checkpoints.save(step, {"w": torch.ones(4), "rank": torch.full((2,), dist.get_rank())})
    sys.stdout.write("went on\n")
    dist.destroy_process_group()


if __name__ == "__main__":
    if sys.argv[2] == "lightning":
        lightning(Path(sys.argv[1]))
    else:
        main(Path(sys.argv[1]), sys.argv[2])
