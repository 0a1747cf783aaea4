"""Each node's shards have a second place on a node that does not fail together with it, evenly spread."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from reliability.domain.partners import Place, pair


def places(*domains: str) -> list[Place]:
    return [Place(slot=slot, node=f"n{slot}", domain=domain) for slot, domain in enumerate(domains)]


def keepers(*domains: str) -> dict[str, str]:
    return {each.owner: each.keeper for each in pair(places(*domains)).pairs}


def test_without_domains_each_node_keeps_the_shards_of_the_one_before_it() -> None:
    assert keepers("", "", "") == {"n0": "n1", "n1": "n2", "n2": "n0"}


def test_two_nodes_keep_each_others() -> None:
    assert keepers("a", "b") == {"n0": "n1", "n1": "n0"}


def test_a_partner_lies_outside_the_failure_domain() -> None:
    assert keepers("a", "a", "b", "b") == {"n0": "n2", "n1": "n3", "n2": "n0", "n3": "n1"}


def test_a_node_without_any_partner_is_named_with_the_reason() -> None:
    found = pair(places("a", "a"))
    assert found.pairs == ()
    assert found.alone["n0"] == "All nodes of the job lie in the failure domain a of n0."
    assert pair(places("a")).alone["n0"] == "n0 is the only node of the job."


@given(st.lists(st.sampled_from(["", "a", "b", "c"]), max_size=12))
def test_every_node_has_one_partner_apart_from_it_or_a_reason(domains: list[str]) -> None:
    found = pair(places(*domains))
    of = {place.node: place.domain for place in places(*domains)}
    assert {each.owner for each in found.pairs} | found.alone.keys() == of.keys()
    assert len(found.pairs) + len(found.alone) == len(of)
    for each in found.pairs:
        assert each.owner != each.keeper
        assert not of[each.owner] or of[each.owner] != of[each.keeper]


@given(st.integers(2, 12))
def test_without_domains_no_node_keeps_more_than_one_others_shards(nodes: int) -> None:
    assert set(Counter(each.keeper for each in pair(places(*[""] * nodes)).pairs).values()) == {1}
