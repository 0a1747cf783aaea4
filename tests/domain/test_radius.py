"""Many nodes at once: when the same code is one event, and what is done meanwhile. Planned times: what they excuse."""

from itertools import permutations
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reliability.domain.faults import Action, Context, Finding, Judgement, Maintenance, RadiusRule, Sighting, judge
from reliability.domain.faults.radius import most_at_once, reach
from reliability.errors import InvalidInput

NOW = 10_000.0


def seen(code: str, node: str, order: int = 1, at: float = NOW, **more: Any) -> Finding:
    return Finding(code=code, node=node, order=order, at=at, **more)


def judged(*findings: Finding, nodes: int = 4, **context: Any) -> Judgement:
    last = max(each.at for each in findings)
    given_context = Context(**context)
    found = judge(findings, unknown_action=Action.OBSERVE, now=last + 1, settle_s=0, nodes=nodes, context=given_context)
    assert found is not None
    return found


def gone(*names: str, gap_s: float = 1.0) -> list[Finding]:
    return [seen("xid-79", name, index, NOW + gap_s * index) for index, name in enumerate(names)]


def test_most_of_a_jobs_nodes_are_one_event_whose_action_stays_and_is_held_back() -> None:
    wide = judged(*gone("n1", "n2", "n3"))
    assert (wide.shared, wide.action, wide.meanwhile) == (True, Action.FAILOVER, Action.RESTART_IN_PLACE)
    assert not judged(*gone("n1", "n2")).shared
    assert not judged(*gone("n1", "n2", "n3", gap_s=40)).shared


def test_nothing_is_done_while_ranks_go_on_and_a_person_is_asked_the_second_time() -> None:
    assert judged(*gone("n1", "n2", "n3"), ranks_ended=False).meanwhile is Action.OBSERVE
    assert judged(*gone("n1", "n2", "n3"), held_before=frozenset({"xid-79"})).meanwhile is Action.HOLD


def test_jobs_on_single_nodes_are_one_event_of_the_cluster() -> None:
    sightings = tuple(Sighting(code="xid-79", node=f"n{number}", at=NOW) for number in range(8))
    wide = judged(seen("xid-79", "n0"), nodes=1, sightings=sightings, cluster_nodes=288)
    assert wide.reach is not None
    assert (wide.reach.of, len(wide.reach.nodes)) == ("cluster", 8)
    assert not judged(seen("xid-79", "n0"), nodes=1, sightings=sightings[:7], cluster_nodes=288).shared


def arrived(*told: tuple[str, str]) -> list[Finding]:
    return [seen(code, node, order, NOW + order) for order, (code, node) in enumerate(told)]


WIDE = (("xid-79", "n1"), ("xid-79", "n2"), ("xid-79", "n3"))


@pytest.mark.parametrize("code", ["xid-48", "node-lost"])
@pytest.mark.parametrize("ended", [False, True])
def test_a_fault_of_one_node_is_the_root_beside_what_many_show_whatever_came_first(code: str, ended: bool) -> None:
    for told in permutations([*WIDE, (code, "n4")]):
        found = judged(*arrived(*told), ranks_ended=ended)
        assert found.root is not None
        assert (found.root.node, found.action, found.shared, found.meanwhile) == ("n4", Action.FAILOVER, False, None)
        assert found.wide == {"xid-79"}


@pytest.mark.parametrize("unknown", list(Action))
@pytest.mark.parametrize("end", ["exit-137", "exit-1"])
def test_ends_that_what_many_show_explains_give_it_no_other_root(unknown: Action, end: str) -> None:
    for told in permutations([*WIDE, (end, "n1"), (end, "n4")]):
        found = judge(arrived(*told), unknown_action=unknown, now=NOW + 9, settle_s=0, nodes=4)
        assert found is not None
        assert found.root is not None
        assert (found.root.code, found.meanwhile) == ("xid-79", Action.RESTART_IN_PLACE)


def test_a_job_that_hangs_is_started_again_while_what_many_show_is_held_back() -> None:
    for told in permutations([*WIDE, ("hang", "n4")]):
        found = judged(*arrived(*told), ranks_ended=False)
        assert (found.shared, found.meanwhile) == (True, Action.RESTART_IN_PLACE)


def test_a_class_that_policy_moves_to_another_node_is_held_back_like_any_other() -> None:
    found = judged(
        *arrived(*(("ib-call-failed", name) for name in ("n1", "n2", "n3"))), class_actions={"network": "failover"}
    )
    assert (found.shared, found.meanwhile) == (True, Action.RESTART_IN_PLACE)


@pytest.mark.parametrize("code", ["node-lost", "agent-silent"])
def test_lost_nodes_have_a_rule_of_their_own(code: str) -> None:
    sightings = [Sighting(code=code, node=f"n{number}", at=NOW) for number in range(20)]
    assert reach(code, sightings, total=20, of="cluster", rule=RadiusRule()) is None


@given(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 300)), max_size=40), st.integers(1, 120))
def test_the_largest_set_at_once_is_that_of_trying_every_window(told: list[tuple[int, int]], window: int) -> None:
    sightings = [Sighting(code="a", node=f"n{node}", at=float(at)) for node, at in told]
    sets = [{one.node for one in sightings if each.at <= one.at <= each.at + window} for each in sightings]
    assert len(most_at_once(sightings, window)) == max(map(len, sets), default=0)


def test_values_that_make_no_sense_are_refused_by_name() -> None:
    refused: list[tuple[dict[str, Any], str]] = [
        ({"share": 0}, "radius_share"),
        ({"share": 1.5}, "radius_share"),
        ({"nodes": 1}, "radius_nodes"),
        ({"window_s": 0}, "radius_window_s"),
    ]
    for values, field in refused:
        with pytest.raises(InvalidInput) as caught:
            RadiusRule(**values)
        assert caught.value.field == field


@pytest.mark.parametrize(
    ("code", "muted", "action"),
    [
        ("xid-79", {"stay": False, "quiet": False}, Action.OBSERVE),
        ("xid-79", {"observe": False, "quiet": False}, Action.RESTART_IN_PLACE),
        ("xid-79", {"observe": False, "stay": False}, Action.FAILOVER),
        ("node-lost", {"observe": False, "stay": False}, Action.OBSERVE),
        ("node-lost", {"observe": False, "quiet": False}, Action.OBSERVE),
        ("exit-1", {}, Action.RESTART_IN_PLACE),
    ],
)
def test_a_planned_time_excuses_what_it_says(code: str, muted: dict[str, bool], action: Action) -> None:
    window = Maintenance(node="n1", start=NOW - 10, end=NOW + 10, **muted)
    found = judge(
        [seen(code, "n1")],
        unknown_action=Action.RESTART_IN_PLACE,
        now=NOW + 1,
        settle_s=0,
        nodes=4,
        context=Context(maintenance=(window,)),
    )
    assert found is not None
    assert found.action is action
