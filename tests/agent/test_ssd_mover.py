"""Process 2: seals what is ready in memory, writes it to the SSD straight from the slot, and says what it left out."""

import errno
import fcntl
import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from reliability.agent import jobrecord, sealing
from reliability.agent.folder import JobFolder as AgentFolder
from reliability.agent.jobrecord import JobRecord
from reliability.agent.rankfiles import RankFiles
from reliability.agent.sealer import Sealer
from reliability.agent.ssd_mover import SsdLane
from reliability.errors import CopyMissing, TierFull
from reliability.tiers import direct, records
from reliability.tiers.directory import DirectoryTier
from reliability.tiers.records import RecordUnusable
from reliability.tiers.slotmaps import SlotMaps
from reliability.trainer.folder import JobFolder
from reliability.trainer.reading import load
from reliability.trainer.snapshots import MemoryTier, Saving

JOB = "lm"
WORDS = 3_000_000  # more than one chunk


class Node:
    """A trainer's memory, an SSD, and process 2 as an object that runs when it is told to."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.said: list[dict[str, Any]] = []
        for name in ("jobs", "memory", "ssd"):
            (folder / name).mkdir()
        self.job = JobFolder(folder / "memory" / JOB)
        self.job.make()
        self.ssd = folder / "ssd" / JOB
        self.record = JobRecord(job=JOB, epoch=1, started_epoch=1, ranks=[0])
        jobrecord.save(folder / "jobs", self.record)
        self.trainer = MemoryTier(self.job, job=JOB, epoch=1, rank=0, saving=Saving())
        read, self.wake = os.pipe2(os.O_NONBLOCK)
        self.sealer = Sealer(folder / "memory", self.wake)
        self.lane = self.new_lane()
        self._handles = (read, self.wake)
        for place in ("lane", "sealer"):
            monkeypatch.setattr(f"reliability.agent.{place}.say", self._say)

    def new_lane(self) -> SsdLane:
        return SsdLane(
            self.record,
            DirectoryTier(self.job.memory),
            DirectoryTier(self.ssd, owner="n", private=True),
            self.sealer,
        )

    def _say(self, kind: str, _job: str, body: dict[str, Any]) -> None:
        self.said.append({"kind": kind, **body})

    def save(self, step: int) -> Path:
        self.trainer.save(step, {"w": np.full(WORDS, float(step))})
        return self.job.memory / f"e1-s{step}-r0.snap"

    def drain(self) -> list[int]:
        """Run until nothing is left to copy and return the steps that were told."""
        before = len(self.said)
        self.sealer.pass_once()
        while self.lane.run(0.0):
            pass
        return [line["step"] for line in self.said[before:] if line["kind"] == "snapshot_copy"]

    def close(self) -> None:
        self.trainer.close(1.0)
        self.sealer.maps.close()
        for handle in self._handles:
            os.close(handle)


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Node]:
    made = Node(tmp_path, monkeypatch)
    yield made
    made.close()


def test_what_is_ready_in_memory_is_sealed_and_lies_on_the_ssd_byte_for_byte(node: Node) -> None:
    slot = node.save(10)
    assert node.drain() == [10]
    copy = node.ssd / slot.name
    assert copy.read_bytes() == slot.read_bytes()
    record = records.read(copy.with_suffix(".json"))
    assert record["digest"] == records.read(slot.with_suffix(".json"))["digest"]
    assert len(record["chunks"]) == len(record["sums"]) == 3
    assert record["format"] == "stepkeeper-2"
    assert load(copy.with_suffix(".json"), rank=0)[1]["w"].sum() == 10 * WORDS


@pytest.mark.parametrize("refused", ["setting", "writing"])
def test_a_file_system_without_direct_writing_gets_the_same_bytes(
    node: Node, monkeypatch: pytest.MonkeyPatch, refused: str
) -> None:
    real_set, real_write, direct_handles = fcntl.fcntl, os.write, set()

    def set_flags(handle: int, what: int, flags: int = 0) -> int:
        if what == fcntl.F_SETFL and flags & os.O_DIRECT:
            if refused == "setting":
                raise OSError(errno.EINVAL, "no direct writing here")
            direct_handles.add(handle)
            return 0
        if what == fcntl.F_SETFL:
            direct_handles.discard(handle)
        found = real_set(handle, what, flags)
        return found | (os.O_DIRECT if handle in direct_handles else 0) if what == fcntl.F_GETFL else found

    def write(handle: int, piece: Any) -> int:
        if handle in direct_handles:
            raise OSError(errno.EINVAL, "not after all")
        return real_write(handle, piece)

    monkeypatch.setattr(direct.fcntl, "fcntl", set_flags)
    monkeypatch.setattr(direct.os, "write", write)
    slot = node.save(10)
    assert node.drain() == [10]
    monkeypatch.undo()
    assert (node.ssd / slot.name).read_bytes() == slot.read_bytes()


@pytest.mark.parametrize("sealed", [False, True], ids=["hashed meanwhile", "hashed again"])
def test_a_drain_counts_until_the_copy_is_durable(node: Node, monkeypatch: pytest.MonkeyPatch, sealed: bool) -> None:
    real = direct.write

    def slow(*args: Any, **known: Any) -> int:
        size = real(*args, **known)
        time.sleep(0.5)  # as forcing it to the disk may take
        return size

    monkeypatch.setattr(direct, "write", slow)
    if sealed:
        monkeypatch.setattr(node.sealer, "is_fresh", lambda _path: False)
    node.save(10)
    if sealed:
        node.sealer.pass_once()
    while node.lane.run(0.0):
        pass
    (told,) = (line for line in node.said if line["kind"] == "snapshot_copy")
    assert told["drain_s"] >= 0.5


def test_the_newest_goes_first_and_what_was_written_over_is_counted(node: Node) -> None:
    for step in (10, 20, 30, 40, 50):
        node.save(step)
    assert node.drain() == [50, 40]
    counted = {line["step"]: line["superseded"] for line in node.said}
    assert counted == {50: 4, 40: 0}
    node.save(60)
    node.save(70)
    node.save(80)
    node.drain()
    assert {line["step"]: line["superseded"] for line in node.said if line["step"] > 50} == {80: 2, 70: 0}
    node.lane = node.new_lane()  # another life of process 2 knows where the one before was
    node.save(90)
    node.drain()
    assert node.said[-1]["superseded"] == 0


def test_memory_is_sealed_also_while_the_ssd_takes_nothing(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_args: Any, **_known: Any) -> int:
        raise TierFull("no room")

    with monkeypatch.context() as patch:
        patch.setattr(direct, "write", full)
        slot = node.save(10)
        assert node.drain() == []
    assert slot.with_suffix(".json").exists()
    assert [line["code"] for line in node.said] == ["tier_full"]
    assert list(node.ssd.iterdir()) == []


def test_a_slot_that_changes_while_it_is_read_is_not_sealed(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    node.save(10)
    slot = node.save(20)
    real = sealing._read_chunk
    changed = []

    def read_chunk(chunk: memoryview, *shared: Any) -> tuple[str, str]:
        if not changed:
            changed.append(True)
            node.save(30)
            node.save(40)  # writes over step 20
        return real(chunk)

    monkeypatch.setattr(sealing, "_read_chunk", read_chunk)
    assert sealing.seal(slot, job=JOB) is False
    assert not slot.with_suffix(".json").exists()
    assert node.said == []


def test_while_a_slot_is_copied_the_trainer_leaves_it_alone(node: Node) -> None:
    slot, maps = node.save(10), SlotMaps()
    before = slot.read_bytes()
    with direct.held(slot, maps) as content:
        for step in (20, 30, 40):
            node.save(step)
        assert bytes(content) == before
    node.save(50)
    node.save(60)
    with pytest.raises(CopyMissing), direct.held(slot, maps):
        pass
    maps.close()


def test_memory_of_a_slot_that_is_gone_is_let_go_of(node: Node) -> None:
    slot = node.save(10)
    with slot.open("rb") as opened, node.sealer.maps.content(opened.fileno()):
        pass
    slot.unlink()
    node.sealer.maps.prune()
    assert node.sealer.maps._mapped == {}


@pytest.mark.parametrize("content", [b"", b"x" * 4096, b"\x93SKSNAP2" + b"\xff" * 4088])
def test_what_only_looks_like_a_shard_is_told_once_and_hinders_nothing(node: Node, content: bytes) -> None:
    node.save(10)
    (node.job.memory / "e1-s99-r0.snap").write_bytes(content)
    assert node.drain() == [10]
    node.drain()
    problems = [line for line in node.said if line["kind"] == "snapshot_problem"]
    assert [(line["step"], line["tier"], line["code"]) for line in problems] == [(99, "memory", "corrupt")]


def test_links_and_pipes_under_the_name_of_a_shard_are_not_followed(node: Node, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_bytes(node.save(10).read_bytes())
    (node.job.memory / "e1-s98-r0.snap").symlink_to(secret)
    os.mkfifo(node.job.memory / "e1-s99-r0.snap")
    assert node.drain() == [10]
    assert not list(node.job.memory.glob("e1-s9*.json"))


def test_a_shard_that_holds_another_than_its_name_says_is_refused(node: Node) -> None:
    slot = node.save(10)
    other = slot.with_name("e1-s11-r0.snap")
    slot.rename(other)
    with pytest.raises(RecordUnusable, match="named after"):
        sealing.seal(other, job=JOB)


def test_once_a_rank_has_ended_the_agent_seals_what_it_left(node: Node) -> None:
    reports: list[tuple[str, Any]] = []
    files = RankFiles(AgentFolder(node.job.root), node.record, lambda kind, body: reports.append((kind, body)))
    node.record.begin(1, [0], None)
    node.save(10)
    files.look()
    assert reports == []
    (node.job.ctl / "exit-1-0.json").write_text(json.dumps({"epoch": 1, "rank": 0, "exit_code": 137, "signal": 9}))
    files.look()
    assert [kind for kind, _body in reports] == ["snapshot_copy", "rank_exit"]
    assert reports[0][1]["step"] == 10
