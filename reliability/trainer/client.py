"""What does a training program import?

    run = stepkeeper.attach()
    run.register("model", model)
    run.register("optimizer", optimizer)
    start = run.restore()
    for step in range(start + 1, steps + 1):
        ...
        run.step(step, loss=loss)

`step` is the number of finished steps. Outside a guarded run the same program runs unchanged: `attach` then gives
a `Run` that registers and does nothing else.
"""

import atexit
import contextlib
import math
import os
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn

from . import marks
from .environment import number
from .errors import ConfigurationError, CorruptSnapshot, describe
from .folder import JobFolder, Shard
from .hints import Hints
from .reading import load
from .run import Run
from .schedule import Schedule
from .snapshots import MemoryTier, saving_from
from .telling import SNAPSHOT_LIMIT_S, Teller, check_phase

RESTORE_FAILED = 86
LAST_SAVE_LIMIT_S = 60.0
MODES = ("auto", "sync", "lazy")


class GuardedRun(Run):
    """One rank of a guarded run: it restores, reports progress, and takes snapshots into the job's folder."""

    guarded = True

    def __init__(self, environment: Mapping[str, str]) -> None:
        super().__init__(environment)
        self.restored_step = 0
        self.snapshots_taken = 0
        self.problem = ""  # why the last save failed; empty when it worked
        self._folder = JobFolder(Path(environment["STEPKEEPER_DIR"]))
        self._restore_from = environment.get("STEPKEEPER_RESTORE", "")
        self._saves_itself = bool(environment.get("STEPKEEPER_SNAPSHOT_DIR"))
        self._begins_at = number(environment, "STEPKEEPER_RESTORE_STEP", 0)
        self._hints = Hints(self._folder.agent_socket)
        self._schedule = Schedule(self._folder.period)
        self._first_step_told = False
        self._mode = environment.get("STEPKEEPER_SAVE_MODE") or "auto"
        self._updates = 0
        self._told_by_program = self._mode == "lazy"
        self._check()
        self._telling = Teller(self._folder.progress(self.rank), epoch=self.epoch, said=self._say)
        try:
            saving = saving_from(environment)
        except ValueError as error:
            raise ConfigurationError(str(error)) from error
        self._tier = MemoryTier(
            self._folder, job=self.job, epoch=self.epoch, rank=self.rank, saving=saving, told=self._taken
        )
        self._pid = os.getpid()
        atexit.register(self.close)

    def _check(self) -> None:
        if not self.job or self.epoch < 1:
            raise ConfigurationError("STEPKEEPER_DIR is set, but STEPKEEPER_JOB or STEPKEEPER_EPOCH is not")
        if self._mode not in MODES:
            raise ConfigurationError(f"STEPKEEPER_SAVE_MODE must be one of {', '.join(MODES)}, not {self._mode!r}")
        if not self._folder.root.is_dir():
            raise ConfigurationError(
                f"STEPKEEPER_DIR names {self._folder.root}, which is not a folder",
                hint="Mount the job's folder there, or unset STEPKEEPER_DIR to run unguarded.",
            )
        try:
            self._folder.make()
        except OSError as error:
            self._say(f"the job's folder is not usable, training goes on without snapshots: {error}")

    def phase(self, name: str, *, limit_s: float) -> contextlib.AbstractContextManager[None]:
        """Announce what may take longer than a step; see `Run.phase`."""
        check_phase(name, limit_s)
        return self._telling.phase(name, limit_s)

    def collective(self) -> contextlib.AbstractContextManager[None]:
        """Mark where this rank waits for others; see `Run.collective`."""
        return self._telling.collective()

    def role(self, name: str) -> None:
        """Say what this rank is for; see `Run.role`."""
        super().role(name)
        self._telling.role(name)

    def register(self, name: str, state: Any = None, **how: Any) -> None:
        """Make a state part of every snapshot; see `Run.register`."""
        if self._saves_itself:
            hint = "Write files to STEPKEEPER_SNAPSHOT_DIR, or leave snapshot_folder out of the job."
            raise ConfigurationError(f"{name!r}: this job's snapshots are the files its program writes", hint=hint)
        super().register(name, state, **how)
        hook = getattr(state, "register_step_pre_hook", None)
        if callable(hook):
            hook(lambda *_args: self._update_begins(told=False))

    def restore(self) -> int:
        """Load all registered states from the snapshot this attempt starts from, verified by its digest.

        Returns the number of finished steps to go on from, 0 when there is no snapshot. Ends the process with exit
        code 86 when the snapshot does not verify; raises StateMismatch when it holds other states than registered.
        """
        if self._restore_from:
            live = self._live()
            try:
                shard, states = load(Path(self._restore_from), rank=self.rank, live=live, mapped=self._tier.address_of)
            except (CorruptSnapshot, ConfigurationError) as error:
                self._give_up(error)
            self._states.put(states)
            self._tier.follow(shard)
            self._step = self.restored_step = shard.step
        if self._saves_itself:
            self._step = self.restored_step = self._begins_at
            self._publish(math.nan)
            self._telling.clock.resume(time.monotonic())
            return self.restored_step
        try:
            self._tier.sweep()
        except OSError as error:
            self._say(f"leftovers of an earlier attempt stay in the memory tier: {error}")
        self._reserve()
        self._publish(math.nan)
        self._telling.clock.resume(time.monotonic())
        return self.restored_step

    def close(self) -> None:
        """Wait for a save that is under way and take no more. A program that ends does so by itself."""
        atexit.unregister(self.close)
        if os.getpid() == self._pid:  # a process that was forked off has no part in it
            try:
                self._tier.close(LAST_SAVE_LIMIT_S)
            except Exception as error:
                self._report_problem(self._step, error)

    def _live(self) -> Any:
        """Return the states as they are, to be filled in place; None when the program cannot tell them yet."""
        try:
            return self._states.collect()
        except Exception:
            return None

    def _reserve(self) -> None:
        """Reserve the memory for snapshots now: a lack of it is told at the start and not at the first save."""
        try:
            self._tier.reserve(self._states.collect(), named=self._states.named())
        except Exception as error:
            self._report_problem(self._step, error)

    def _give_up(self, error: Exception) -> NoReturn:
        self._say(f"cannot restore: {error}")
        sys.exit(RESTORE_FAILED)

    def before_update(self) -> None:
        """Say that the registered states are about to change: returns when no save reads them any more."""
        self._update_begins(told=True)

    def _update_begins(self, *, told: bool) -> None:
        """`told`: by the program, which knows of all its states; an optimizer knows of its own and the model's."""
        self._updates += 1
        self._told_by_program = self._told_by_program or told
        self._settle()

    def _settle(self) -> None:
        """Wait for a save beside training; the wait is no part of a step. A failure is reported and stops nothing."""
        saving = self._telling.phase("snapshot", SNAPSHOT_LIMIT_S) if self._tier.busy else contextlib.nullcontext()
        with saving:
            try:
                self._tier.settle()
            except Exception as error:
                self._report_problem(self._step, error)

    def due(self, step: int) -> bool:
        """Return whether a snapshot follows `step`, by the plan as it is now: for programs that write it themselves."""
        return self._schedule.due(step)

    def resumed(self) -> None:
        """Say that training goes on; see `Run.resumed`."""
        self._telling.clock.resume(time.monotonic())

    def step(self, step: int, *, loss: Any = None) -> None:
        """Report that `step` steps are finished, and take a snapshot when one is due after it.

        A save that fails is reported and never stops training. Raises ConfigurationError when `step` does not rise.
        """
        super().step(step, loss=loss)
        known = None if loss is None else float(loss)
        self._telling.step(step, known)
        due = self._schedule.due(step) and not self._saves_itself
        self._publish(math.nan if known is None else known)
        if not self._first_step_told:
            self._first_step_told = True
            self._hints.send(
                "first_step",
                epoch=self.epoch,
                rank=self.rank,
                step=step,
                restored_step=self.restored_step,
                plan_version=self._schedule.version,
            )
            if not (due or self._saves_itself):
                self._settle()
                self._reserve()  # an optimizer has its state only after its first step
                self._telling.clock.resume(time.monotonic())
        if due:
            with self._telling.phase("snapshot", SNAPSHOT_LIMIT_S):
                self._save(step)
            self._telling.clock.resume(time.monotonic())
        self._updates = 0

    def _publish(self, loss: float) -> None:
        self._telling.publish(
            step=self._step, loss=loss, restored_step=self.restored_step, plan_version=self._schedule.version
        )

    def _save(self, step: int) -> None:
        """Take a snapshot. Boundary: whatever goes wrong is reported, and training goes on."""
        self._settle()
        lazy = self._mode == "lazy" or (self._mode == "auto" and self._updates > 0)
        try:
            began = time.monotonic()
            early = self._states.early(all_wait=self._told_by_program)
            named = self._states.named()
            self._tier.save(step, self._states.collect(), lazy=lazy, early=early, began=began, named=named)
        except Exception as error:
            self._report_problem(step, error)

    def _taken(self, shard: Shard) -> None:
        """Tell of a snapshot that counts. Called by the thread that copied it."""
        self.snapshots_taken += 1
        self.problem = ""
        self._hints.send("snapshot", epoch=shard.epoch, rank=shard.rank, step=shard.step)

    def _report_problem(self, step: int, error: Exception) -> None:
        code, message, hint = describe(error)
        if message != self.problem:
            self._say(f"no snapshot after step {step}, training goes on: {message}. {hint}")
        self.problem = message
        self._hints.send(
            "snapshot_problem",
            epoch=self.epoch,
            rank=self.rank,
            step=step,
            snapshot_epoch=self.epoch,
            tier="memory",
            code=code,
            message=message,
            hint=hint,
        )

    def _say(self, text: str) -> None:
        print(f"stepkeeper: rank {self.rank}, epoch {self.epoch}: {text}", file=sys.stderr, flush=True)  # noqa: T201


def attach(environment: Mapping[str, str] | None = None) -> Run:
    """Return the run this process is a rank of; one that does nothing when STEPKEEPER_DIR is not set.

    Raises ConfigurationError when the environment is contradictory.
    """
    environment = os.environ if environment is None else environment
    return marks.keep(GuardedRun(environment) if environment.get("STEPKEEPER_DIR") else Run(environment))
