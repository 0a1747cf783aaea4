"""Checks that nodes tell of, what they come to, what little of it is written, and who may use a node then."""

import threading
from datetime import timedelta
from typing import Any

import pytest
from django.db import connections

from reliability.agent.clock import steady
from reliability.agent.collectors.standing import Standings
from reliability.domain.health import NodeHealth, Rules
from reliability.domain.reports import parse_batch
from reliability.domain.standby import rank_candidates
from reliability.errors import DomainError, InvalidInput
from reliability.models import Failover, Hold, MaintenanceWindow, Node, NodeCheck, NodeEvent
from reliability.selectors import core, node_history, standbys
from reliability.services import beats, clock, holds, jobs, keeping, node_checks, node_health, nodes
from reliability.services.node_events import AUTOMATION
from tests.services.world import World

pytestmark = pytest.mark.django_db
RULES = Rules()


def told(ok: bool | None = True, *, age_s: float | None = 0.5, limit_s: float = 35.0, **more: Any) -> dict[str, Any]:
    return {"ok": ok, "age_s": age_s, "limit_s": limit_s, **more}


def say(world: World, name: str, checks: dict[str, Any] | None) -> None:
    """Send a heartbeat that carries these checks, and have it written."""
    agent = world.agents[name]
    beat: dict[str, Any] = {"jobs": [], "spooled": 0, "disks": {}}
    if checks is not None:
        beat["checks"] = checks
    raw = {"node": name, "incarnation": agent.incarnation, "heartbeat": beat}
    beats.remember(name, parse_batch(raw).heartbeat, clock.now())
    beats.flush(clock.now())


def goes_by(world: World, name: str, checks: dict[str, Any] | None, seconds: float) -> str:
    """Let time pass in which the node tells the same, and return its health."""
    for _ in range(int(seconds)):
        world.pass_time(1)
        say(world, name, checks)
        nodes.sweep(clock.now())
    return Node.objects.get(name=name).health


@pytest.fixture
def node(bare_world: World) -> World:
    bare_world.node("s1")
    say(bare_world, "s1", None)
    return bare_world


def test_an_agent_without_checks_is_healthy_and_has_none(node: World) -> None:
    assert goes_by(node, "s1", None, 3) == NodeHealth.HEALTHY
    assert not NodeCheck.objects.exists()


def test_a_probe_that_hangs_makes_a_node_unknown_and_moves_nothing(node: World) -> None:
    goes_by(node, "s1", {"gpu": told(), "disk": told()}, 2)
    hung = {"gpu": told(None, age_s=12.0, reason="Check gpu did not return within 5 s."), "disk": told()}
    assert goes_by(node, "s1", hung, RULES.debounce_s - 2) == NodeHealth.HEALTHY
    assert goes_by(node, "s1", hung, 4) == NodeHealth.UNKNOWN
    found = Node.objects.get(name="s1")
    assert "gpu" in found.health_reason
    assert "did not return" in found.health_reason
    fresh = NodeCheck.objects.get(name="disk")
    assert fresh.ok
    assert fresh.stale_at is not None
    assert fresh.stale_at > clock.now()
    assert not Failover.objects.exists()


def test_a_check_that_is_not_told_anew_is_out_of_date_by_its_own_limit(node: World) -> None:
    goes_by(node, "s1", {"disk": told(limit_s=20.0)}, 2)
    old = {"disk": told(age_s=0.5, limit_s=20.0)}
    for second in range(40):
        old["disk"]["age_s"] = 0.5 + second
        health = goes_by(node, "s1", old, 1)
    assert health == NodeHealth.UNKNOWN
    assert "out of date" in Node.objects.get(name="s1").health_reason


def test_a_check_that_fails_degrades_and_its_end_counts_after_the_stable_time(node: World) -> None:
    goes_by(node, "s1", {"disk": told()}, 2)
    bad = {"disk": told(False, reason="2 % free")}
    assert goes_by(node, "s1", bad, RULES.debounce_s + 2) == NodeHealth.DEGRADED
    good = {"disk": told()}
    assert goes_by(node, "s1", good, RULES.stable_s - 3) == NodeHealth.DEGRADED
    assert goes_by(node, "s1", good, 5) == NodeHealth.HEALTHY
    texts = list(NodeEvent.objects.filter(kind="health").order_by("pk").values_list("text", flat=True))
    assert any("From healthy to degraded" in text and "2 % free" in text for text in texts)
    assert texts[-1] == "From degraded to healthy."


