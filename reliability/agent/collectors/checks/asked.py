"""What is a check asked: its options, what the agent knows, what earlier looks saw, and when it is."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reliability.agent.clock import steady
from reliability.agent.collectors.checking import Inputs, Option, Outcome
from reliability.agent.collectors.checks.past import Past
from reliability.agent.collectors.checks.tree import Tree

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
    """Return what runs a look now, on this machine."""

    def run(inputs: Inputs) -> Outcome:
        boot = _PROC.text("sys", "kernel", "random", "boot_id") or ""
        return look(Asked(inputs.options, inputs.facts, Past(inputs.state, boot=boot, at=steady())))

    return run
