"""What can a program ask of its run? Outside a guarded one it registers states, and nothing else happens."""

import contextlib
from collections.abc import Callable, Mapping
from typing import Any

from .environment import number
from .errors import ConfigurationError
from .parts import SHARDED
from .states import States
from .telling import check_phase, check_role


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

    def phase(self, name: str, *, limit_s: float) -> contextlib.AbstractContextManager[None]:
        """Announce what may take longer than a step: `with run.phase("eval", limit_s=600): evaluate()`.

        Within its limit, seconds, it is no hang, also not for the ranks that wait for this one; longer than that it is
        one. It is no part of a step's duration. Raises ConfigurationError for a name or limit that is none.
        """
        check_phase(name, limit_s)
        return contextlib.nullcontext()

    def collective(self) -> contextlib.AbstractContextManager[None]:
        """Mark where this rank waits for others: `with run.collective(): all_reduce(...)`.

        What it computes before tells a slow rank from those that wait for it, and a hang names who has not come.
        """
        return contextlib.nullcontext()

    def role(self, name: str) -> None:
        """Say what this rank is for, where ranks differ (a stage of a pipeline): it is compared with its like only."""
        check_role(name)

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
