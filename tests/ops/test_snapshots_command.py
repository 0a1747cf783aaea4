"""`manage.py snapshots` over a folder and an object store: what it shows, refuses, passes over, and never removes."""

import io
import json
import struct
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy
import pytest
from django.core.management import CommandError, call_command

from reliability.domain.retention import TierRule
from reliability.domain.snapshots import EpochStart, SnapshotId, Tier
from reliability.management import exporting
from reliability.management.progress import Bar
from reliability.models import Job, Node, PlannedRemoval, Snapshot, SnapshotCopy
from reliability.ports import TierStore
from reliability.services import clock, retention, snapshot_tally
from reliability.tiers import choosing
from reliability.tiers.directory import DirectoryTier
from tests.stores.s3 import S3Server
from tests.trainer import shards

JOB = shards.JOB
STATE = {
    "model": {"weight": numpy.arange(6, dtype="f4").reshape(2, 3), "bias": numpy.zeros(3)},
    "step": 40,
    "name": "x",
}


@pytest.fixture(params=["folder", "s3"])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "s3":
        return str(request.getfixturevalue("s3_url"))
    (tmp_path / "storage").mkdir()
    return str(tmp_path / "storage")


@pytest.fixture
def tier(address: str) -> TierStore:
    return choosing.job_tier(address, JOB, owner="n")


@pytest.fixture
def store(tier: TierStore, tmp_path: Path) -> Callable[..., None]:
    """Store a shard as nodes do."""
    folder = tmp_path / "node"
    record = shards.write(folder, STATE, step=1)
    content, said = record.with_suffix(".snap"), json.loads(record.read_bytes())

    def put(step: int, *, ranks: int = 2, epoch: int = 1) -> None:
        for rank in range(ranks):
            about = {**said, "epoch": epoch, "step": step, "rank": rank, "job": JOB}
            tier.put(content, f"e{epoch}/s{step}-r{rank}", digest=said["digest"], record=about)

    return put


def run(*words: str) -> tuple[str, str]:
    out, error = io.StringIO(), io.StringIO()
    call_command("snapshots", *words, stdout=out, stderr=error)
    return out.getvalue(), error.getvalue()


def damage(address: str, step: int, rank: int, s3: S3Server | None = None) -> None:
    if s3 is None:
        path = Path(address) / JOB / "e1" / f"s{step}-r{rank}.snap"
        path.write_bytes(path.read_bytes()[:-1])
        return
    [path] = [each for each in s3.paths() if f"/e1/s{step}-r{rank}/" in each and each.endswith("000000")]
    s3.write(path, s3.read(path)[:-1])


@pytest.fixture
def harm(request: pytest.FixtureRequest, address: str) -> Callable[[int, int], None]:
    server = request.getfixturevalue("s3") if address.startswith("s3") else None
    return lambda step, rank: damage(address, step, rank, server)


def test_what_is_stored_is_listed_newest_first_with_what_is_missing(address: str, store: Callable[..., None]) -> None:
    store(10)
    store(30, ranks=1)
    store(20, epoch=2)
    lines = run("list", JOB, "--at", address)[0].splitlines()
    assert [line.split()[:3] for line in lines[1:]] == [["20", "2", "2/2"], ["30", "1", "1/2"], ["10", "1", "2/2"]]
    assert lines[1].endswith("whole")
    assert lines[2].endswith("no rank 1")


def test_how_many_ranks_there_must_be_is_what_the_place_says(
    address: str, tier: TierStore, store: Callable[..., None]
) -> None:
    tier.claim("key", ranks=3)
    store(10)
    assert "no rank 2" in run("list", JOB, "--at", address)[0]


def test_verifying_reads_everything_and_names_what_is_wrong(
    address: str, store: Callable[..., None], harm: Callable[[int, int], None]
) -> None:
    store(10)
    store(20)
    assert run("verify", JOB, "--at", address)[0].count("good") == 2
    harm(20, 1)
    out = io.StringIO()
    with pytest.raises(CommandError, match="1 of the stored"):
        call_command("snapshots", "verify", JOB, "--at", address, stdout=out, stderr=io.StringIO())
    assert "step 20 of attempt 1: rank 1:" in out.getvalue()
    assert "step 10 of attempt 1: good" in out.getvalue()


def test_restoring_passes_over_what_is_damaged_and_leaves_nothing_of_it(
    address: str, store: Callable[..., None], harm: Callable[[int, int], None], tmp_path: Path
) -> None:
    store(10)
    store(20)
    harm(20, 1)
    out, error = run("restore", JOB, "--at", address, "--to", str(tmp_path / "back"))
    assert "step 10 of attempt 1 lies in" in out
    assert "Passed over step 20 of attempt 1: rank 1" in error
    assert DirectoryTier(tmp_path / "back").keys("") == ["e1-s10-r0", "e1-s10-r1"]
    assert not list((tmp_path / "back").glob("e1-s20*"))
    with pytest.raises(CommandError, match="No stored snapshot"):
        run("restore", JOB, "--at", address, "--to", str(tmp_path / "no"), "--step", "20")


