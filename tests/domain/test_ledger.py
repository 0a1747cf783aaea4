"""What the copies of a snapshot come to, in ranks and in one word."""

from hypothesis import given
from hypothesis import strategies as st

from reliability.domain import ledger
from reliability.domain.ledger import CopyFacts, Standing, TierTally
from reliability.domain.snapshots import CopyState, Tier

T0_S = 1_772_323_200.0


def copy(rank: int = 0, tier: str = "ssd", state: str = "committed", **more: object) -> CopyFacts:
    facts: dict[str, object] = {"size_bytes": 10, "committed_s": T0_S + rank}
    return CopyFacts(rank=rank, tier=tier, state=state, **(facts | more))  # type: ignore[arg-type]


copies = st.builds(
    copy,
    rank=st.integers(0, 3),
    tier=st.sampled_from(list(Tier)),
    state=st.sampled_from(list(CopyState)),
    verified=st.booleans(),
    trial_restored=st.booleans(),
    superseded=st.integers(0, 9),
)


def test_a_rank_counts_once_however_many_nodes_hold_its_shard() -> None:
    found = ledger.tally([copy(0), copy(0), copy(1, size_bytes=30)]).tiers[Tier.SSD]
    assert (found.ranks, found.size_bytes, found.ever) == (2, 40, 2)
    assert found.complete_s == T0_S + 1


def test_a_shard_that_a_good_copy_stands_beside_is_not_corrupt() -> None:
    found = ledger.tally([copy(0, state="corrupt"), copy(0), copy(1, state="corrupt"), copy(2, state="lost")])
    tier = found.tiers[Tier.SSD]
    assert (tier.ranks, tier.corrupt, tier.lost, tier.removed, found.held) == (1, 1, 1, 0, 1)


def test_what_lies_in_memory_alone_is_held_and_not_durable() -> None:
    found = ledger.tally([copy(0, "memory"), copy(1, "memory"), copy(1, "storage")])
    assert (found.held, found.durable) == (2, 1)


def test_the_slowest_rank_is_what_a_save_took_also_when_its_copy_is_gone() -> None:
    found = ledger.tally([copy(0, drain_s=1.0), copy(1, drain_s=3.0, state="deleted")]).tiers[Tier.SSD]
    assert found.drain_s == 3.0


@given(st.lists(copies, max_size=30))
def test_every_rank_of_a_tier_is_counted_exactly_once(given_copies: list[CopyFacts]) -> None:
    found = ledger.tally(given_copies)
    for tier, counted in found.tiers.items():
        ranks = {each.rank for each in given_copies if each.tier == tier}
        assert counted.ranks + counted.corrupt + counted.lost + counted.removed == counted.ever == len(ranks)
        assert counted.verified <= counted.ranks
        assert counted.trial_restored <= counted.ranks
    assert found.durable <= found.held
    assert found.held >= max(counted.ranks for counted in found.tiers.values())


@given(st.lists(copies, max_size=30), st.integers(1, 4), st.booleans(), st.booleans())
def test_every_snapshot_stands_somehow_and_only_whole_ones_as_whole(
    given_copies: list[CopyFacts], ranks: int, overtaken: bool, in_line: bool
) -> None:
    whole = {Standing.COMMITTED, Standing.VERIFIED, Standing.TRIAL_RESTORED}
    for counted in ledger.tally(given_copies).tiers.values():
        stored = ledger.standing(counted, ranks=ranks, overtaken=overtaken)
        assert (stored in whole) == (counted.ranks >= ranks)
        assert ledger.seen(stored, in_line=in_line) not in whole or in_line


def test_states_are_told_in_the_order_in_which_they_matter() -> None:
    def told(overtaken: bool = False, **counts: int) -> Standing:
        return ledger.standing(TierTally(**counts), ranks=2, overtaken=overtaken)  # type: ignore[arg-type]

    assert told() is Standing.ABSENT
    assert told(ranks=1) is Standing.WRITING
    assert told(overtaken=True, ranks=1) is Standing.SUPERSEDED
    assert told(overtaken=True) is Standing.SUPERSEDED
    assert told(ranks=2) is Standing.COMMITTED
    assert told(ranks=2, verified=1) is Standing.COMMITTED
    assert told(ranks=2, verified=2) is Standing.VERIFIED
    assert told(ranks=2, verified=2, trial_restored=2) is Standing.TRIAL_RESTORED
    assert told(ranks=1, corrupt=1) is Standing.CORRUPT
    assert told(ranks=1, lost=1) is Standing.LOST
    assert told(removed=2) is Standing.REMOVED


def test_every_standing_has_a_sentence() -> None:
    assert set(ledger.MEANING) == set(Standing)


@given(st.sets(st.integers(0, 200)))
def test_ranks_in_words_say_every_rank_and_no_other(ranks: set[int]) -> None:
    said: set[int] = set()
    for part in filter(None, ledger.spans(ranks).split(", ")):
        first, _, last = part.partition("-")
        said |= set(range(int(first), int(last or first) + 1))
    assert said == ranks
