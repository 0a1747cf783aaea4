"""How does a Lightning `Trainer` take part?

    snapshots = SnapshotCallback()
    trainer = Trainer(..., callbacks=[snapshots], enable_checkpointing=False)
    trainer.fit(model, data, ckpt_path=snapshots.resume_from)

Lightning writes and reads its own checkpoint; this callback has it saved when the plan of the job says so, adds what
Lightning leaves out of it (the random generators), and tells the node of every step.
"""

import contextlib
import random
from typing import Any

import torch
from lightning.pytorch import Callback

from .steps import VALIDATION_LIMIT_S, Steps
from .together import together

FILE = "lightning.ckpt"


class SnapshotCallback(Callback):  # type: ignore[misc]
    """Saves when a snapshot is due, each a folder with one checkpoint of Lightning in it, and announces validations."""

    def __init__(self, steps: Steps | None = None, *, validation_limit_s: float = VALIDATION_LIMIT_S) -> None:
        """`validation_limit_s`: seconds that a validation may take before it counts as a hang."""
        self.steps = steps or Steps()
        self._validation_limit_s = validation_limit_s
        self._phase = contextlib.ExitStack()
        self._random: dict[str, Any] | None = None
        self._saved = self.steps.start

    @property
    def resume_from(self) -> str | None:
        """What `Trainer.fit` takes as `ckpt_path`; None for a start from nothing."""
        return str(self.steps.restored / FILE) if self.steps.restored else None

    def on_train_batch_end(self, trainer: Any, module: Any, outputs: Any, *_more: Any) -> None:
        """After an optimizer step: tell of it, and save when it is due. Every rank takes part in the save."""
        step = int(trainer.global_step)
        loss = outputs.get("loss") if isinstance(outputs, dict) else outputs
        self.steps.report(step, loss=loss)
        if step > self._saved and self.steps.due(step):  # not each batch of a step that accumulates
            self._saved = step
            self._save(trainer, step)
            self.steps.run.resumed()

    def _save(self, trainer: Any, step: int) -> None:
        """Save with all ranks. Training goes on, on all of them, where the disk of one does not take it."""
        first = trainer.local_rank == 0
        try:
            with self.steps.saving():
                together(lambda: self.steps.gathering(step, own=first))
                together(lambda: self._write(trainer, step))
                together(lambda: self.steps.seal(step) if first else None)
        except OSError as error:
            self.steps.failed(step, error)

    def _write(self, trainer: Any, step: int) -> None:
        """Write the checkpoint. Its last act is to wait for all ranks, which a rank that cannot write does too."""
        try:
            trainer.save_checkpoint(self.steps.gathering(step, own=False) / FILE)
        except OSError:
            trainer.strategy.barrier()
            raise

    def on_validation_start(self, *_about: Any) -> None:
        """A validation may take longer than a step."""
        self._phase.close()
        self._phase.enter_context(self.steps.run.phase("validation", limit_s=self._validation_limit_s))

    def on_validation_end(self, *_about: Any) -> None:
        """Training goes on."""
        self._phase.close()

    def state_dict(self) -> dict[str, Any]:
        """Return the state of the random generators: without it a resumed run is another one."""
        return {
            "python": random.getstate(),
            "torch": torch.get_rng_state(),
            "cuda": torch.cuda.get_rng_state_all() if torch.cuda.is_available() else [],
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Keep the state of the random generators until training goes on."""
        self._random = state_dict

    def on_train_batch_start(self, *_about: Any) -> None:
        """Before the first batch after a resume: whatever was drawn while starting does not count."""
        found, self._random = self._random, None
        if found is not None:
            random.setstate(found["python"])
            torch.set_rng_state(found["torch"])
            if found["cuda"]:
                torch.cuda.set_rng_state_all(found["cuda"])
