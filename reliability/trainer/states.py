"""What has the program registered, how is it collected for a snapshot, and how is it handed back?"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from . import arrays, parts
from .errors import ConfigurationError, StateMismatch
from .parts import Named
from .tree import Early


@dataclass(frozen=True)
class _State:
    get: Callable[[], Any]
    put: Callable[[Any], object]
    early: bool
    module: Any
    hooked: bool
    part: str
    group: str


class States:
    """The registered states by name, in the order in which they were registered."""

    def __init__(self) -> None:
        self._states: dict[str, _State] = {}

    def add(
        self,
        name: str,
        state: Any,
        *,
        get: Callable[[], Any] | None,
        put: Callable[[Any], object] | None,
        early: bool,
        part: str = parts.SHARDED,
        group: str = "",
    ) -> None:
        """Register a state. Raises ConfigurationError for one with no way out and in and for a name that is taken."""
        if name in self._states:
            raise ConfigurationError(f"the state {name!r} is registered already")
        if state is not None:
            get, put = getattr(state, "state_dict", None), getattr(state, "load_state_dict", None)
        if not callable(get) or not callable(put):
            raise ConfigurationError(
                f"the state {name!r} has no way out and in",
                hint="Give an object with state_dict and load_state_dict, or both get= and set=.",
            )
        module = state if callable(getattr(state, "named_buffers", None)) else None
        hooked = callable(getattr(state, "register_step_pre_hook", None))
        self._states[name] = _State(get, put, early, module, hooked, parts.checked(part, name), group)

    def collect(self) -> dict[str, Any]:
        """Return all states as they are now."""
        return {name: state.get() for name, state in self._states.items()}

    def named(self) -> Named:
        """Return which part each state is, and of which group the replicated ones are."""
        groups = {state.group for state in self._states.values() if state.part == parts.REPLICATED}
        by_name = {name: state.part for name, state in self._states.items() if state.part != parts.SHARDED}
        return Named(by_name, " ".join(sorted(groups - {""})))

    def early(self, *, all_wait: bool) -> Early:
        """Return what changes before the next update, the buffers of modules among it.

        Without `all_wait` nobody but the optimizers says when that is: what is neither theirs nor a module's may
        change at any time.
        """
        names, addresses = set[str](), set[int]()
        for name, state in self._states.items():
            if state.early or not (all_wait or state.hooked or state.module is not None):
                names.add(name)
            elif state.module is not None:
                addresses |= {arrays.local(buffer).data_ptr() for _name, buffer in state.module.named_buffers()}
        return Early(frozenset(names), frozenset(addresses - {0}))

    def put(self, saved: Any) -> None:
        """Hand every state back. Raises StateMismatch when other ones were saved than are registered."""
        names = set(saved) if isinstance(saved, dict) else set()
        missing, unknown = sorted(self._states.keys() - names), sorted(names - self._states.keys())
        if missing or unknown:
            raise StateMismatch(
                f"the program registers {sorted(self._states)}, the snapshot holds {sorted(names)}; "
                f"not in the snapshot: {missing}, not registered: {unknown}"
            )
        for name, state in self._states.items():
            state.put(saved[name])
