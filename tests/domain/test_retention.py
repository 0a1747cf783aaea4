"""Retention: what may go from a tier, and that the newest restorable step never does."""

import random
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reliability.domain import retention
from reliability.domain.retention import Held, Removal, TierRule, Why
from reliability.domain.snapshots import EpochStart, SnapshotId, Tier, in_lineage, lineage_ceilings
from reliability.errors import InvalidInput
from tests.domain.test_restore import histories

pytestmark = pytest.mark.slow

FIRST = lineage_ceilings((EpochStart(epoch=1, restored=None),))
NOW = 10_000.0


def held(step: int, *, epoch: int = 1, age_s: float | None = 0.0, size: int = 10, whole: bool = True) -> Held:
    """Return a snapshot that is on both tiers."""
    return Held(
        snapshot=SnapshotId(epoch, step),
        recorded_at=None if age_s is None else NOW - age_s,
        size_bytes={Tier.SSD: size, Tier.STORAGE: size},
        complete=(Tier.SSD, Tier.STORAGE) if whole else (),
        durable=whole,
    )


def gone(
    ledger: list[Held], rule: TierRule, tier: Tier = Tier.STORAGE, line: dict[int, int | None] = FIRST
) -> list[Removal]:
    return retention.decide(ledger, tier=tier, rule=rule, line=line, now=NOW)


def steps(removals: list[Removal]) -> list[int]:
    return [each.snapshot.step for each in removals]


@pytest.mark.parametrize("tier", retention.RULED)
def test_the_newest_stay_and_the_others_go_oldest_first(tier: Tier) -> None:
    ledger = [held(step) for step in (50, 10, 30, 20, 40)]
    found = gone(ledger, TierRule(keep_newest=2), tier)
    assert steps(found) == [10, 20, 30]
    assert {(each.why, each.words) for each in found} == {
        (Why.NOT_KEPT, "It is older than the newest 2 that are kept.")
    }


def test_of_each_so_many_steps_the_first_whole_one_stays_whatever_the_period() -> None:
    ledger = [held(step, whole=step != 105) for step in range(35, 400, 35)]
    assert steps(gone(ledger, TierRule(keep_newest=1, every_steps=100))) == [70, 105, 175, 245, 280, 350]


@pytest.mark.parametrize("rule", [TierRule(keep_newest=1), TierRule(keep_newest=5, cap_bytes=10)])
def test_the_newest_that_was_verified_stays_until_a_newer_one_was(rule: TierRule) -> None:
    ledger = [held(10), replace(held(20), verified=(Tier.STORAGE,)), held(30), held(40)]
    assert steps(gone(ledger, rule)) == [10, 30]
    assert steps(gone([*ledger, replace(held(50), verified=(Tier.STORAGE,))], rule)) == [10, 20, 30, 40]


def on_ssd(step: int, *, stored: bool = False) -> Held:
    """Return a snapshot that is whole on the SSDs, and on storage too where it says so."""
    tiers = (Tier.SSD, Tier.STORAGE) if stored else (Tier.SSD,)
    snapshot = SnapshotId(1, step)
    return Held(snapshot=snapshot, recorded_at=NOW, size_bytes=dict.fromkeys(tiers, 10), complete=tiers, durable=True)


@pytest.mark.parametrize(
    ("stored", "onward", "left"),
    [
        ((), None, [110, 120]),
        ((), TierRule(keep_newest=1), [110, 120]),
        ((), TierRule(keep_newest=1, every_steps=50), [10, 50, 100, 110, 120]),
        ((10, 60), TierRule(keep_newest=1, every_steps=50), [100, 110, 120]),
        ((100,), TierRule(keep_newest=1, every_steps=50), [10, 50, 110, 120]),
        ((), TierRule(keep_newest=1, every_steps=10), [70, 80, 90, 100, 110, 120]),
    ],
    ids=["no storage", "no such wish", "all awaited", "some stored", "the newest stored", "no more than some"],
)
def test_what_storage_shall_keep_of_each_so_many_steps_waits_on_the_ssd_until_it_is_there(
    stored: tuple[int, ...], onward: TierRule | None, left: list[int]
) -> None:
    ledger = [on_ssd(step, stored=step in stored) for step in range(10, 130, 10)]
    rule = TierRule(keep_newest=2)
    found = retention.decide(ledger, tier=Tier.SSD, rule=rule, line=FIRST, now=NOW, onward=onward)
    assert sorted({each.snapshot.step for each in ledger} - set(steps(found))) == left
    assert all(each.tier is Tier.SSD for each in found)


