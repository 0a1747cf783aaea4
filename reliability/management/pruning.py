"""Which stored snapshots may go when a person asks for it? By the rule that nodes use too, never the last good one."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from reliability.domain.snapshots import in_lineage
from reliability.errors import InvalidInput, NoRestorePoint
from reliability.tiers.catalogue import Stored


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What goes, oldest first, and the newest that stays."""

    gone: Sequence[Stored]
    newest: Stored


def plan(found: Sequence[Stored], *, keep: int, line: Mapping[int, int | None]) -> Plan:
    """Return what may go of snapshots sorted newest first, when `keep` whole ones of the line are to stay.

    `line` are the ceilings of the line that goes on; empty when it is not known: then attempts are not told apart.
    Raises InvalidInput for a `keep` below 1, NoRestorePoint when there is no whole snapshot to stay.
    """
    if keep < 1:
        raise InvalidInput("--keep", f"{keep} would remove the last snapshot", hint="Keep at least one.")
    current = [each for each in found if not line or in_lineage(each.snapshot, line)]
    whole = [each for each in current if each.whole]
    if not whole:
        raise NoRestorePoint("No whole snapshot of the line that goes on is stored.", hint="Nothing is removed.")
    oldest = whole[:keep][-1]
    stay = current[: current.index(oldest) + 1]
    return Plan(gone=[each for each in reversed(found) if each not in stay], newest=whole[0])
