"""Which snapshots may go from a tier, and why?

A pure function of the ledger: what each snapshot holds on each tier, the line of history that goes on, the rule of
the tier, and the time. Order is by lineage and step; the age is the one that the ledger recorded, never a file's.
Whatever a rule says, the newest snapshot of the line that can be restored stays, and so does everything above it.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from reliability.domain import sizes
from reliability.domain.snapshots import SnapshotId, Tier, in_lineage
from reliability.errors import InvalidInput

MOST_KEPT = 100_000
MOST_STEPS = 10**15
MOST_BYTES = 2**60
LONGEST_S = 100 * 365 * 86400.0
MOST_AWAITED = 4
"""So many snapshots wait on an SSD at most for a storage that is behind, beside those that the SSD's own rule keeps."""
RULED = (Tier.SSD, Tier.STORAGE)
"""The tiers that have a rule. In memory there are two or three slots, which the trainer writes over in turn."""


class Why(StrEnum):
    """Why a snapshot may go."""

    ABANDONED = "abandoned"
    DISTRUSTED = "distrusted"
    INCOMPLETE = "incomplete"
    NOT_KEPT = "not_kept"
    CAP = "cap"


@dataclass(frozen=True, kw_only=True)
class TierRule:
    """What a tier keeps: a snapshot stays when one of the first three wants it and the cap has room for it.

    `keep_newest` whole ones; of each `every_steps` steps the first; those younger than `keep_for_s` seconds. The oldest
    go first while the tier holds more than `cap_bytes`. 0 means that there is no such wish, or no cap.
    """

    keep_newest: int
    every_steps: int = 0
    keep_for_s: float = 0.0
    cap_bytes: int = 0