def test_a_cap_goes_before_what_waits_for_storage() -> None:
    ledger = [on_ssd(step) for step in range(10, 130, 10)]
    rule, onward = TierRule(keep_newest=2, cap_bytes=30), TierRule(keep_newest=1, every_steps=50)
    found = retention.decide(ledger, tier=Tier.SSD, rule=rule, line=FIRST, now=NOW, onward=onward)
    assert sorted({each.snapshot.step for each in ledger} - set(steps(found))) == [100, 110, 120]


def test_what_is_young_stays_by_the_age_that_the_ledger_recorded_and_an_unknown_age_is_young() -> None:
    ledger = [held(10, age_s=500), held(20, age_s=50), held(30, age_s=None), held(40, age_s=999), held(50)]
    found = gone(ledger, TierRule(keep_newest=1, keep_for_s=100))
    assert steps(found) == [10, 40]
    assert found[0].words == "It is older than the newest one, those of the last 100 seconds that are kept."


def test_a_cap_takes_the_oldest_kept_ones_and_never_the_last() -> None:
    ledger = [held(step) for step in (10, 20, 30, 40)]
    found = gone(ledger, TierRule(keep_newest=4, cap_bytes=25))
    assert [(each.snapshot.step, each.why) for each in found] == [(10, Why.CAP), (20, Why.CAP)]
    assert steps(gone(ledger, TierRule(keep_newest=4, cap_bytes=1))) == [10, 20, 30]


def test_abandoned_lines_go_first_and_make_room_before_good_ones_do() -> None:
    line = lineage_ceilings((EpochStart(epoch=1, restored=None), EpochStart(epoch=2, restored=SnapshotId(1, 20))))
    ledger = [held(10), held(20), held(30), held(90), held(30, epoch=2), held(40, epoch=2)]
    found = gone(ledger, TierRule(keep_newest=3, cap_bytes=30), line=line)
    assert [(each.snapshot, each.why) for each in found] == [
        (SnapshotId(1, 30), Why.ABANDONED),
        (SnapshotId(1, 90), Why.ABANDONED),
        (SnapshotId(1, 10), Why.NOT_KEPT),
    ]


def test_no_abandoned_line_goes_before_the_newest_attempt_has_committed_something() -> None:
    """What is too old of the line goes: on a full disk the newest attempt could never commit anything otherwise."""
    line = lineage_ceilings((EpochStart(epoch=1, restored=None), EpochStart(epoch=2, restored=SnapshotId(1, 20))))
    found = gone([held(10), held(20), held(30)], TierRule(keep_newest=1), line=line)
    assert [(each.snapshot.step, each.why) for each in found] == [(10, Why.NOT_KEPT)]


def test_nothing_goes_while_nothing_is_whole() -> None:
    assert gone([held(10, whole=False), held(20, whole=False)], TierRule(keep_newest=1)) == []


def test_what_is_not_whole_goes_once_a_newer_one_is_and_what_is_newer_stays() -> None:
    ledger = [held(10), held(20, whole=False), held(30), held(40, whole=False)]
    found = gone(ledger, TierRule(keep_newest=5))
    assert [(each.snapshot.step, each.why) for each in found] == [(20, Why.INCOMPLETE)]


def test_a_distrusted_one_takes_no_place_among_those_kept() -> None:
    ledger = [held(10), held(20), replace(held(30), distrusted=True), held(40)]
    assert [(each.snapshot.step, each.why) for each in gone(ledger, TierRule(keep_newest=2))] == [(10, Why.NOT_KEPT)]


def test_a_distrusted_one_goes_when_it_would_have_gone_and_first_where_a_cap_has_no_room() -> None:
    ledger = [held(10), replace(held(20), distrusted=True), held(30), held(40)]
    found = gone(ledger, TierRule(keep_newest=2))
    assert [(each.snapshot.step, each.why) for each in found] == [(10, Why.NOT_KEPT), (20, Why.DISTRUSTED)]
    young = gone(ledger, TierRule(keep_newest=1, keep_for_s=10 * NOW))
    assert young == []
    size = next(iter(held(10).size_bytes.values()))
    capped = gone(ledger, TierRule(keep_newest=4, cap_bytes=3 * size))
    assert [(each.snapshot.step, each.why) for each in capped] == [(20, Why.CAP)]


def test_an_ssd_counts_what_storage_completes_and_keeps_its_own_last_complete_one() -> None:
    mixed = [replace(held(step), complete=(), durable=True) for step in (20, 30)]
    assert steps(gone([held(5), held(10), *mixed], TierRule(keep_newest=1), Tier.SSD)) == [5, 20]


