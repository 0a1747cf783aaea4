"""Who is compared: this project's two modes, and what others save with. Each saves, says when it is durable, loads."""
# ruff: noqa: PLC0415 - each peer is imported only when it is asked for

import contextlib
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import torch

from bench._snapshots.state import Training, named
from reliability import trainer
from reliability.trainer.reading import load

LIMIT_S = 120.0


class Contender:
    """One way to save. `begin` is what training waits for; `done` is asked between steps."""

    durable_itself = False

    def __init__(self, state: dict[str, Any], folder: Path) -> None:
        self.state = state
        self.folder = folder
        folder.mkdir(parents=True)
        self.open()

    def open(self) -> None:
        """Get ready."""

    def hook(self, training: Training) -> None:
        """Have the training step wait where this way needs it."""
        training.before_update = lambda: None

    def begin(self, number: int) -> bool:
        """Save; return whether the save was taken."""
        raise NotImplementedError

    def done(self, number: int) -> bool:
        """Return whether save `number` is written (not: forced to the disk)."""
        return True

    def sync(self, number: int) -> None:
        """Force to the disk what this way leaves in the page cache."""
        path = self.path(number)
        for file in [path] if path.is_file() else [each for each in path.rglob("*") if each.is_file()]:
            with file.open("rb") as opened:
                os.fsync(opened.fileno())

    def path(self, number: int) -> Path:
        """Return where save `number` lies."""
        return self.folder / f"save-{number}"

    def remove(self, number: int) -> None:
        """Make room."""
        path = self.path(number)
        shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)

    def load(self, number: int) -> None:
        """Bring save `number` from the disk into the live tensors."""
        raise NotImplementedError

    def close(self) -> None:
        """End."""


class Stepkeeper(Contender):
    """This project: the trainer's client and process 2 as they are. The mode is set by the subclass."""

    durable_itself = True
    mode = "sync"
    python = sys.executable

    def open(self) -> None:
        """Start process 2 and attach; what is reserved and touched here is not part of any save."""
        self.shm = Path("/dev/shm") / f"bench-{os.getpid()}-{self.mode}"  # noqa: S108
        self.root = self.shm / "memory" / "bench"
        for part in ("ctl", "mem", "run", "log"):
            (self.root / part).mkdir(parents=True)
        (self.root / "ctl" / "period.json").write_text('{"version":1,"plan":[{"from_step":0,"every_steps":1}]}')
        self.ssd, jobs = self.folder / "ssd", self.folder / "jobs"
        self.ssd.mkdir()
        jobs.mkdir()
        (jobs / "bench.json").write_text(json.dumps({"job": "bench", "epoch": 1, "started_epoch": 1, "ranks": [0]}))
        argv = [self.python, "-m", "reliability.agent.ssd_mover", "--node=n", f"--parent={os.getpid()}"]
        argv += [f"--jobs-dir={jobs}", f"--memory-dir={self.shm / 'memory'}", f"--ssd-dir={self.ssd}"]
        self.mover = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self._line = b""
        self.copies: dict[int, dict[str, Any]] = {}
        self.run = trainer.attach(
            {
                "STEPKEEPER_DIR": str(self.root),
                "STEPKEEPER_JOB": "bench",
                "STEPKEEPER_EPOCH": "1",
                "STEPKEEPER_SAVE_MODE": self.mode,
            }
        )
        self.run.register("all", get=lambda: self.state, set=lambda _state: None)
        self.run.restore()

    def hook(self, training: Training) -> None:
        """The lazy mode needs the step to say when the state changes."""
        training.before_update = self.run.before_update

    def begin(self, number: int) -> bool:
        """Save."""
        before = self.run.snapshots_taken
        self.run.step(number)
        return self.mode == "lazy" or self.run.snapshots_taken > before

    def done(self, number: int) -> bool:
        """Return whether process 2 has told the copy, which it does once it is durable."""
        self.listen()
        return number in self.copies

    def listen(self) -> None:
        """Read what process 2 has told."""
        assert self.mover.stdout is not None
        while select.select([self.mover.stdout], [], [], 0)[0]:
            said = os.read(self.mover.stdout.fileno(), 65536)
            if not said:
                raise RuntimeError("process 2 ended")
            *lines, self._line = (self._line + said).split(b"\n")
            for line in map(json.loads, lines):
                if line["kind"] != "snapshot_copy":
                    raise RuntimeError(f"process 2: {line}")
                self.copies[line["body"]["step"]] = line["body"]

    def path(self, number: int) -> Path:
        """Return where save `number` lies on the disk."""
        return self.ssd / "bench" / f"e1-s{number}-r0.snap"

    def remove(self, number: int) -> None:
        """Process 2 keeps the newest four by itself."""

    def load(self, number: int) -> None:
        """Restore from the SSD, straight into the live tensors."""
        load(self.path(number).with_suffix(".json"), rank=0, live={"all": self.state})

    def load_memory(self, number: int) -> None:
        """Restore from the slot."""
        record = self.root / "mem" / f"e1-s{number}-r0.json"
        load(record, rank=0, live={"all": self.state}, mapped=self.run._tier.address_of)

    def used_bytes(self) -> int:
        """Return what the slots and process 2 hold."""
        files = sum(path.stat().st_blocks * 512 for path in self.shm.rglob("*") if path.is_file())
        status = Path(f"/proc/{self.mover.pid}/status").read_text()
        anonymous = next(line for line in status.splitlines() if line.startswith("RssAnon"))
        return files + int(anonymous.split()[1]) * 1024

    def close(self) -> None:
        """End process 2."""
        self.run.close()
        self.mover.kill()
        self.mover.wait(10)
        shutil.rmtree(self.shm)