DEFAULTS: Mapping[Tier, TierRule] = {Tier.SSD: TierRule(keep_newest=4), Tier.STORAGE: TierRule(keep_newest=8)}
"""What holds for a job of which nobody said anything else."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """A snapshot as the ledger knows it.

    `recorded_at` is when it was first reported, seconds since 1970, None when that is not known: it then counts as
    young. `size_bytes`: tier -> bytes there, of an SSD those on the fullest node. `complete`: tiers on which every
    rank's copy is committed and none is known to be bad. `durable`: every rank has such a copy on an SSD or on storage.
    `verified`: tiers on which every rank's copy was read again since, and found to be what its record says.
    """

    snapshot: SnapshotId
    recorded_at: float | None
    size_bytes: Mapping[Tier, int] = field(default_factory=dict)
    complete: Collection[Tier] = ()
    durable: bool = False
    distrusted: bool = False
    verified: Collection[Tier] = ()


class Removal(NamedTuple):
    """One snapshot that may go from a tier, with the reason in words."""

    snapshot: SnapshotId
    tier: Tier
    why: Why
    words: str
    size_bytes: int


def check(rule: TierRule, *, snapshot_bytes: int | None = None, prefix: str = "") -> None:
    """Raise InvalidInput for a rule that makes no sense, naming the field after `prefix`.

    `snapshot_bytes` is the size of one snapshot on the tier, None while none is known.
    """
    _within(f"{prefix}keep_newest", rule.keep_newest, 1, MOST_KEPT, "Keep at least the newest one.")
    _within(f"{prefix}every_steps", rule.every_steps, 0, MOST_STEPS, "A number of steps; 0 for no such wish.")
    _within(f"{prefix}keep_for_s", rule.keep_for_s, 0, LONGEST_S, "At most a hundred years; 0 for no such wish.")
    _within(f"{prefix}cap_bytes", rule.cap_bytes, 0, MOST_BYTES, "A number of bytes; 0 for no cap.")
    if rule.cap_bytes and snapshot_bytes and rule.cap_bytes < snapshot_bytes:
        twice = sizes.spoken(2 * snapshot_bytes)
        raise InvalidInput(
            f"{prefix}cap_bytes",
            f"{sizes.spoken(rule.cap_bytes)} is less than one snapshot of this job, {sizes.spoken(snapshot_bytes)}",
            hint=f"Give at least {twice}: the last one stays until the next is whole. 0: no cap.",
        )


def _within(name: str, value: float, least: float, most: float, hint: str) -> None:
    if not least <= value <= most:  # also refuses what is no number
        raise InvalidInput(name, f"{value:g} is not from {least:g} to {most:g}", hint=hint)


def decide(
    held: Iterable[Held],
    *,
    tier: Tier,
    rule: TierRule,
    line: Mapping[int, int | None],
    now: float,
    onward: TierRule | None = None,
) -> list[Removal]:
    """Return what may go from one tier: abandoned lines first, then the oldest first.

    `line` are the ceilings of the line that goes on (domain/snapshots.lineage_ceilings), `now` seconds since 1970.
    Nothing goes while no snapshot of the line is whole, and no abandoned line before the newest attempt has committed
    something: what is left of the line must make room for it, or a full tier would stay full for good.
    Never gone: the newest of the line that is whole, and all of the line from there on, whole or not; nor the newest
    that was verified, before a newer one is.
    What is distrusted takes no good one's place and stays, as evidence, as long as it would have stayed.
    `onward` is the rule of the storage that this SSD's snapshots go to: what it keeps of each so many steps waits here
    until it is there, the newest MOST_AWAITED of these. A cap goes before that.
    Raises InvalidInput for a rule that makes no sense.
    """
    check(rule)
    own_ledger, beside_ledger = _parted(held, line)
    own = sorted((each for each in own_ledger if tier in each.size_bytes), key=_place)
    beside = sorted((each for each in beside_ledger if tier in each.size_bytes), key=_place)
    # An SSD's copies count together with those on storage, also for a snapshot of which no SSD holds anything.
    floor = max((each.snapshot.step for each in own_ledger if _is_whole(each, tier)), default=None)
    newest = max(line, default=0)
    if floor is None:
        return []
    if not any(each.snapshot.epoch >= newest for each in own):
        beside = []  # the newest attempt has nothing here yet, and may be the one that is given up
    older = [each for each in own if each.snapshot.step < floor]
    whole = [each for each in own if _is_whole(each, tier)]
    wanted = _wanted(whole, rule, now)
    wanted |= set([each for each in _awaited(whole, own_ledger, onward) if each not in wanted][-MOST_AWAITED:])
    wanted |= _evidence(own, tier, rule, now)
    gone = [_removal(each, tier, Why.ABANDONED, "It lies on an abandoned line.") for each in beside]
    kept = f"It is older than {said(rule)} that are kept."
    gone += [_unwanted(each, tier, kept) for each in older if each.snapshot not in wanted]
    last = {each.snapshot for each in _last_on(own, tier)}
    gone = [each for each in gone if each.snapshot not in last]
    return gone + _over_cap([*own, *beside], older, gone, last, tier, rule)


def _evidence(own: Sequence[Held], tier: Tier, rule: TierRule, now: float) -> set[SnapshotId]:
    """Return which distrusted snapshots the rule would keep, were they trusted."""
    there = [each for each in own if _is_all_there(each, tier)]
    return _wanted(there, rule, now) & {each.snapshot for each in own if each.distrusted}


def _place(each: Held) -> tuple[int, int]:
    return each.snapshot.step, each.snapshot.epoch


def _is_whole(each: Held, tier: Tier) -> bool:
    return not each.distrusted and _is_all_there(each, tier)


def _is_all_there(each: Held, tier: Tier) -> bool:
    """An SSD's copies count together with those on storage: a rank that moved reads the one, the others the other."""
    return each.durable if tier is Tier.SSD else tier in each.complete


def _parted(held: Iterable[Held], line: Mapping[int, int | None]) -> tuple[list[Held], list[Held]]:
    """Return the snapshots of the line that goes on, and those beside it."""
    own: list[Held] = []
    beside: list[Held] = []
    for each in held:
        (own if in_lineage(each.snapshot, line) else beside).append(each)
    return own, beside


