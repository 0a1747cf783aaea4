"""Checks of standbys, and the reconciler that keeps everything going."""

from datetime import timedelta

import pytest

from reliability.domain.standby import Verdict
from reliability.models import Failover, Hold, Job, Lease, Node, Validation
from reliability.selectors import core
from reliability.services import clock, jobs, losses, nodes, probes, reconcile, validations
from tests.services.world import World

pytestmark = [pytest.mark.django_db, pytest.mark.slow]


def test_standbys_are_checked_in_the_background_and_again_before_they_are_too_old(world: World) -> None:
    world.until(lambda: Validation.objects.filter(verdict="pass").count() == 4)
    assert {row.node.name for row in Validation.objects.all()} == {"s1", "s2"}
    for _ in range(5):
        world.tick()
    assert Validation.objects.count() == 4
    world.pass_time(0.85 * 900)
    world.until(lambda: Validation.objects.filter(verdict="pass").count() == 8)


def test_no_check_is_begun_in_the_background_when_it_is_switched_off(world: World, settings: object) -> None:
    Validation.objects.all().delete()
    settings.VALIDATE_STANDBYS = False  # type: ignore[attr-defined]
    for _ in range(5):
        world.tick()
    assert not Validation.objects.exists()


def test_bandwidth_is_judged_against_a_pair_measured_in_the_same_run(world: World) -> None:
    world.until(lambda: Validation.objects.filter(node__name="s1", verdict="pass").count() == 2)
    measured = Validation.objects.get(node__name="s1", check_kind="bandwidth").measured
    pairs = {(pair["first"], pair["second"]) for pair in measured["pairs"]}
    assert len({frozenset(pair) for pair in pairs}) == 3
    assert any("s1" not in pair for pair in pairs)
    assert "s2" in measured["peers"]  # another standby before a node that trains


def test_a_peer_that_does_not_answer_is_replaced_and_blamed_for_nothing(world: World) -> None:
    error = {"code": "failed", "message": "no port", "hint": ""}
    Validation.objects.all().delete()
    world.agents["s2"].replies["probe_serve"] = lambda order: {"status": "failed", "error": error}
    validations.begin(Node.objects.get(name="s1"))
    world.until(lambda: Validation.objects.filter(node__name="s1", verdict="pass").count() == 2)
    assert Validation.objects.get(node__name="s1", check_kind="bandwidth").measured["bad_peers"] == ["s2"]
    assert not Hold.objects.exists()


@pytest.mark.parametrize(
    ("reply", "verdict"),
    [
        ({"status": "failed", "error": {"code": "crashed", "message": "The probe crashed."}}, "crash"),
        ({"status": "failed", "error": {"code": "timeout", "message": "The probe took too long."}}, "timeout"),
        ({"status": "done", "result": {"digests": ["a"]}}, "fail"),
        ({"status": "done", "result": {}}, "fail"),
        ({"status": "done", "result": {"digests": ["a", "a", "a", "b"]}}, "fail"),
    ],
)
def test_anything_but_the_right_bits_in_every_round_holds_the_node(
    world: World, reply: dict[str, object], verdict: str
) -> None:
    Validation.objects.all().delete()
    world.agents["s1"].replies["probe_sdc"] = lambda order: reply if order.node == "s1" else None
    validations.begin(Node.objects.get(name="s1"))
    world.until(lambda: Validation.objects.filter(node__name="s1", check_kind="sdc").exclude(verdict="").exists())
    assert Validation.objects.get(node__name="s1", check_kind="sdc").verdict == verdict
    assert Hold.objects.get(node__name="s1").owner == nodes.AUTOMATION
    assert not validations.is_fresh(Node.objects.get(name="s1"))


def test_a_node_that_computes_wrongly_does_not_have_the_right_ones_held(bare_world: World) -> None:
    for name in ("s1", "s2", "s3"):
        bare_world.node(name)
    bare_world.agents["s1"].digest = "wrong"
    bare_world.until(lambda: Validation.objects.filter(verdict="pass", check_kind="sdc").count() == 2)
    assert [hold.node.name for hold in Hold.objects.all()] == ["s1"]


