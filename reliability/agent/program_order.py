"""Do the steps in a program's snapshot folder come in order? One that is far too high would hide all that follow."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from reliability.agent import program_folder
from reliability.agent.program_folder import Attempt, Known, ProgramFolder
from reliability.domain import step_jumps
from reliability.domain.program_folders import FolderRule, SealedBy
from reliability.tiers.step_folder import UnfitStep

ENOUGH = 2
"""So many lower steps that came later show that a lone high one is none."""


class DoubtedStep(UnfitStep):
    """A name whose number cannot be a step of this training."""

    code = "doubted_step"
    hint = "Set snapshot_folder.pattern so that only names of steps are read; a high one counts when the next follows."


@dataclass(frozen=True)
class Steps:
    """The steps of one place below a program's folder, as they stand now."""

    folder: ProgramFolder
    place: str
    rule: FolderRule
    attempt: Attempt
    mine: Mapping[str, Known]

    def unsealed(self) -> dict[str, int]:
        """Return the steps of this attempt that look whole and were not judged yet, by name."""
        above, judged, found = self.folder.out / self.place, {*self.attempt.before, *self.mine}, {}
        for name in program_folder.names(above):
            key, step = f"{self.place}/{name}", self.rule.step_of(name)
            if step is None or self.rule.is_unfinished(name) or key in judged:
                continue
            if self.rule.sealed_by is not SealedBy.MARKER or program_folder.has_marker(above, name, self.rule):
                found[name] = step
        return found

    def between(self, least: int, most: int) -> int:
        """Return how many steps that were not sealed lie between two."""
        return len({step for step in self.unsealed().values() if least < step < most})

    def is_jump(self, step: int, others: set[int], *, without: str = "") -> bool:
        """Return whether a step is too far beyond the others; `without`: a key that was sealed and does not count."""
        prefix, base = f"{self.place}/", self.attempt.step or 0
        before = {self.rule.step_of(key.removeprefix(prefix)) for key in self.attempt.before if key.startswith(prefix)}
        old = {each for each in before if each is not None and each <= base}
        counting = {"", DoubtedStep.code}
        seen = [
            (known.step, known.stamp != "")
            for key, known in self.mine.items()
            if key.startswith(prefix) and key != without and known.why_not in counting
        ]
        return step_jumps.is_jump(step, seen=seen, others=others | old, base=base)


@dataclass
class Late:
    """Lower steps that came after a higher one was sealed: that is how they are known from those passed over."""

    newest: str = ""
    there: set[str] = field(default_factory=set)
    told: int = 0

    def look(self, newest: str, step: int, unsealed: Mapping[str, int]) -> dict[str, int]:
        """Return those that came since `newest`, the key of the highest sealed step, was first seen as such."""
        lower = {name: each for name, each in unsealed.items() if each < step}
        if newest != self.newest:
            self.newest, self.there, self.told = newest, set(lower), 0
        return {name: each for name, each in lower.items() if name not in self.there}

    def is_news(self, count: int) -> bool:
        """Return whether so many are to be told: the first, then ten times as many each time."""
        if count < max(1, 10 * self.told):
            return False
        self.told = count
        return True
