"""How does `torch.distributed.checkpoint` take part?

    checkpoints = Checkpoints()
    start = checkpoints.load(state)          # finished steps, 0 without a snapshot; fills `state` in place
    for step in range(start + 1, steps + 1):
        ...
        checkpoints.step(step, state, loss=loss)

Each rank writes its own files into the step's folder. With several nodes the job says `snapshot_folder.of = "job"`:
every node then keeps its part, and gets all of them back.
"""

from typing import Any

import torch.distributed.checkpoint as dcp

from .steps import Steps
from .together import together


class Writer(dcp.FileSystemWriter):  # type: ignore[misc]
    """A StorageWriter that gathers one step in the snapshot folder; it counts once `Checkpoints` has sealed it."""

    def __init__(self, steps: Steps, step: int, **how: Any) -> None:
        super().__init__(steps.gathering(step, own=False), **how)


class Reader(dcp.FileSystemReader):  # type: ignore[misc]
    """A StorageReader of the step that this attempt begins from."""

    def __init__(self, steps: Steps, **how: Any) -> None:
        if steps.restored is None:
            raise FileNotFoundError("this attempt begins from nothing: there is no step to read")
        super().__init__(steps.restored, **how)


class Checkpoints:
    """Saves and loads a state by torch.distributed.checkpoint when the plan of the job says so."""

    def __init__(self, steps: Steps | None = None, **how: Any) -> None:
        """`how`: what a FileSystemWriter takes."""
        self.steps = steps or Steps()
        self._how = how

    def load(self, state: dict[str, Any]) -> int:
        """Fill a state in place from the step this attempt begins from; return the number of finished steps."""
        if self.steps.restored is not None:
            dcp.load(state, storage_reader=Reader(self.steps))
        return self.steps.start

    def step(self, step: int, state: dict[str, Any], *, loss: Any = None) -> None:
        """Tell that `step` steps are finished, and save when it is due. All ranks call it with the same step."""
        self.steps.report(step, loss=loss)
        if self.steps.due(step):
            self.save(step, state)

    def save(self, step: int, state: dict[str, Any]) -> None:
        """Save a state; it is whole for a node once every rank has written. Training goes on when one could not."""
        try:
            with self.steps.saving():
                self._save(step, state)
        except (OSError, dcp.CheckpointException) as error:  # of any rank, and told to all of them
            self.steps.failed(step, error)
        self.steps.run.resumed()

    def _save(self, step: int, state: dict[str, Any]) -> None:
        first = self.steps.run.local_rank == 0
        together(lambda: self.steps.gathering(step, own=first))
        dcp.save(state, storage_writer=Writer(self.steps, step, **self._how))
        together(lambda: self.steps.seal(step) if first else None)
