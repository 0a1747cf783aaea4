"""What lasts is told once, and remembered: it explains later why training stopped, until something says it is over."""

from datetime import timedelta

import pytest
from django.contrib.auth.models import User

from reliability.models import Failover, Finding, Incident, IncidentEvent, Job, NodeCheck
from reliability.services import clock, incident_closing, jobs
from reliability.services.quiet_incidents import QUIET_S
from tests.services.world import World

pytestmark = [pytest.mark.django_db, pytest.mark.slow]
CLOSED = "RuntimeError: [../third_party/gloo/gloo/transport/tcp/pair.cc:534] Connection closed by peer [192.0.2.1]:1024"
STUCK = "mlx5_core 0000:4c:00.0: Port module event[error]: module 0, Cable error, Bus stuck (I2C or data shorted)"


def find(world: World, name: str, code: str, fields: dict[str, str] | None = None, evidence: str = "Seen.") -> None:
    body = {"code": code, "evidence": evidence, "fields": fields or {}, "source": "checks"}
    world.agents[name].report("finding", body)
    world.tick(1)


def stops(world: World, code: int = 1, tail: str = CLOSED) -> Failover:
    """Have a rank of n1 end, and return the recovery that answers it, once it is over."""
    before = Failover.objects.count()
    world.agents["n1"].rank_dies(0, code, tail=tail)
    world.until(lambda: Failover.objects.count() > before and world.failover().ended_at is not None, seconds=60)
    return world.failover()


def test_what_stands_keeps_its_incident_open_and_explains_much_later_why_training_stopped(
    world: World,
) -> None:
    world.running_job(approval="automatic")
    world.save(20)
    find(world, "n2", "net-link-down", {"device": "eth1"})
    long_ago = clock.now() - timedelta(seconds=QUIET_S + 60)
    Incident.objects.update(opened_at=long_ago)
    Finding.objects.update(found_at=long_ago, last_at=long_ago)
    world.tick(1)
    assert Incident.objects.get().closed_at is None
    began = clock.now()
    last = stops(world)
    assert (last.kind, last.failed_node) == ("failover", world.agents["n2"].node), last.incident.reasons
    assert last.fault_at >= began


@pytest.mark.parametrize("code", ["net-link-down", "ib-port-down"])
def test_what_an_earlier_attempt_left_standing_explains_the_end_of_the_next(world: World, code: str) -> None:
    world.running_job(approval="automatic")
    world.save(20)
    find(world, "n2", code, {"device": "x"})
    assert stops(world, tail="ValueError: wrong").kind == "restart_in_place"
    assert not Incident.objects.filter(closed_at=None).exists()
    world.tick(30)
    last = stops(world)
    assert (last.kind, last.failed_node) == ("failover", world.agents["n2"].node), last.incident.reasons
    assert (last.incident.code, last.incident.node) == (code, world.agents["n2"].node)


@pytest.mark.parametrize("code", ["shared-memory-full", "net-link-down"])
def test_what_began_in_an_earlier_job_is_over_in_its_incident_and_opens_none_of_the_next_job(
    world: World, code: str
) -> None:
    first = world.running_job(approval="automatic")
    find(world, "n2", code, {"device": "x"})
    (incident,) = Incident.objects.all()
    jobs.stop(first, by="ann")
    world.until(lambda: world.job().state == Job.State.STOPPED)
    Incident.objects.update(closed_at=None)  # it stands: nothing closed it
    world.running_job("next")
    find(world, "n2", f"{code}-over", {"device": "x"})
    world.tick(1)
    assert Finding.objects.get(code=f"{code}-over").incident == incident
    assert list(Incident.objects.all()) == [incident]


@pytest.mark.parametrize("how", ["over", "check", "person", "another node", "old"])
def test_what_is_over_explains_nothing(world: World, how: str) -> None:
    world.running_job(approval="automatic")
    world.save(20)
    find(world, "s1" if how == "another node" else "n2", "net-link-down", {"device": "eth1"})
    incident, node = Incident.objects.get(), world.agents["n2"].node
    now = clock.now()
    if how == "over":
        find(world, "n2", "net-link-down-over", {"device": "eth1"})
    elif how == "check":
        NodeCheck.objects.create(
            node=node, name="links", ok=True, limit_s=30, since=now, checked_at=now, stale_at=now + timedelta(hours=1)
        )
    elif how == "person":
        ada = User.objects.create_superuser("ada", password="a-long-password")
        incident_closing.close(incident, by=ada, note="Cable replaced.")
        assert IncidentEvent.objects.filter(kind="closed").exists()
    elif how == "old":
        Finding.objects.update(found_at=now - timedelta(hours=25))
    if how != "person":
        Incident.objects.update(closed_at=clock.now())
    assert stops(world).kind == "restart_in_place"


@pytest.mark.parametrize(
    ("code", "evidence", "first"),
    [("cable-error", STUCK, "ValueError: wrong"), ("ib-ports-missing", "only 7 port(s) are active", CLOSED)],
)
def test_what_is_acted_on_after_a_while_is_acted_on_though_something_else_was_decided_before(
    world: World, code: str, evidence: str, first: str
) -> None:
    world.running_job(approval="automatic")
    world.save(20)
    find(world, "n2", code, evidence=evidence)
    assert stops(world, tail=first).kind == "restart_in_place"
    assert Finding.objects.get(code=code).incident is None
    world.until(lambda: world.failover().kind == "failover", seconds=60)
    assert world.failover().failed_node == world.agents["n2"].node
    world.until(lambda: world.failover().ended_at is not None, seconds=60)
    assert Finding.objects.get(code=code).incident == world.failover().incident


def test_what_ends_before_it_is_acted_on_moves_nothing(world: World) -> None:
    world.running_job(approval="automatic")
    world.save(20)
    find(world, "n2", "ib-ports-missing", evidence="only 7 port(s) are active")
    assert stops(world, tail="ValueError: wrong").kind == "restart_in_place"
    find(world, "n2", "ib-ports-missing-over")
    for _ in range(8):
        world.tick(5)
    assert Failover.objects.count() == 1
    assert not Finding.objects.filter(incident=None).exists()