def _last_on(own: Sequence[Held], tier: Tier) -> list[Held]:
    """Return the newest of the line that is complete on this very tier, and the newest that was verified there."""
    there = [each for each in own if tier in each.complete and not each.distrusted]
    return [*there[-1:], *[each for each in there if tier in each.verified][-1:]]


def _wanted(whole: Sequence[Held], rule: TierRule, now: float) -> set[SnapshotId]:
    """Return which of the whole snapshots, oldest first, one of the rule's wishes keeps."""
    wanted = {each.snapshot for each in whole[-rule.keep_newest :]}
    wanted |= {each.snapshot for each in whole if _is_young(each, rule, now)}
    if rule.every_steps:
        first: dict[int, SnapshotId] = {}
        for each in whole:
            first.setdefault(each.snapshot.step // rule.every_steps, each.snapshot)
        wanted |= set(first.values())
    return wanted


def _awaited(whole: Sequence[Held], own: Iterable[Held], onward: TierRule | None) -> list[SnapshotId]:
    """Return which of the whole snapshots of an SSD, oldest first, storage shall keep and does not have yet."""
    every = onward.every_steps if onward is not None else 0
    if not every:
        return []
    there = {each.snapshot.step // every for each in own if _is_whole(each, Tier.STORAGE)}
    first: dict[int, SnapshotId] = {}
    for each in whole:
        first.setdefault(each.snapshot.step // every, each.snapshot)
    return [snapshot for part, snapshot in first.items() if part not in there]


def _is_young(each: Held, rule: TierRule, now: float) -> bool:
    return rule.keep_for_s > 0 and (each.recorded_at is None or now - each.recorded_at < rule.keep_for_s)


def _unwanted(each: Held, tier: Tier, kept: str) -> Removal:
    if each.distrusted:
        return _removal(each, tier, Why.DISTRUSTED, f"It is never restored again. {kept}")
    if not _is_whole(each, tier):
        return _removal(each, tier, Why.INCOMPLETE, "It is not whole, and a newer one is.")
    return _removal(each, tier, Why.NOT_KEPT, kept)


def said(rule: TierRule) -> str:
    """Return in words what a rule keeps."""
    kept = ["the newest one" if rule.keep_newest == 1 else f"the newest {rule.keep_newest}"]
    if rule.every_steps:
        kept.append(f"the first of each {rule.every_steps} steps")
    if rule.keep_for_s:
        kept.append(f"those of the last {_time(rule.keep_for_s)}")
    return ", ".join(kept)


def _over_cap(
    on_tier: Sequence[Held],
    older: Sequence[Held],
    gone: Sequence[Removal],
    last: Collection[SnapshotId],
    tier: Tier,
    rule: TierRule,
) -> list[Removal]:
    """Return those that a cap has no room for: what is distrusted, then the oldest."""
    if not rule.cap_bytes:
        return []
    left = {each.snapshot for each in on_tier} - {each.snapshot for each in gone}
    used = sum(each.size_bytes[tier] for each in on_tier if each.snapshot in left)
    words = f"All that is kept is more than the cap of {sizes.spoken(rule.cap_bytes)}, and it is the oldest."
    found = []
    for each in sorted(older, key=lambda each: not each.distrusted):
        if used <= rule.cap_bytes:
            break
        if each.snapshot in left and each.snapshot not in last:
            found.append(_removal(each, tier, Why.CAP, words))
            used -= each.size_bytes[tier]
    return found


def _removal(each: Held, tier: Tier, why: Why, words: str) -> Removal:
    return Removal(each.snapshot, tier, why, words, each.size_bytes[tier])


def _time(seconds: float) -> str:
    for unit, length_s in (("days", 86400), ("hours", 3600), ("minutes", 60)):
        if seconds >= 2 * length_s:
            return f"{seconds / length_s:.3g} {unit}"
    count = f"{seconds:.3g}"
    return f"{count} second" if count == "1" else f"{count} seconds"