def test_one_rank_is_exported_as_safetensors(address: str, store: Callable[..., None], tmp_path: Path) -> None:
    store(1, ranks=1)
    path = tmp_path / "model.safetensors"
    run("export", JOB, "--at", address, "--to", str(path))
    raw = path.read_bytes()
    length = struct.unpack("<Q", raw[:8])[0]
    header = json.loads(raw[8 : 8 + length])
    assert header["model.weight"] == {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}
    assert raw[8 + length :][:24] == STATE["model"]["weight"].tobytes()
    assert json.loads(header["__metadata__"]["stepkeeper.plain"]) == {"step": 40, "name": "x"}
    assert [each.name for each in tmp_path.iterdir() if each.name.startswith(".step")] == []


def test_a_torch_file_needs_torch_and_another_ending_is_refused(
    address: str, store: Callable[..., None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store(1, ranks=1)
    monkeypatch.setitem(__import__("sys").modules, "torch", None)
    with pytest.raises(CommandError, match="torch: is not installed"):
        run("export", JOB, "--at", address, "--to", str(tmp_path / "model.pt"))
    with pytest.raises(CommandError, match="safetensors"):
        run("export", JOB, "--at", address, "--to", str(tmp_path / "model.zip"))


def test_a_torch_file_holds_tensors_in_place_of_arrays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    saved: list[Any] = []

    def save(state: Any, path: Path) -> None:
        saved.append(state)
        path.write_bytes(b"x")

    torch = SimpleNamespace(save=save, from_numpy=lambda array: ("tensor", array.shape))
    monkeypatch.setitem(__import__("sys").modules, "torch", torch)
    exporting.torch_file({**STATE, "seed": numpy.float32(2.0), "pair": (1, [numpy.zeros(2)])}, tmp_path / "a.pt")
    assert saved[0]["model"]["weight"] == ("tensor", (2, 3))
    assert (saved[0]["seed"], saved[0]["pair"]) == (2.0, (1, [("tensor", (2,))]))
    assert (tmp_path / "a.pt").exists()


def test_pruning_shows_first_and_never_removes_what_has_no_good_one_after_it(
    address: str, tier: TierStore, store: Callable[..., None], harm: Callable[[int, int], None]
) -> None:
    for step in (10, 20, 30, 40):
        store(step)
    store(50, ranks=1)
    shown = run("prune", JOB, "--at", address, "--keep", "2", "--dry-run")[0]
    assert shown.count("Would remove") == 2
    assert len(tier.keys("")) == 9
    harm(40, 0)
    with pytest.raises(CommandError, match="no good"):
        run("prune", JOB, "--at", address, "--keep", "2")
    assert len(tier.keys("")) == 9
    tier.delete("e1/s40-r0")
    assert "2 snapshots are removed" in run("prune", JOB, "--at", address, "--keep", "1")[0]
    assert sorted(tier.keys("")) == ["e1/s30-r0", "e1/s30-r1", "e1/s40-r1", "e1/s50-r0"]


@pytest.mark.parametrize("words", [("--keep", "0"), ("--keep", "1", "--ranks", "9")])
def test_pruning_that_would_leave_nothing_is_refused(
    address: str, tier: TierStore, store: Callable[..., None], words: tuple[str, ...]
) -> None:
    store(10)
    with pytest.raises(CommandError):
        run("prune", JOB, "--at", address, *words)
    assert len(tier.keys("")) == 2


@pytest.mark.django_db
def test_with_the_ledger_abandoned_lines_are_told_apart_and_removals_are_noted(
    address: str, tier: TierStore, store: Callable[..., None], tmp_path: Path
) -> None:
    job = Job.objects.create(
        name=JOB, nodes=2, runtime="process", program=["x"], storage_dir=address, created_at=clock.now()
    )
    job.epochs.create(number=1, started_at=clock.now(), reason="start")
    job.epochs.create(number=2, started_at=clock.now(), reason="x", restored_epoch=1, restored_step=10)
    for step, epoch in ((10, 1), (30, 1), (20, 2)):
        store(step, epoch=epoch)
        row = Snapshot.objects.create(job=job, epoch=epoch, step=step, created_at=clock.now())
        for rank in range(2):
            SnapshotCopy.objects.create(
                snapshot=row, rank=rank, tier="storage", path="x", size_bytes=1, digest="x", committed_at=clock.now()
            )
    assert "step 20 of attempt 2" in run("restore", JOB, "--to", str(tmp_path / "back"))[0]
    shown = run("prune", JOB, "--keep", "2")[0]
    assert "Removes step 30 of attempt 1" in shown
    assert list(tier.keys("e1/")) == ["e1/s10-r0", "e1/s10-r1"]
    assert SnapshotCopy.objects.filter(state="deleted").count() == 2


@pytest.mark.django_db
def test_pruning_goes_by_the_rules_of_the_job_and_says_why_also_of_the_ssds(
    address: str, tier: TierStore, store: Callable[..., None]
) -> None:
    job = Job.objects.create(
        name=JOB, nodes=2, runtime="process", program=["x"], storage_dir=address, created_at=clock.now(), epoch=1
    )
    job.epochs.create(number=1, started_at=clock.now(), reason="start")
    nodes = [Node.objects.create(name=f"n{rank}", registered_at=clock.now()) for rank in range(2)]
    for step in range(10, 70, 10):
        store(step)
        row = Snapshot.objects.create(job=job, epoch=1, step=step, created_at=clock.now() - timedelta(hours=60 - step))
        for rank, node in enumerate(nodes):
            facts = {"path": "x", "size_bytes": 1, "digest": "x", "committed_at": clock.now()}
            SnapshotCopy.objects.create(snapshot=row, rank=rank, tier="storage", **facts)
            SnapshotCopy.objects.create(snapshot=row, rank=rank, tier="ssd", node=node, **facts)
    snapshot_tally.recount_all()
    retention.set_rule(job, Tier.STORAGE, TierRule(keep_newest=1, every_steps=30, keep_for_s=15 * 3600.0), by="ann")
    shown = run("prune", JOB, "--dry-run")[0].splitlines()
    why = "It is older than the newest one, the first of each 30 steps, those of the last 15 hours that are kept."
    assert [line.partition(" (")[0] for line in shown[:2]] == [
        "Would remove step 20 of attempt 1",
        "Would remove step 40 of attempt 1",
    ]
    assert shown[0].endswith(why)
    assert [line for line in shown if "from SSDs by their nodes: step 20" in line]
    assert not PlannedRemoval.objects.exists(), "a dry run decides nothing"
    shown = run("prune", JOB, "--dry-run", "--every-steps", "0", "--younger", "0", "--cap", "3 B", "--keep", "9")[0]
    assert shown.count("more than the cap of 3 B") == 5, "the last one stays however small the cap"
    run("prune", JOB)
    assert sorted({key.partition("-")[0] for key in tier.keys("")}) == ["e1/s10", "e1/s30", "e1/s50", "e1/s60"]
    gone = SnapshotCopy.objects.filter(tier="storage", state="deleted")
    assert {copy.problem for copy in gone} == {why}
    assert set(PlannedRemoval.objects.values_list("copy__tier", "copy__snapshot__step")) == {("ssd", 10), ("ssd", 20)}


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--younger", "soon"), "is not a duration"),
        (("--cap", "much"), "is not a size"),
        (("--every-steps", "-1"), "every_steps"),
    ],
)
def test_a_rule_on_the_command_line_that_makes_no_sense_is_refused(
    address: str, tier: TierStore, store: Callable[..., None], words: tuple[str, ...], told: str
) -> None:
    store(10)
    with pytest.raises(CommandError, match=told):
        run("prune", JOB, "--at", address, *words)