@pytest.mark.parametrize(("others", "told"), [(0, "could not be judged"), (1, "only other node")])
def test_with_too_few_nodes_the_weaker_rule_is_written_into_the_result(
    bare_world: World, others: int, told: str
) -> None:
    for index in range(others + 1):
        bare_world.node(f"s{index}")
    passed = 1 + others  # what could not be measured is no pass
    bare_world.until(lambda: Validation.objects.filter(node__name="s0").exclude(ended_at=None).count() == 2)
    assert Validation.objects.filter(node__name="s0", verdict="pass").count() == passed
    assert told in Validation.objects.get(node__name="s0", check_kind="bandwidth").reason


def test_a_check_is_begun_once_however_often_it_is_asked_for(world: World) -> None:
    Validation.objects.all().delete()
    node = Node.objects.get(name="s1")
    for _ in range(3):
        validations.begin(node)
    assert Validation.objects.filter(node=node).count() == 2


def test_peers_are_healthy_unheld_and_idle_first(world: World) -> None:
    world.running_job()
    nodes.hold(Node.objects.get(name="s2"), owner="bob", reason="x")
    Node.objects.filter(name="n1").update(health="unreachable")
    found = probes.peers(Node.objects.get(name="s1"), without=["n2"], most=5)
    assert [peer.name for peer in found] == ["n3"]


def test_a_hold_of_a_person_is_not_lifted_by_anything_else(world: World) -> None:
    hold = nodes.hold(Node.objects.get(name="s1"), owner="bob", reason="fan")
    for _ in range(10):
        world.tick()
    hold.refresh_from_db()
    assert hold.released_at is None
    nodes.release_hold(hold, by="bob")
    hold.refresh_from_db()
    assert hold.released_by == "bob"


def test_one_piece_that_fails_stops_no_other(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    job = world.submit()
    jobs.start(job, by="ann")

    def broken(now: object) -> None:
        raise RuntimeError("poison row")

    monkeypatch.setattr(reconcile, "PIECES", (("Looking for lost nodes", broken, 0.0), *reconcile.PIECES))
    reconcile.run(clock.now())
    assert world.job().state == Job.State.STARTING
    assert "poison row" in caplog.text


def test_one_poison_recovery_stops_no_other_job(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []

    def advance(failover_id: int) -> None:
        seen.append(failover_id)
        raise RuntimeError("poison")

    world.running_job()
    world.agents["n1"].replies["restore"] = lambda order: None
    world.save(20)
    world.agents["n2"].rank_dies(1, 137)
    world.until(Failover.objects.exists)
    monkeypatch.setattr(reconcile, "advance", advance)
    Node.objects.filter(name="s1").update(health="unknown")
    reconcile.run(clock.now())
    assert seen
    assert Node.objects.get(name="s1").health == "healthy"


def test_two_controllers_do_not_reconcile_side_by_side(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    assert reconcile.run(clock.now())
    Lease.objects.update(holder="another", until=clock.now() + timedelta(seconds=5))
    assert not reconcile.run(clock.now())
    world.pass_time(6)
    losses.look(clock.now())
    assert reconcile.run(clock.now())


def test_a_lost_lease_holder_is_replaced_when_its_time_is_over(world: World) -> None:
    Lease.objects.update(holder="dead", until=clock.now() + timedelta(seconds=20))
    world.pass_time(21)
    assert reconcile.run(clock.now())


def test_a_validation_counts_as_passed_only_when_every_check_passed(world: World) -> None:
    node = Node.objects.get(name="s1")
    Validation.objects.all().delete()
    now = clock.now()
    Validation.objects.create(node=node, check_kind="sdc", verdict="pass", started_at=now, ended_at=now)
    assert core.validation_of(node) == (None, None)
    Validation.objects.create(node=node, check_kind="bandwidth", verdict="pass", started_at=now, ended_at=now)
    assert core.validation_of(node)[0] is Verdict.PASS
