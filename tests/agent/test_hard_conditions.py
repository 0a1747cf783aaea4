"""What the machine and its surroundings do to a node: full disks, a store away or slow, a clock that is set.

Each on real parts: an agent with both of its movers and a rank that trains. Training goes on, nothing that was
promised is lost, and what is told names the condition. STEPKEEPER_OUTAGE_S makes the outage as long as wanted.
"""

import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.agent.conftest import AgentProcess, free_port
from tests.agent.ingest import Ingest, until
from tests.agent.wallclock import Wall
from tests.stores.s3 import S3Server

JOB = "lm"
OUTAGE_S = float(os.environ.get("STEPKEEPER_OUTAGE_S", "4"))


def copies(ingest: Ingest, tier: str) -> list[int]:
    """Return the steps of which a copy on a tier was told, in the order in which it was."""
    return [copy["step"] for copy in ingest.of_kind("snapshot_copy") if copy["tier"] == tier]


def newest(ingest: Ingest, tier: str) -> int:
    return max(copies(ingest, tier), default=0)


def problems(ingest: Ingest, tier: str) -> list[dict[str, Any]]:
    return [problem for problem in ingest.of_kind("snapshot_problem") if problem["tier"] == tier]


def trained(ingest: Ingest) -> int:
    """Return how far the rank is."""
    ranks = [rank for beat in ingest.beats[-1:] for job in beat["jobs"] for rank in job["ranks"]]
    return max((rank["step"] or 0 for rank in ranks), default=0)


def goes_on(ingest: Ingest, steps: int = 20) -> bool:
    """Wait until the rank has made some steps more."""
    before = trained(ingest)
    return bool(until(lambda: trained(ingest) >= before + steps, 30))


def more_copies(ingest: Ingest, tier: str, steps: int = 5) -> None:
    """Wait until a tier has newer copies than now."""
    enough = newest(ingest, tier) + steps
    until(lambda: newest(ingest, tier) >= enough, 40)


def nobody_was_stopped(ingest: Ingest) -> bool:
    return not ingest.of_kind("rank_exit") and not ingest.of_kind("container")


@pytest.fixture
def fresh(folder: Path, ingest: Ingest) -> Iterator[AgentProcess]:
    """An agent that is not started yet."""
    agent = AgentProcess(folder, ingest.url, ingest.node)
    yield agent
    if agent.process is not None:
        agent.end()


def begin(agent: AgentProcess, ingest: Ingest, *options: str, **given: Any) -> None:
    """Start the agent and a job of one rank, and wait for its first copies."""
    agent.start(*options)
    until(lambda: ingest.beats, 30)
    ingest.done("start", job=JOB, epoch=1, payload=agent.start_payload(job_key="key", **given), limit_s=30)
    until(lambda: copies(ingest, "ssd"), 30)


@pytest.fixture
def small_disk(folder: Path) -> Iterator[Path]:
    """A file system of two megabytes."""
    if os.geteuid() != 0:
        pytest.skip("mounting needs root")
    disk = folder / "small"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(disk)], check=True)
    yield disk
    subprocess.run(["umount", "-l", str(disk)], check=True)


def fill(disk: Path) -> Path:
    """Leave no room, however little."""
    ballast = disk / "ballast"
    with ballast.open("ab", buffering=0) as file:
        try:
            while file.write(bytes(4096)):
                pass
        except OSError:
            return ballast
    raise AssertionError("the disk takes everything")


@pytest.mark.parametrize("tier", ["ssd", "storage"])
def test_a_disk_that_is_full_is_told_and_training_and_memory_go_on_until_there_is_room(
    fresh: AgentProcess, ingest: Ingest, small_disk: Path, tier: str
) -> None:
    if tier == "ssd":
        begin(fresh, ingest, "--ssd-dir", str(small_disk))
    else:
        begin(fresh, ingest, storage_dir=str(small_disk))
    until(lambda: copies(ingest, tier), 30)
    ballast = fill(small_disk)
    problem = until(lambda: problems(ingest, tier), 30)[0]
    assert problem["code"] == "tier_full"
    assert str(small_disk) in problem["message"]
    assert problem["hint"]
    assert goes_on(ingest)
    sealed = {path.stem for path in (fresh.memory(JOB) / "mem").glob("*.json")}
    until(lambda: {path.stem for path in (fresh.memory(JOB) / "mem").glob("*.json")} - sealed, 20)
    stuck = newest(ingest, tier)
    until(lambda: not list(small_disk.rglob("*.part")), 20)  # of what did not fit
    ballast.unlink()
    until(lambda: newest(ingest, tier) > stuck, 40)
    assert nobody_was_stopped(ingest)


def test_a_store_that_was_away_gets_the_newest_first_and_nothing_that_was_promised_is_gone(
    fresh: AgentProcess, ingest: Ingest, s3: S3Server, s3_url: str
) -> None:
    begin(fresh, ingest, storage_dir=s3_url, env={"STEP_S": str(max(0.02, OUTAGE_S / 1000))})
    until(lambda: copies(ingest, "storage"), 30)
    ingest.epochs, ingest.ssd_floors = {JOB: 1}, {JOB: newest(ingest, "ssd")}
    s3.stop()
    away = time.monotonic()
    try:
        problem = until(lambda: problems(ingest, "storage"), 60)[0]
        assert problem["code"] == "tier_unreachable"
        assert problem["hint"]
        until(lambda: time.monotonic() - away >= OUTAGE_S, OUTAGE_S + 10)
        assert goes_on(ingest)
        stored = copies(ingest, "storage")
        waiting = newest(ingest, "ssd")
    finally:
        s3.start()
    back = until(lambda: len(told := copies(ingest, "storage")[len(stored) :]) > 1 and told, 60)
    assert max(back[:2]) >= waiting, "the newest goes first, but for one that was being tried when the store came back"
    on_ssd = {
        int(path.stem.split("-")[1][1:]) for path in (fresh.folder / "ssd" / JOB).glob("*.json") if "-s" in path.stem
    }
    assert max(on_ssd) >= waiting
    manifests = [path for path in s3.paths("team/lm/manifests/") if path.endswith(".json")]
    assert {f"s{step}.json" for step in stored} <= {path.rpartition("/")[2] for path in manifests}
    assert nobody_was_stopped(ingest)


