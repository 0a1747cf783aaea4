"""What is a check asked: its options, what the agent knows, what earlier looks saw, and when it is."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reliability.agent.clock import steady
from reliability.agent.collectors.checking import Inputs, Option, Outcome
from reliability.agent.collectors.checks.past import Past
from reliability.agent.collectors.checks.tree import Tree

ROOTS = ("root", "proc")
"""Options that name where the kernel shows itself."""
_PROC = Tree(Path("/proc"))


@dataclass(frozen=True, slots=True)
class Asked:
    """One look that a check is asked for. `facts`: what only the agent knows, as the folders of the tiers."""

    options: Mapping[str, Option]
    facts: Mapping[str, Any]
    past: Past

    def tree(self, name: str = "root") -> Tree:
        """Return the tree of files that an option names."""
        return Tree(Path(str(self.options[name])))

    def limit(self, name: str) -> float:
        """Return an option that is a number."""
        return float(self.options[name])


def runs(look: Callable[[Asked], Outcome]) -> Callable[[Inputs], Outcome]:
    """Return what runs a look now, on this machine. Where there is nothing to read from, it cannot be told."""

    def run(inputs: Inputs) -> Outcome:
        for name in ROOTS:
            place = inputs.options.get(name)
            if isinstance(place, str) and not Tree(Path(place)).there():
                return Outcome(ok=None, reason=f"{name} = {place}: there is no such folder.", state=inputs.state)
        boot = _PROC.text("sys", "kernel", "random", "boot_id") or ""
        return look(Asked(inputs.options, inputs.facts, Past(inputs.state, boot=boot, at=steady())))

    return run
