"""What checks of a node find: conditions that end by themselves at the place where they began, and no noise of ends."""

import pytest

from reliability.models import Finding, Hold, Incident
from tests.services.world import World

pytestmark = [pytest.mark.django_db, pytest.mark.slow]


def find(world: World, code: str, device: str, source: str = "checks", evidence: str = "Seen.") -> None:
    find_at(world, code, {"device": device}, source, evidence)


def find_at(
    world: World, code: str, fields: dict[str, str | int], source: str = "checks", evidence: str = "Seen."
) -> None:
    body = {"code": code, "evidence": evidence, "fields": fields, "source": source}
    world.agents["s1"].report("finding", body)
    world.tick(1)


def test_a_condition_is_over_when_it_is_over_at_each_of_its_places(world: World) -> None:
    find(world, "ib-port-down", "0000:8f:00.0")
    find(world, "ib-port-down", "0000:9f:00.0")
    incident = Incident.objects.get()
    assert (incident.action, incident.fault_class, incident.findings.count()) == ("observe", "network", 2)
    find(world, "ib-port-down-over", "0000:8f:00.0")
    incident.refresh_from_db()
    assert incident.closed_at is None
    find(world, "ib-port-down-over", "0000:9f:00.0")
    incident.refresh_from_db()
    assert incident.close_reason == "It ended by itself (ib-port-down-over)."
    assert Incident.objects.count() == 1
    assert not Hold.objects.exists()


@pytest.mark.parametrize(
    ("code", "one", "other"),
    [
        ("nvlink-down", {"device": "0000:0f:00", "link": 3}, {"device": "0000:0f:00", "link": 5}),
        ("ib-port-down", {"device": "8f:00.0", "port": "m/1"}, {"device": "8f:00.0", "port": "m/2"}),
        ("probe-hang", {"check": "gpus"}, {"check": "disks"}),
    ],
)
def test_two_places_of_one_node_are_two_findings_and_the_end_of_one_leaves_the_other(
    world: World, code: str, one: dict[str, str | int], other: dict[str, str | int]
) -> None:
    find_at(world, code, one)
    find_at(world, code, other)
    assert [each.fields for each in Finding.objects.order_by("id")] == [one, other]
    find_at(world, f"{code}-over", other)
    assert Incident.objects.get().closed_at is None
    find_at(world, f"{code}-over", one)
    assert Incident.objects.get().closed_at is not None


def test_the_end_of_what_holds_a_node_is_kept_with_it_and_lifts_nothing(world: World) -> None:
    find(world, "gpu-missing", "gpus")
    find(world, "gpu-missing-over", "gpus")
    incident = Incident.objects.get()
    assert (incident.action, incident.closed_at, incident.findings.count()) == ("hold", None, 2)
    assert Hold.objects.filter(released_at=None).count() == 1


@pytest.mark.parametrize("code", ["tier-low-over", "link-up", "nfs-back"])
def test_the_end_of_something_of_which_nothing_is_open_is_no_incident(world: World, code: str) -> None:
    find(world, code, "/data")
    assert not Incident.objects.exists()
    assert not Finding.objects.exists()


def test_an_uncorrected_memory_error_that_kernel_and_counter_tell_is_one_finding(world: World) -> None:
    line = "EDAC MC2: 1 UE memory read error on CPU_SrcID#1_MC#2_Chan#0_DIMM#1 (channel:0 slot:1 page:0x7e025e)"
    world.agents["s1"].report("finding", {"code": "memory-uncorrected", "evidence": line})
    world.tick(1)
    fields = {"controller": "MC2", "module": "CPU_SrcID#1_MC#2_Chan#0_DIMM#1"}
    body = {"code": "memory-uncorrected", "evidence": "EDAC counted 1.", "fields": fields, "source": "checks"}
    world.agents["s1"].report("finding", body)
    world.tick(1)
    found = Finding.objects.get()
    assert (found.count, found.source) == (1, "agent, checks")
    assert Incident.objects.get().action == "hold"
