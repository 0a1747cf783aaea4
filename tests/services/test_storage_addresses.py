"""Storage by address on the server's side: what a job may name, whose addresses are believed, what people read."""

import pytest

from reliability.errors import InvalidInput
from reliability.models import Finding, Job, Report, SnapshotCopy
from reliability.services import launch, reports
from tests.services.world import World

pytestmark = pytest.mark.django_db
STORE = "s3://bucket/team"


def test_a_job_may_name_an_object_store(bare_world: World) -> None:
    bare_world.submit(storage_dir=STORE)
    assert Job.objects.get().storage_dir == STORE


@pytest.mark.parametrize("address", ["ftp://host/x", "s3://key:secret@bucket/x", "s3://bucket/x?sig=secret"])
def test_an_address_that_is_none_or_holds_a_secret_is_refused(bare_world: World, address: str) -> None:
    with pytest.raises(InvalidInput, match="storage_dir") as told:
        bare_world.submit(storage_dir=address)
    assert "secret" not in told.value.message
    assert "az://container/prefix" in told.value.hint


def test_two_jobs_are_told_apart_though_they_have_one_name_in_two_installations(bare_world: World) -> None:
    first = bare_world.submit("lm", storage_dir=STORE)
    key = launch.key_of(first)
    assert launch.key_of(Job.objects.get()) == key
    first.delete()
    assert launch.key_of(bare_world.submit("lm", storage_dir=STORE)) != key


def _stored(world: World, path: str) -> None:
    body = {"snapshot_epoch": 1, "step": 40, "rank": 0, "tier": "storage", "path": path, "size_bytes": 1}
    world.agents["n1"].report("snapshot_copy", {**body, "digest": "blake2b:00", "stall_s": None})
    reports.process_new()


@pytest.mark.slow
def test_a_copy_elsewhere_than_below_the_jobs_own_address_is_not_believed(world: World) -> None:
    job = world.running_job(storage_dir=STORE)
    for path in ("s3://other/team/lm/e1/s40-r0.snap", "s3://bucket/team/lm2/e1/s40-r0.snap"):
        _stored(world, path)
    assert Report.objects.filter(state=Report.State.REFUSED, kind="snapshot_copy").count() == 2
    _stored(world, f"{STORE}/lm/e1/s40-r0.snap")
    assert SnapshotCopy.objects.get(snapshot__job=job, snapshot__step=40).path.startswith(STORE)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("tier_unreachable", "store-unreachable"),
        ("tier_conflict", "store-conflict"),
        ("tier_full", "disk-full"),
        ("digest_mismatch", "snapshot-problem"),
    ],
)
def test_a_trouble_of_storage_is_told_by_its_own_code_and_blames_no_copy(world: World, said: str, told: str) -> None:
    job = world.running_job(storage_dir=STORE)
    _stored(world, f"{STORE}/lm/e1/s40-r0.snap")
    body = {"snapshot_epoch": 1, "step": 40, "rank": 0, "tier": "storage", "code": said, "message": "Why."}
    world.agents["n1"].report("snapshot_problem", body)
    reports.process_new()
    assert Finding.objects.filter(job=job, code=told).exists()
    state = SnapshotCopy.objects.get(snapshot__step=40).state
    assert state == ("corrupt" if said == "digest_mismatch" else "committed")


@pytest.mark.slow
@pytest.mark.parametrize("tier", ["memory", "ssd", "storage"])
def test_a_place_that_another_job_of_this_name_uses_is_told_for_every_tier(world: World, tier: str) -> None:
    job = world.running_job(storage_dir=STORE)
    nowhere = {"snapshot_epoch": None, "step": None, "rank": None}
    body = {**nowhere, "tier": tier, "code": "tier_conflict", "message": "In use by node b.", "hint": "Another name."}
    world.agents["n1"].report("snapshot_problem", body)
    reports.process_new()
    found = Finding.objects.get(job=job, code="store-conflict")
    assert "In use by node b." in found.evidence
