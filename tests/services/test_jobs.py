"""Jobs: what is refused at the door, and what brings one up or says why not."""

from pathlib import Path
from typing import Any

import pytest

from reliability.errors import DomainError, InvalidInput
from reliability.models import Job, Node, OrderRecord
from reliability.selectors import core
from reliability.services import jobs, nodes, orders
from tests.services.world import World

pytestmark = pytest.mark.django_db


def test_all_bad_fields_of_a_file_are_told_at_once(bare_world: World) -> None:
    with pytest.raises(InvalidInput) as caught:
        bare_world.submit(nodes=0, mode="odd", colour="blue")
    assert caught.value.field == "colour"
    for told in ("nodes: ", "mode: "):
        assert told in caught.value.hint


@pytest.mark.parametrize(
    ("field", "value", "told"),
    [
        ("name", "no spaces here", "not a name"),
        ("nodes", 0, "out of range"),
        ("nodes", True, "not a whole number"),
        ("runtime", "podman", "not one of the words"),
        ("program", [], "is empty"),
        ("program", "train.py", "not a list"),
        ("approval", "maybe", "not one of the words"),
        ("env", {"STEPKEEPER_JOB": "x"}, "set by Stepkeeper"),
        ("env", {"A": 1}, "not a variable"),
        ("storage_dir", "relative/folder", "not absolute"),
        ("storage_dir", "/etc/hostname", "not a folder"),
        ("storage_dir", "/proc/stepkeeper", "cannot be written"),
        ("workdir", "here", "not absolute"),
        ("image", "python:3", "means nothing"),
        ("colour", "blue", "no field of a job"),
        ("every_steps", 0, "out of range"),
    ],
)
def test_a_bad_field_is_refused_by_name(bare_world: World, field: str, value: Any, told: str) -> None:
    with pytest.raises(InvalidInput, match=told) as caught:
        bare_world.submit(**{field: value}) if field != "name" else bare_world.submit(value)
    assert caught.value.field.startswith(field)
    assert caught.value.hint
    assert not Job.objects.exists()


def test_a_job_in_containers_needs_an_image(bare_world: World) -> None:
    with pytest.raises(InvalidInput, match="image"):
        bare_world.submit(runtime="docker")


def test_a_name_is_given_once(bare_world: World) -> None:
    bare_world.submit("lm")
    with pytest.raises(InvalidInput, match="taken"):
        bare_world.submit("lm")


def test_a_storage_folder_on_this_machine_is_made_and_tried(bare_world: World, tmp_path: Path) -> None:
    bare_world.submit(storage_dir=str(tmp_path / "store"))
    assert (tmp_path / "store").is_dir()
    assert list((tmp_path / "store").iterdir()) == []


def test_without_enough_nodes_it_waits_and_says_so_and_starts_by_itself(bare_world: World) -> None:
    for name in ("n1", "n2"):
        bare_world.node(name, "training")
    bare_world.tick()
    jobs.start(bare_world.submit(), by="ann")
    bare_world.tick()
    job = bare_world.job()
    assert job.state == Job.State.PENDING
    assert "2 of 3" in job.state_reason
    bare_world.node("n3", "training")
    bare_world.until(lambda: bare_world.job().state == Job.State.RUNNING)


def test_held_and_unfit_nodes_are_not_used(world: World) -> None:
    nodes.hold(Node.objects.get(name="n1"), owner="bob", reason="fan")
    world.running_job()
    assert [slot.node.name for slot in core.slots_of(world.job()) if slot.node] == ["n2", "n3", "s2"]


def test_a_missing_image_fails_the_job_with_what_to_do_and_it_may_be_started_again(world: World) -> None:
    error = {"code": "image_missing", "message": "No image x.", "hint": "Check the image reference."}
    agent = world.agents["n2"]
    agent.replies["prepare"] = lambda order: {"status": "failed", "error": error}
    jobs.start(world.submit(), by="ann")
    world.until(lambda: world.job().state == Job.State.FAILED)
    job = world.job()
    assert "image_missing" in job.state_reason
    assert "Check the image reference." in job.state_reason
    assert not core.active_slots().exists()
    del agent.replies["prepare"]
    jobs.start(job, by="ann")
    world.until(lambda: world.job().state == Job.State.RUNNING)


@pytest.mark.slow
def test_a_failed_prepare_of_a_standby_does_not_touch_the_job(world: World) -> None:
    world.agents["s1"].replies["prepare"] = lambda order: {"status": "failed", "error": {"code": "image_missing"}}
    job = world.running_job()
    world.tick()
    assert world.job().state == Job.State.RUNNING
    assert not core.is_warm(Node.objects.get(name="s1"), job)
    assert core.is_warm(Node.objects.get(name="s2"), job)


def test_a_job_that_runs_cannot_be_started_again(world: World) -> None:
    world.running_job()
    with pytest.raises(DomainError, match="running"):
        jobs.start(world.job(), by="ann")


@pytest.mark.slow
def test_two_jobs_share_the_nodes_without_sharing_one(bare_world: World) -> None:
    for index in range(4):
        bare_world.node(f"n{index}", "training")
    bare_world.tick()
    bare_world.running_job("a", nodes=2)
    bare_world.running_job("b", nodes=2)
    names = [slot.node.name for slot in core.active_slots().select_related("node") if slot.node]
    assert sorted(names) == ["n0", "n1", "n2", "n3"]


def test_an_order_is_given_once_for_a_key_and_resent_with_a_new_nonce(world: World) -> None:
    node = Node.objects.get(name="n1")
    first = orders.issue(node, kind="release", key="once", payload={})  # type: ignore[arg-type]
    second = orders.issue(node, kind="release", key="once", payload={"other": 1})  # type: ignore[arg-type]
    assert first == second
    assert OrderRecord.objects.filter(key="once").count() == 1
    from reliability.services import clock

    assert orders.overdue(node, clock.now()) == []
    world.pass_time(3)
    again = orders.overdue(node, clock.now())
    assert len(again) == 1
    assert orders.overdue(node, clock.now()) == []
    world.pass_time(3)
    assert orders.overdue(node, clock.now())[0]["order"] != again[0]["order"]
