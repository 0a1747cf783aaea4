"""Two ranks that save by torch.distributed.checkpoint; the first save fails on rank 0, in the way that is named."""

import errno
import sys
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from stepkeeper.integrations.distributed_checkpoint import Checkpoints, Writer
from stepkeeper.integrations.steps import Steps


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
    main(Path(sys.argv[1]), sys.argv[2])