def test_a_node_that_flaps_stays_degraded_and_says_so(node: World) -> None:
    goes_by(node, "s1", {"link": told()}, 2)
    for _ in range(RULES.flaps):
        goes_by(node, "s1", {"link": told(False)}, 2)
        goes_by(node, "s1", {"link": told()}, 2)
    assert Node.objects.get(name="s1").health == NodeHealth.DEGRADED
    assert "to and fro" in Node.objects.get(name="s1").health_reason


def _fell_silent(node: Node, seconds_ago: float) -> None:
    at = clock.now() - timedelta(seconds=seconds_ago)
    NodeEvent.objects.create(node=node, kind="health", at=at, text="x", worse=True)


def test_planned_restarts_and_a_control_plane_that_comes_and_goes_make_no_node_flap(world: World) -> None:
    for number in range(RULES.flaps):
        for name in ("n1", "n2", "n3", "s1"):
            _fell_silent(Node.objects.get(name=name), 60 * number + 20)
    nodes.sweep(clock.now())
    assert set(Node.objects.values_list("health", flat=True)) == {"healthy"}, "most at once: our own side"
    NodeEvent.objects.all().delete()
    for name in ("n1", "n2"):
        for number in range(RULES.flaps):
            _fell_silent(Node.objects.get(name=name), 60 * number + 20)
    window = MaintenanceWindow.objects.create(
        scope="nodes", starts_at=clock.now() - timedelta(hours=1), ends_at=clock.now(), planned_until=clock.now(),
        reason="firmware", planned_by="ann", planned_at=clock.now(),
    )  # fmt: skip
    window.nodes.add(Node.objects.get(name="n1"))
    nodes.sweep(clock.now())
    assert Node.objects.get(name="n1").health == NodeHealth.HEALTHY
    assert Node.objects.get(name="n2").health == NodeHealth.DEGRADED


def test_the_first_result_of_a_check_is_awaited_for_its_limit(node: World) -> None:
    waiting = {"gpu": told(None, age_s=0.0, limit_s=25.0, reason="It has not ended yet.")}
    assert goes_by(node, "s1", waiting, 20) == NodeHealth.HEALTHY
    assert goes_by(node, "s1", {"gpu": told()}, 1) == NodeHealth.HEALTHY
    assert not NodeEvent.objects.filter(kind="check").exists(), "what was awaited came"
    node.agents["s1"].join()
    assert goes_by(node, "s1", waiting, 20) == NodeHealth.HEALTHY
    assert goes_by(node, "s1", waiting, 20) == NodeHealth.UNKNOWN


def test_a_new_life_of_the_agent_begins_without_the_checks_of_the_old_one(node: World) -> None:
    goes_by(node, "s1", {"gpu": told(None, age_s=None)}, 2)
    node.agents["s1"].join()
    assert not NodeCheck.objects.exists()
    say(node, "s1", {"gpu": told()})
    assert NodeCheck.objects.get().ok


