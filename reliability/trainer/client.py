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
import math
import os
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NoReturn

from .environment import number
from .errors import ConfigurationError, CorruptSnapshot, describe
from .folder import JobFolder, Shard
from .hints import Hints
from .parts import SHARDED
from .progress import Progress, ProgressRecord, StepClock
from .reading import load
from .schedule import Schedule
from .snapshots import MemoryTier, saving_from
from .states import States

RESTORE_FAILED = 86
LAST_SAVE_LIMIT_S = 60.0
MODES = ("auto", "sync", "lazy")


class Run:
    """One rank of a training run that nobody guards. Registers states and does nothing with them.

    rank, local_rank, world_size, epoch: what the environment says; 0, 0, 1, 0 without a launcher.
    """

    guarded = False

    def __init__(self, environment: Mapping[str, str]) -> None:
        self.rank = number(environment, "RANK", 0)
        self.local_rank = number(environment, "LOCAL_RANK", 0)
        self.world_size = number(environment, "WORLD_SIZE", 1)
        self.epoch = number(environment, "STEPKEEPER_EPOCH", 0)
        self.job = environment.get("STEPKEEPER_JOB", "")
        self._states = States()
        self._step = 0

    def register(
        self,
        name: str,
        state: Any = None,
        *,
        get: Callable[[], Any] | None = None,
        set: Callable[[Any], object] | None = None,
        early: bool = False,
        part: str = SHARDED,
        group: str = "",
    ) -> None:
        """Make a state part of every snapshot.

        Either `state` has `state_dict()` and `load_state_dict(...)`, or `get` returns what to keep and `set` takes
        it back. `early`: it changes before the next update (an average of weights, running statistics), so a save
        beside training copies it at once. The buffers of a torch module are taken for such by themselves.
        `part`: "replicated" when all ranks (of the group named, where there are several) hold the same bits, "local"
        for what is small and the rank's own, as random generators and the position in the data; "sharded" otherwise.
        A job whose states are all replicated or local loses no step with a node, however far storage lags behind.
        Raises ConfigurationError for anything else and for a name that is taken.
        """
        self._states.add(name, state, get=get, put=set, early=early, part=part, group=group)

    def before_update(self) -> None:
        """Say that the registered states are about to change: returns when no save reads them any more.

        A registered torch optimizer says so itself. A loop that calls this before each update lets saves run beside
        forward and backward passes; without it training stands still for the copy.
        """

    def close(self) -> None:
        """Wait for a save that is under way and take no more. A program that ends does so by itself."""

    def restore(self) -> int:
        """Load all registered states from the snapshot this attempt starts from.

        Returns the number of finished steps to go on from, 0 when there is no snapshot.
        """
        return 0

    def due(self, step: int) -> bool:
        """Return whether a snapshot follows `step`: for programs that write it themselves."""
        return False

    def resumed(self) -> None:
        """Say that training goes on: the time since the last step, in which it saved, is no part of the next."""

    def step(self, step: int, *, loss: Any = None) -> None:
        """Tell that `step` steps are finished; `loss` is anything `float` takes. Takes a snapshot when one is due.

        Raises ConfigurationError when `step` does not rise.
        """
        if step <= self._step:
            raise ConfigurationError(
                f"run.step({step}) after run.step({self._step}): the number of finished steps must rise",
                hint="Count from run.restore() + 1 over the whole training, not anew in each pass over the data.",
            )
        self._step = step


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
        self._clock = StepClock()
        self._first_step_told = False
        self._mode = environment.get("STEPKEEPER_SAVE_MODE") or "auto"
        self._updates = 0
        self._told_by_program = self._mode == "lazy"
        self._check()
        self._record = self._progress_record()
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

    def _progress_record(self) -> ProgressRecord | None:
        try:
            return ProgressRecord(self._folder.progress(self.rank))
        except OSError as error:
            self._say(f"progress cannot be reported, training goes on: {error}")
            return None

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
            self._clock.resume(time.monotonic())
            return self.restored_step
        try:
            self._tier.sweep()
        except OSError as error:
            self._say(f"leftovers of an earlier attempt stay in the memory tier: {error}")
        self._reserve()
        self._publish(math.nan)
        self._clock.resume(time.monotonic())
        return self.restored_step

    def close(self) -> None:
        """Wait for a save that is under way and take no more. A program that ends does so by itself."""
        atexit.unregister(self.close)
        if os.getpid() == self._pid:  # a process that was forked off has no part in it
            self._tier.close(LAST_SAVE_LIMIT_S)

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
        began = time.monotonic()
        try:
            self._tier.settle()
        except Exception as error:
            self._report_problem(self._step, error)
        self._clock.leave_out(time.monotonic() - began)

    def due(self, step: int) -> bool:
        """Return whether a snapshot follows `step`, by the plan as it is now: for programs that write it themselves."""
        return self._schedule.due(step)

    def resumed(self) -> None:
        """Say that training goes on; see `Run.resumed`."""
        self._clock.resume(time.monotonic())

    def step(self, step: int, *, loss: Any = None) -> None:
        """Report that `step` steps are finished, and take a snapshot when one is due after it.

        A save that fails is reported and never stops training. Raises ConfigurationError when `step` does not rise.
        """
        super().step(step, loss=loss)
        self._clock.tick(time.monotonic())
        due = self._schedule.due(step) and not self._saves_itself
        self._publish(math.nan if loss is None else float(loss))
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
                self._clock.resume(time.monotonic())
        if due:
            self._save(step)
            self._clock.resume(time.monotonic())
        self._updates = 0

    def _publish(self, loss: float) -> None:
        if self._record is None:
            return
        self._record.write(
            Progress(
                epoch=self.epoch,
                step=self._step,
                loss=loss,
                wall=time.time(),
                step_s=self._clock.step_s,
                restored_step=self.restored_step,
                plan_version=self._schedule.version,
            )
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
    return GuardedRun(environment) if environment.get("STEPKEEPER_DIR") else Run(environment)