@pytest.mark.parametrize(
    ("rule", "name"),
    [
        (TierRule(keep_newest=0), "ssd.keep_newest"),
        (TierRule(keep_newest=1, every_steps=-1), "ssd.every_steps"),
        (TierRule(keep_newest=1, keep_for_s=float("nan")), "ssd.keep_for_s"),
        (TierRule(keep_newest=1, cap_bytes=99), "ssd.cap_bytes"),
    ],
)
def test_a_rule_that_makes_no_sense_is_refused_by_the_name_of_its_field(rule: TierRule, name: str) -> None:
    with pytest.raises(InvalidInput) as error:
        retention.check(rule, snapshot_bytes=100, prefix="ssd.")
    assert error.value.field == name
    assert error.value.hint


rules = st.builds(
    TierRule,
    keep_newest=st.integers(1, 4),
    every_steps=st.sampled_from([0, 1, 15, 100]),
    keep_for_s=st.sampled_from([0.0, 10.0, 1000.0]),
    cap_bytes=st.sampled_from([0, 1, 25, 1000]),
)


@st.composite
def ledgers(draw: st.DrawFn) -> list[Held]:
    places = draw(st.sets(st.tuples(st.integers(1, 3), st.sampled_from([10, 20, 30, 40])), max_size=12))
    found = []
    for epoch, step in draw(st.permutations(sorted(places))):
        tiers = draw(st.sets(st.sampled_from(retention.RULED)))
        complete = {tier for tier in tiers if draw(st.booleans())}
        found.append(
            Held(
                snapshot=SnapshotId(epoch, step),
                recorded_at=draw(st.one_of(st.none(), st.floats(0, 2 * NOW))),
                size_bytes={tier: draw(st.integers(0, 20)) for tier in tiers},
                complete=complete,
                durable=bool(complete) or (len(tiers) == 2 and draw(st.booleans())),
                distrusted=draw(st.integers(0, 4)) == 0,
            )
        )
    return found


def without(ledger: list[Held], removals: list[Removal]) -> list[Held]:
    """Return the ledger after the removals; what was durable by both tiers is so no more when one of them went."""
    lost = {(each.snapshot, each.tier) for each in removals}
    left = []
    for each in ledger:
        tiers = {tier for tier in each.size_bytes if (each.snapshot, tier) not in lost}
        complete = {tier for tier in each.complete if tier in tiers}
        left.append(
            replace(
                each,
                size_bytes={tier: each.size_bytes[tier] for tier in tiers},
                complete=complete,
                durable=each.durable and (bool(complete) or tiers == each.size_bytes.keys()),
            )
        )
    return left


def newest(ledger: list[Held], line: dict[int, int | None], tier: Tier | None) -> tuple[int, int] | None:
    good = [
        (each.snapshot.step, each.snapshot.epoch)
        for each in ledger
        if in_lineage(each.snapshot, line) and not each.distrusted
        if (each.durable if tier is None else tier in each.complete)
    ]
    return max(good, default=None)


@given(ledgers(), histories(), rules, rules)
def test_whatever_the_rules_say_the_newest_restorable_step_survives_on_every_tier_and_over_both(
    ledger: list[Held], starts: tuple[EpochStart, ...], ssd: TierRule, storage: TierRule
) -> None:
    line = lineage_ceilings(starts)
    left = ledger
    removals = []
    for tier, rule in ((Tier.SSD, ssd), (Tier.STORAGE, storage)):
        removals += gone(ledger, rule, tier, line)
    left = without(ledger, removals)
    for tier in (None, *retention.RULED):
        before = newest(ledger, line, tier)
        assert newest(left, line, tier) == before, (tier, removals)


@given(ledgers(), histories(), rules, st.sampled_from(retention.RULED), st.randoms())
def test_a_decision_depends_on_lineage_and_step_alone_never_on_the_order_in_which_snapshots_are_listed(
    ledger: list[Held], starts: tuple[EpochStart, ...], rule: TierRule, tier: Tier, shuffler: random.Random
) -> None:
    line = lineage_ceilings(starts)
    found = gone(ledger, rule, tier, line)
    shuffled = list(ledger)
    shuffler.shuffle(shuffled)
    assert gone(shuffled, rule, tier, line) == found
    assert len({each.snapshot for each in found}) == len(found)
    beside = [not in_lineage(each.snapshot, line) for each in found]
    assert all(first >= second for first, second in pairwise(beside)), "abandoned lines go first"
    assert gone(without(ledger, found), rule, tier, line) == [], "what is done is done: nothing more goes"
