"""Whatever stands in the files that checks read: no exception, no false fault, and all of it can be sent."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from reliability.agent import sendable
from reliability.agent.collectors.checking import Check, Inputs, Outcome
from reliability.agent.collectors.checks import CHECKS, disks, ecc, infiniband, links, memory, temperatures
from reliability.agent.collectors.checks.asked import ROOTS
from reliability.domain import fields, standing_checks
from reliability.domain.faults import TABLE
from tests.agent.looks import Looks

TRIES = int(os.environ.get("STEPKEEPER_TREES", "15"))
READERS: Mapping[str, tuple[Any, tuple[str, ...]]] = {
    "memory": (memory, ("meminfo", "loadavg", "pressure/memory", "pressure/io")),
    "ecc": (
        ecc,
        tuple(f"devices/system/edac/mc/mc0/{name}" for name in ("ue_count", "ce_count", "dimm0/dimm_ue_count")),
    ),
    "infiniband": (
        infiniband,
        tuple(
            f"class/infiniband/mlx5_0/ports/1/{name}"
            for name in ("state", "phys_state", "rate", "counters/symbol_error", "counters/link_downed")
        ),
    ),
    "links": (links, tuple(f"class/net/eth0/{name}" for name in ("carrier", "operstate", "speed", "device/vendor"))),
    "temperatures": (
        temperatures,
        tuple(f"class/hwmon/hwmon0/{name}" for name in ("temp1_input", "temp1_crit", "temp1_max", "name")),
    ),
    "disks": (
        disks,
        ("block/sda/ro", "block/sda/device/state", "block/md0/md/degraded", "fs/ext4/sda1/errors_count", "self/mounts"),
    ),
}
GARBAGE = (
    st.binary(max_size=40)
    | st.sampled_from(
        [b"", b"\n", b"9" * 30, b"-1", b"0x" + b"f" * 20, b"1e9", b"NaN", b"\xff\xfe", b"1 2", b"18446744"]
    )
    | st.sampled_from(
        [b"full avg10=9 avg60=999 avg300=0 total=1", b"MemTotal: 5 kB\nMemAvailable: 9 kB", b"\xd9\xa3\n"]
    )
)


def _sent(outcome: Outcome) -> None:
    """What a look comes to can be sent, and the server takes it."""
    beat = {
        "ok": outcome.ok,
        "reason": outcome.reason,
        "measured": dict(outcome.measured),
        "age_s": 0.0,
        "limit_s": 9.0,
    }
    standing_checks.read(json.loads(sendable.text_of({"a": beat})), "checks")
    for each in outcome.findings:
        assert each.code in TABLE
        fields.plain_values(dict(each.fields), "fields")
    json.loads(json.dumps(outcome.state))


@pytest.mark.parametrize("name", READERS)
@given(data=st.data())
@settings(max_examples=TRIES, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_files_of_garbage_raise_nothing_and_are_no_fault(name: str, tmp_path: Path, data: st.DataObject) -> None:
    module, names = READERS[name]
    looks = Looks(module.look, module.OPTIONS, tmp_path)
    for _ in range(3):
        for file in names:
            path = tmp_path / file
            path.parent.mkdir(parents=True, exist_ok=True)
            content = data.draw(GARBAGE)
            path.write_bytes(b"q" + content if content.strip().isdigit() and content.isascii() else content)
        outcome = looks.look(after_s=1000.0)
        assert [each for each in outcome.findings if TABLE[each.code].action == "failover"] == []
        assert outcome.ok is not False
        _sent(outcome)


@pytest.mark.parametrize("name", READERS)
def test_loops_pipes_folders_and_strange_names_in_place_of_files_are_no_fault(name: str, tmp_path: Path) -> None:
    module, names = READERS[name]
    looks = Looks(module.look, module.OPTIONS, tmp_path)
    for place, file in enumerate(names):
        path = tmp_path / file
        path.parent.mkdir(parents=True, exist_ok=True)
        if place % 3 == 0:
            path.symlink_to(path)
        elif place % 3 == 1:
            os.mkfifo(path)
        else:
            path.mkdir(exist_ok=True)
    for folder in {(tmp_path / file).parent.parent for file in names}:
        Path(os.fsdecode(bytes(folder / "na me") + b"\xff")).mkdir(exist_ok=True)
    for _ in range(2):
        outcome = looks.look(after_s=1000.0)
        assert (outcome.ok is not False, list(outcome.findings)) == (True, [])
        _sent(outcome)


def test_a_machine_with_very_many_parts_still_fits_into_a_heartbeat(tmp_path: Path) -> None:
    looks = Looks(infiniband.look, infiniband.OPTIONS, tmp_path)
    for place in range(200):
        looks.write({f"class/infiniband/äöü-adapter-{place}/ports/1/state": "4: ACTIVE"})
    outcome = looks.look()
    assert (outcome.measured["ports"], outcome.measured["left_out"]) == (200, ["states"])
    _sent(outcome)


@pytest.mark.parametrize("name", READERS)
def test_a_machine_that_shows_nothing_is_no_fault(name: str, tmp_path: Path) -> None:
    module, _ = READERS[name]
    outcome = Looks(module.look, module.OPTIONS, tmp_path / "nothing here").look()
    assert (outcome.ok is not False, list(outcome.findings)) == (True, [])


@pytest.mark.parametrize(
    ("check", "option"),
    [(check, name) for check in CHECKS for name in ROOTS if name in check.options],
    ids=lambda each: getattr(each, "name", each),
)
def test_a_check_that_is_pointed_at_nothing_is_unknown_and_keeps_its_past(check: Check, option: str) -> None:
    inputs = Inputs(options={**check.options, option: "/nothing/here"}, state={"boot": "a"})
    outcome = check.run(inputs)
    assert (outcome.ok, outcome.state) == (None, {"boot": "a"})
    assert "/nothing/here" in outcome.reason


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.name)
def test_facts_and_a_past_that_make_no_sense_are_no_fault(check: Check, tmp_path: Path) -> None:
    places = {name: str(tmp_path) for name in ("root", "folder") if name in check.options}
    strange = {"clock": 3, "containers": {}, "storage_dirs": 7, "memory_dir": 1, "node": None}
    for facts, state in (({}, {}), (strange, {"boot": 4, "counters": [], "told": "x"})):
        outcome = check.run(Inputs(options={**check.options, **places}, facts=facts, state=state))
        assert (outcome.ok is not False, list(outcome.findings)) == (True, [])
        _sent(outcome)
