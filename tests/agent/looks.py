"""Looks of one check after the other over a tree of files, with the clock in the test's hand."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from reliability.agent.collectors.checking import Option, Outcome
from reliability.agent.collectors.checks.asked import Asked
from reliability.agent.collectors.checks.past import Past

BOOT = "7b1f6c1e-boot"


class Looks:
    """One check of one machine: what it keeps goes from look to look."""

    def __init__(
        self, look: Callable[[Asked], Outcome], options: Mapping[str, Option], root: Path, **changed: Option
    ) -> None:
        places: dict[str, Option] = {name: str(root) for name in ("root", "proc", "driver") if name in options}
        self._look, self.options = look, {**options, **places, **changed}
        self.root, self.facts = root, {}
        self.kept: object = {}
        self.now, self.boot = 1000.0, BOOT

    facts: dict[str, Any]

    def write(self, files: Mapping[str, object]) -> None:
        """Write files below the root; a number or text each, None removes it."""
        for name, content in files.items():
            path = self.root / name
            if content is None:
                path.unlink()
                continue
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"{content}\n")

    def look(self, *, after_s: float = 10.0) -> Outcome:
        """Look once, so much later than before."""
        self.now += after_s
        outcome = self._look(Asked(self.options, self.facts, Past(self.kept, boot=self.boot, at=self.now)))
        self.kept = outcome.state
        return outcome

    def reboot(self) -> None:
        """Start the machine anew."""
        self.boot, self.now = self.boot + "+", 50.0


def codes(outcome: Outcome) -> list[str]:
    """Return the codes that are told, in order."""
    return [each.code for each in outcome.findings]
