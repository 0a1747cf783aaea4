"""How does a Hugging Face `Trainer` take part?

    snapshots = SnapshotCallback()
    args = TrainingArguments(output_dir=snapshots.output_dir("out"), save_strategy="no", ...)
    trainer = Trainer(..., args=args, callbacks=[snapshots])
    trainer.train(resume_from_checkpoint=snapshots.resume_from)

The Trainer writes and reads its own checkpoints; this callback has it save when the plan of the job says so, marks
each as whole, and tells the node of every step.
"""

import contextlib
from typing import Any

import torch
from transformers import TrainerCallback

from .steps import VALIDATION_LIMIT_S, Steps


class SnapshotCallback(TrainerCallback):  # type: ignore[misc]
    """Saves when a snapshot is due, says when it is whole, and announces evaluations and saves."""

    def __init__(self, steps: Steps | None = None, *, validation_limit_s: float = VALIDATION_LIMIT_S) -> None:
        """`validation_limit_s`: seconds that an evaluation may take before it counts as a hang."""
        self.steps = steps or Steps()
        self._validation_limit_s = validation_limit_s
        self._phase = contextlib.ExitStack()

    @property
    def resume_from(self) -> str | None:
        """What `Trainer.train` takes as `resume_from_checkpoint`; None for a start from nothing."""
        return str(self.steps.restored) if self.steps.restored else None

    def output_dir(self, otherwise: str) -> str:
        """Return where the Trainer has to write; `otherwise` outside a guarded job."""
        return str(self.steps.folder or otherwise)

    def on_step_end(self, args: Any, state: Any, control: Any, **_more: Any) -> Any:
        """After an optimizer step: have a due checkpoint saved. The step counts once that was asked for."""
        logged = state.log_history[-1].get("loss") if state.log_history else None
        self.steps.report(state.global_step, loss=logged)
        if self.steps.due(state.global_step):
            control.should_save = True
        self._announce(control)
        return control

    def on_epoch_end(self, args: Any, state: Any, control: Any, **_more: Any) -> Any:
        """After a pass over the data the Trainer may evaluate too."""
        self._announce(control)
        return control

    def on_evaluate(self, args: Any, state: Any, control: Any, **_more: Any) -> Any:
        """After an evaluation; a checkpoint may follow it."""
        self._phase.close()
        if control.should_save:
            self._phase.enter_context(self.steps.saving())
        return control

    def _announce(self, control: Any) -> None:
        """What the Trainer does before it goes on may take longer than a step."""
        self._phase.close()
        if control.should_evaluate:
            self._phase.enter_context(self.steps.run.phase("validation", limit_s=self._validation_limit_s))
        elif control.should_save:
            self._phase.enter_context(self.steps.saving())

    def on_save(self, args: Any, state: Any, control: Any, **_more: Any) -> Any:
        """After a checkpoint: it is whole once all ranks of this node have written their part of it."""
        if self.steps.folder is not None and self._is_last(args):
            try:
                self.steps.mark(self.steps.folder / f"checkpoint-{state.global_step}")
            except OSError as error:
                self.steps.failed(state.global_step, error)
        self._phase.close()
        self.steps.run.resumed()
        return control

    def _is_last(self, args: Any) -> bool:
        """Wait for the other ranks; return whether this one is to say that the checkpoint is whole."""
        if args.world_size > 1:
            torch.distributed.barrier()
        return bool(args.local_process_index == 0)