def test_without_a_database_the_place_itself_tells_the_line_that_goes_on(
    address: str, tier: TierStore, store: Callable[..., None], tmp_path: Path
) -> None:
    tier.note_start(EpochStart(epoch=1, restored=None))
    tier.note_start(EpochStart(epoch=2, restored=SnapshotId(1, 10)))
    for step in (10, 30):
        store(step)
    assert "abandoned line" in run("list", JOB, "--at", address)[0].splitlines()[1]
    out = run("restore", JOB, "--at", address, "--to", str(tmp_path / "back"))[0]
    assert "step 10 of attempt 1" in out


def test_nothing_stored_is_said_as_such(address: str) -> None:
    with pytest.raises(CommandError, match="Nothing of job job"):
        run("list", JOB, "--at", address)


def test_a_bar_shows_share_speed_and_what_is_left_on_a_terminal_alone() -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    terminal, file = Terminal(), io.StringIO()
    for stream in (terminal, file):
        with Bar(stream, "step 40", 4_000_000) as bar:
            bar.add(1_000_000)
    assert "step 40 [" in terminal.getvalue()
    assert file.getvalue() == ""
    bar = Bar(file, "step 40", 4_000_000)
    bar.add(1_000_000)
    assert bar.line(2.0) == "step 40 [#######.......................]  25% 1.0 MB of 4.0 MB, 500.0 KB/s, 6 s left"
