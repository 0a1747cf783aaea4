"""A container sees its program's snapshot folder, and nothing else of the SSD, when its job has one."""

from pathlib import Path

import pytest

from reliability.agent import container, payloads
from reliability.agent.fields import Fields
from reliability.errors import InvalidInput


def spec(runtime: str, folder: object) -> dict[str, Path]:
    raw = {"image": "i", "program": ["p"], "mode": "plain", "snapshot_folder": folder}
    plan = payloads.container(Fields(raw, "payload.container"))
    where = {"folder": Path("/memory/j"), "programs": Path("/ssd/j.programs/out")}
    made = container.spec_of(plan, job="j", node="n", runtime=runtime, slot=0, epoch=1, **where)
    return {mount.target: mount.source for mount in made.mounts}


def test_the_folder_is_mounted_where_there_are_containers_and_the_job_has_one() -> None:
    assert spec("docker", {}) == {
        "/stepkeeper": Path("/memory/j"),
        "/stepkeeper-snapshots": Path("/ssd/j.programs/out"),
    }
    assert spec("docker", None) == {"/stepkeeper": Path("/memory/j")}
    assert spec("process", {}) == {}


def test_a_rule_that_makes_no_sense_is_refused_by_the_agent_too() -> None:
    with pytest.raises(InvalidInput) as caught:
        spec("docker", {"of": "everybody"})
    assert caught.value.field == "payload.container.snapshot_folder.of"