def test_unchanged_checks_are_written_now_and_then_only(
    node: World, django_assert_num_queries: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    goes_by(node, "s1", {"disk": told(), "gpu": told(limit_s=400.0)}, 1)
    begun = NodeCheck.objects.get(name="disk").checked_at
    for _ in range(8):
        goes_by(node, "s1", {"disk": told(), "gpu": told(limit_s=400.0)}, 1)
    assert NodeCheck.objects.get(name="disk").checked_at == begun
    known = Node.objects.get(name="s1")
    same = node_checks.Told(clock.now(), {name: _beat(name) for name in ("disk", "gpu")})
    with django_assert_num_queries(0):
        node_checks.write({"s1": same}, [known])
    goes_by(node, "s1", {"disk": told(), "gpu": told(limit_s=400.0)}, 4)
    assert NodeCheck.objects.get(name="disk").checked_at > begun
    assert (clock.now() - NodeCheck.objects.get(name="gpu").checked_at).total_seconds() > 12


def _beat(name: str) -> Any:
    limits = {"disk": 35.0, "gpu": 400.0}
    raw = {"node": "s1", "incarnation": "x", "heartbeat": {"checks": {name: told(limit_s=limits[name])}}}
    heartbeat = parse_batch(raw).heartbeat
    assert heartbeat is not None
    assert heartbeat.checks is not None
    return heartbeat.checks[name]


def test_a_round_over_many_nodes_takes_as_many_queries_as_over_one(
    node: World, django_assert_max_num_queries: Any
) -> None:
    for number in range(8):
        node.node(f"x{number}")
        say(node, f"x{number}", {"disk": told(False)})
    nodes.sweep(clock.now())
    with django_assert_max_num_queries(9):
        nodes.sweep(clock.now())


@pytest.mark.parametrize(
    ("checks", "field"),
    [
        ({"gpu": {"ok": "yes", "limit_s": 5}}, "heartbeat.checks.gpu.ok"),
        ({"gpu": {"ok": True}}, "heartbeat.checks.gpu.limit_s"),
        ({"gpu": {"ok": True, "limit_s": 0}}, "heartbeat.checks.gpu.limit_s"),
        ({"gpu": {"ok": True, "limit_s": 5, "age_s": -1}}, "heartbeat.checks.gpu.age_s"),
        ({"gpu": {"ok": True, "limit_s": 5, "measured": {"x": "y" * 5000}}}, "heartbeat.checks.gpu.measured"),
        ({str(number): {"ok": True, "limit_s": 5} for number in range(65)}, "heartbeat.checks"),
        ({"": {"ok": True, "limit_s": 5}}, "heartbeat.checks"),
    ],
)
def test_checks_that_make_no_sense_are_refused_by_the_name_of_the_field(checks: Any, field: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        parse_batch({"node": "s1", "incarnation": "x", "heartbeat": {"checks": checks}})
    assert refused.value.field == field


@pytest.mark.parametrize(("wanted", "placed"), [(2, {"n2", "n3"}), (3, {"n1", "n2", "n3"})])
def test_a_job_takes_healthy_nodes_first_and_degraded_ones_rather_than_none(
    world: World, wanted: int, placed: set[str]
) -> None:
    Node.objects.filter(name="n1").update(health="degraded", health_reason="Corrected errors.")
    Node.objects.filter(name="s1").update(health="unknown")
    Node.objects.filter(name="s2").update(health="unhealthy")
    job = world.submit(nodes=wanted)
    jobs.start(job, by="ann")
    jobs.drive(job.pk)
    assert {slot.node.name for slot in core.slots_of(world.job()) if slot.node} == placed


def test_a_standby_that_is_not_known_to_be_well_is_used_only_when_there_is_no_other(world: World) -> None:
    job = world.running_job()
    Node.objects.filter(name="s1").update(health="unknown", health_reason="Check gpu gave no result.")
    ranked = rank_candidates(standbys.candidates(job, now=clock.now()), max_age_s=900)
    assert [each.candidate.node for each in ranked if each.eligible] == ["s2", "s1"]
    assert any("Check gpu gave no result." in reason for reason in ranked[1].reasons)
    Node.objects.filter(name="s1").update(health="unhealthy", health_reason="Bad board.")
    ranked = rank_candidates(standbys.candidates(job, now=clock.now()), max_age_s=900)
    assert [each.candidate.node for each in ranked if each.eligible] == ["s2"]
    assert ranked[1].reasons == ("Not healthy: Bad board.",)


def test_what_an_agent_tells_of_its_checks_is_what_is_kept(node: World) -> None:
    standings = Standings()
    standings.expect("gpus", 35.0)
    standings.expect("disks", 65.0)
    standings.note("disks", False, "2 % free", {"free_share": 0.02}, ended_at=steady() - 4.0)
    say(node, "s1", standings.told())
    kept = {row.name: row for row in NodeCheck.objects.all()}
    assert (kept["disks"].ok, kept["disks"].reason, kept["disks"].measured) == (False, "2 % free", {"free_share": 0.02})
    assert kept["disks"].checked_at is not None
    assert (clock.now() - kept["disks"].checked_at).total_seconds() >= 4.0
    assert kept["gpus"].ok is None
    assert node_history.check_state(kept["gpus"], clock.now()) == "awaited"


def test_old_events_of_checks_are_forgotten_and_what_people_did_is_not(node: World) -> None:
    target = node.agents["s1"].node
    NodeEvent.objects.all().delete()
    for kind in NodeEvent.Kind.values:
        NodeEvent.objects.create(node=target, kind=kind, text="x", at=clock.now() - timedelta(days=91))
    keeping.forget_old(clock.now())
    assert set(NodeEvent.objects.values_list("kind", flat=True)) == {"hold", "quarantine", "hardware"}


def test_automation_lifts_only_its_own_holds(node: World) -> None:
    held = nodes.hold(node.agents["s1"].node, owner="bob", reason="fan")
    with pytest.raises(DomainError, match="only its own"):
        nodes.release_hold(held, by=AUTOMATION)
    own = nodes.hold(node.agents["s1"].node, owner=AUTOMATION, reason="bandwidth")
    assert nodes.release_hold(own, by=AUTOMATION)
    assert Hold.objects.get(pk=held.pk).released_at is None


def test_another_persons_hold_is_lifted_with_a_word_of_why_and_only_once(node: World) -> None:
    held = nodes.hold(node.agents["s1"].node, owner="bob", reason="fan")
    with pytest.raises(InvalidInput, match="note"):
        nodes.release_hold(held, by="ann")
    assert nodes.release_hold(held, by="ann", note="Fan replaced")
    assert not nodes.release_hold(held, by="cid", note="Me too")
    kept = Hold.objects.get(pk=held.pk)
    assert (kept.released_by, kept.release_note) == ("ann", "Fan replaced")
    event = NodeEvent.objects.filter(kind="hold").latest("pk")
    assert (event.actor, "Fan replaced" in event.text) == ("ann", True)


def test_several_holds_stand_at_once_and_one_with_an_end_ends_by_itself(node: World) -> None:
    at = clock.now()
    target = node.agents["s1"].node
    nodes.hold(target, owner="bob", reason="fan", until=at + timedelta(minutes=5))
    nodes.hold(target, owner="ann", reason="moving racks")
    with pytest.raises(InvalidInput, match="until"):
        nodes.hold(target, owner="ann", reason="x", until=at)
    assert holds.expire(at + timedelta(minutes=4)) == 0
    assert holds.expire(at + timedelta(minutes=5)) == 1
    assert [hold.owner for hold in Hold.objects.filter(released_at=None)] == ["ann"]


def test_a_silent_node_is_unreachable_and_heard_again_it_is_what_it_was(node: World) -> None:
    node.pass_time(8)
    beats.flush(clock.now())
    for _ in range(8):
        node.pass_time(1)
        beats.flush(clock.now())
        nodes.sweep(clock.now())
    found = Node.objects.get(name="s1")
    assert found.health == NodeHealth.UNREACHABLE
    assert "no failure" in found.health_reason
    assert goes_by(node, "s1", None, 2) == NodeHealth.HEALTHY


@pytest.mark.django_db(transaction=True)
@pytest.mark.slow
def test_two_who_hold_at_once_are_one_hold(bare_world: World) -> None:
    bare_world.node("s1")
    target, ready = Node.objects.get(name="s1"), threading.Barrier(2)

    def ask() -> None:
        ready.wait(10)
        try:
            nodes.hold(target, owner=AUTOMATION, reason="same")
        finally:
            connections.close_all()

    threads = [threading.Thread(target=ask) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert Hold.objects.count() == 1


def test_a_check_that_cannot_be_kept_makes_no_node_silent(node: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_values: Any) -> None:
        list(Node.objects.extra(where=["no_such_column = 1"]))

    monkeypatch.setattr(node_checks, "_write_node", broken)
    node.pass_time(3)
    say(node, "s1", {"disk": told()})
    assert Node.objects.get(name="s1").last_seen_at == clock.now()
    monkeypatch.undo()
    assert not NodeCheck.objects.exists()


def test_the_condition_is_written_only_when_it_changed(node: World, monkeypatch: pytest.MonkeyPatch) -> None:
    goes_by(node, "s1", {"disk": told(False)}, RULES.debounce_s + 2)
    saved: list[Any] = []
    monkeypatch.setattr(node_health, "_save", lambda *values: saved.append(values))
    nodes.sweep(clock.now())
    assert saved == []