class StepkeeperLazy(Stepkeeper):
    """The copy runs beside forward and backward."""

    mode = "lazy"


class TorchSave(Contender):
    """torch.save of the whole state."""

    def begin(self, number: int) -> bool:
        """Save."""
        torch.save(self.state, self.path(number))
        return True

    def load(self, number: int) -> None:
        """Load and copy into the live tensors, as a program does that goes on training."""
        found = dict(named(torch.load(self.path(number), weights_only=False)))
        for name, tensor in named(self.state):
            tensor.copy_(found[name])


class Safetensors(Contender):
    """safetensors of all tensors; it keeps no tree."""

    def begin(self, number: int) -> bool:
        """Save."""
        from safetensors.torch import save_file

        save_file(dict(named(self.state)), self.path(number))
        return True

    def load(self, number: int) -> None:
        """Load and copy."""
        from safetensors.torch import load_file

        found = load_file(self.path(number))
        for name, tensor in named(self.state):
            tensor.copy_(found[name])


class Dcp(Contender):
    """torch.distributed.checkpoint, at once."""

    def begin(self, number: int) -> bool:
        """Save."""
        import torch.distributed.checkpoint as dcp

        dcp.save(self.state, checkpoint_id=self.path(number))
        return True

    def load(self, number: int) -> None:
        """Load in place."""
        import torch.distributed.checkpoint as dcp

        dcp.load(self.state, checkpoint_id=self.path(number))


class DcpAsync(Dcp):
    """The same beside training, with its staging memory kept from save to save, which is its best."""

    def open(self) -> None:
        """Make the stager."""
        from torch.distributed.checkpoint.staging import DefaultStager, StagingOptions

        self._stager = DefaultStager(StagingOptions(False, False, False, False))
        self._running: dict[int, Any] = {}

    def begin(self, number: int) -> bool:
        """Begin a save."""
        import torch.distributed.checkpoint as dcp

        begun = dcp.async_save(self.state, checkpoint_id=self.path(number), async_stager=self._stager)
        self._running[number] = getattr(begun, "upload_completion", begun)
        return True

    def done(self, number: int) -> bool:
        """Return whether it ended."""
        return bool(self._running[number].done())

    def close(self) -> None:
        """End the stager's threads."""
        self._stager.close()


class Dlrover(Contender):
    """DLRover's flash checkpoint: shared memory, and a saver of its own that persists."""

    def open(self) -> None:
        """Start its saver."""
        os.environ.setdefault("DLROVER_LOG_LEVEL", "ERROR")
        from dlrover.trainer.torch.flash_checkpoint.ddp import DdpCheckpointer, StorageType

        self._disk = StorageType.DISK
        self._checkpointer = DdpCheckpointer(str(self.folder))

    def begin(self, number: int) -> bool:
        """Save; while its saver reads it leaves saves out."""
        self._checkpointer.save_checkpoint(number, self.state, storage_type=self._disk)
        return bool(self._checkpointer._engine._cached_step == number)

    def done(self, number: int) -> bool:
        """Return whether its tracker file names this save."""
        with contextlib.suppress(OSError):
            return (self.folder / "dlrover_latest.txt").read_text().strip() == str(number)
        return False

    def path(self, number: int) -> Path:
        """Return its folder of a step."""
        return self.folder / str(number)

    def load(self, number: int) -> None:
        """Load from the disk and copy."""
        found = dict(named(torch.load(self.path(number) / "rank_0.pt", weights_only=False)))
        for name, tensor in named(self.state):
            tensor.copy_(found[name])

    def load_memory(self, _number: int) -> None:
        """Load from its shared memory and copy."""
        found = dict(named(self._checkpointer.load_checkpoint()))
        for name, tensor in named(self.state):
            tensor.copy_(found[name])

    def close(self) -> None:
        """Its saver and its shared memory outlive it otherwise."""
        saver = self._checkpointer._engine.saver_proc
        if saver is not None:
            os.kill(saver.pid, signal.SIGKILL)
        for path in Path("/dev/shm").glob("*ckpt_shm_0"):  # noqa: S108
            path.unlink(missing_ok=True)


def wait(contender: Contender, number: int) -> None:
    """Wait for a save to be written, with a limit."""
    end = time.monotonic() + LIMIT_S
    while not contender.done(number):
        if time.monotonic() > end:
            raise TimeoutError(f"{type(contender).__name__} did not finish save {number} in {LIMIT_S} s")
        time.sleep(0.002)


ALL: dict[str, type[Contender]] = {
    "ours sync": Stepkeeper,
    "ours lazy": StepkeeperLazy,
    "dlrover": Dlrover,
    "dcp async": DcpAsync,
    "dcp": Dcp,
    "torch.save": TorchSave,
    "safetensors": Safetensors,
}
BESIDE = frozenset({"dcp async", "dcp", "safetensors"})
"""Shown for comparison only, so that fewer samples of them are enough."""