def test_a_store_that_is_slower_than_the_period_gets_the_newest_and_what_it_missed_is_counted(
    fresh: AgentProcess, ingest: Ingest
) -> None:
    begin(fresh, ingest, "--storage-bytes-per-s", "8000")
    told = until(lambda: [each for each in ingest.of_kind("finding") if each["code"] == "store-behind"], 60)
    assert told[0]["count"] > 0
    late = until(lambda: [each for each in ingest.of_kind("snapshot_copy") if each.get("superseded")], 60)
    assert any(each["tier"] == "storage" for each in late)
    stored = set(copies(ingest, "storage"))
    passed_over = [step for step in copies(ingest, "ssd") if step < max(stored) and step not in stored]
    assert passed_over, "a newer one was stored, and these never were"
    assert goes_on(ingest)
    assert nobody_was_stopped(ingest)


@pytest.fixture
def wall(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Wall:
    wall = Wall(tmp_path)
    for name, value in wall.environment.items():
        monkeypatch.setenv(name, value)
    return wall


def test_a_clock_set_an_hour_ahead_and_back_changes_no_order_no_duration_and_removes_nothing(
    fresh: AgentProcess, ingest: Ingest, wall: Wall
) -> None:
    begin(fresh, ingest)
    until(lambda: copies(ingest, "storage"), 30)
    ingest.epochs = {JOB: 1}
    for ahead in (3600, -3600, 0):
        wall.set_ahead(ahead)
        for tier in ("ssd", "storage"):
            more_copies(ingest, tier, 15)
        ingest.done("set_period", job=JOB, epoch=1, payload={"period_plan": [], "plan_version": 0})
        assert goes_on(ingest)
    for ahead in (3600, -3600) * 10:  # also between a save and its copies
        wall.set_ahead(ahead)
        more_copies(ingest, "ssd")
    assert any(abs(report["at"] - time.time()) > 1800 for report in ingest.reports), "the clock was set indeed"
    told = ingest.of_kind("snapshot_copy")
    drains = [copy["drain_s"] for copy in told if copy["drain_s"] is not None]
    assert len(drains) > len(told) // 2
    assert all(0 <= drain < 60 for drain in drains), "no duration is told by a clock that was set"
    stalls = [copy["stall_s"] for copy in told]
    assert all(0 <= stall < 60 for stall in stalls)
    memory = {path.stem for path in (fresh.memory(JOB) / "mem").glob("*.snap")}
    assert max(int(name.split("-")[1][1:]) for name in memory) >= newest(ingest, "ssd")
    on_ssd = {path.stem for path in (fresh.folder / "ssd" / JOB).glob("*.snap")}
    assert {f"e1-s{step}-r0" for step in copies(ingest, "ssd")} <= on_ssd, "nothing was safe to remove, and nothing was"
    assert not [found for found in ingest.of_kind("finding") if found["code"] == "agent-silent"]
    assert nobody_was_stopped(ingest)


@pytest.fixture
def neighbour(folder: Path) -> Iterator[tuple[AgentProcess, Ingest]]:
    """An agent of another installation on the same machine, with folders for its own data alone."""
    ingest = Ingest(node="node-b", broker_url="redis://127.0.0.1:9/0")
    ingest.port = free_port()
    ingest.open()
    own = folder / "other"
    own.mkdir()
    agent = AgentProcess(own, ingest.url, ingest.node)
    yield agent, ingest
    if agent.process is not None:
        agent.end()
    ingest.close()


@pytest.mark.parametrize("shared", ["memory", "ssd"])
def test_two_jobs_of_one_name_in_the_same_folder_are_kept_apart_and_both_are_told(
    fresh: AgentProcess, ingest: Ingest, neighbour: tuple[AgentProcess, Ingest], shared: str
) -> None:
    begin(fresh, ingest)
    other, others = neighbour
    other.start(f"--{shared}-dir", str(fresh.folder / shared))
    until(lambda: others.beats, 30)
    order = others.order("start", job=JOB, epoch=1, payload=other.start_payload(job_key="another"))
    outcome = others.result(order, 30)
    told = until(lambda: problems(ingest, shared), 30)[0]
    if shared == "memory":
        assert (outcome["status"], outcome["error"]["code"]) == ("failed", "tier_conflict")
        refused = outcome["error"]
    else:
        refused = until(lambda: problems(others, "ssd"), 30)[0]
    assert refused["code"] == told["code"] == "tier_conflict"
    assert "node node-a" in refused["message"]
    assert "node node-b" in told["message"]
    assert refused["hint"] == told["hint"] != ""
    assert goes_on(ingest)
    more_copies(ingest, "ssd")
    assert not copies(others, "ssd"), "nothing of the other's is taken for its own"
    assert not list((fresh.folder / "ssd").glob("*.aside-*")), "and nothing of it was moved"
    assert nobody_was_stopped(ingest)
    fresh.end()
    if shared == "ssd":
        until(lambda: copies(others, "ssd"), 40)  # the place is free: what the first one left is set aside
        assert list((fresh.folder / "ssd").glob("*.aside-*"))
