"""Which steps of a program's snapshot folder are sealed, which are named and passed over, and how they come back."""

import errno
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from reliability.agent import program_listing, program_restoring, program_shards, program_watch
from reliability.agent.jobrecord import JobRecord
from reliability.agent.program_folder import Attempt, ProgramFolder
from reliability.agent.program_watch import ProgramWatch
from reliability.domain.program_folders import FolderRule, SealedBy, Whose
from reliability.errors import CopyMissing, DigestMismatch, TierFull
from reliability.tiers.directory import DirectoryTier
from reliability.tiers.records import RecordUnusable
from reliability.tiers.shards import Shard

JOB = "own"


class Place:
    """A node's disk with the snapshot folder of a program; the test plays the program."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch, rule: FolderRule, ranks: list[int]) -> None:
        self.root = root
        self.rule = rule
        self.ranks = ranks
        self.said: list[dict[str, Any]] = []
        self.now = 1000.0
        self.alive: dict[int, int] = {}
        for name in ("ssd", "memory/own/run", "memory/own/mem"):
            (root / name).mkdir(parents=True)
        monkeypatch.setattr(program_watch, "say", lambda _kind, _job, body: self.said.append(body))
        monkeypatch.setattr(program_watch, "steady", lambda: self.now)
        self.folder = ProgramFolder.of(root / "ssd", JOB)
        self.ssd = DirectoryTier(root / "ssd" / JOB, owner="n", private=True)
        self.record = JobRecord(job=JOB, snapshot_folder=rule.as_dict())
        self.watch = self.new_watch()
        self.begin()

    def new_watch(self) -> ProgramWatch:
        return ProgramWatch(ssd_dir=self.root / "ssd", memory_dir=self.root / "memory", ssd=self.ssd, job=JOB)

    def begin(self, snapshot: tuple[int, int] | None = None, *, job_key: str = "k") -> Attempt:
        """Begin the next attempt, whose ranks then live."""
        epoch = self.record.epoch + 1
        found = program_restoring.begin(
            self.folder, self.rule, epoch=epoch, job_key=job_key, snapshot=snapshot, ranks=self.ranks
        )
        self.record.begin(epoch, self.ranks, snapshot)
        for rank in self.ranks:
            self.live(rank)
        return found

    def live(self, rank: int) -> None:
        path = self.root / "memory" / JOB / "run" / f"alive-{rank}"
        self.alive[rank] = os.open(path, os.O_RDWR | os.O_CREAT)
        fcntl.flock(self.alive[rank], fcntl.LOCK_SH)

    def die(self, rank: int = 0) -> None:
        os.close(self.alive.pop(rank))

    @property
    def out(self) -> Path:
        return self.folder.out / self.folder.place(self.rule, self.ranks[0])

    def write(self, name: str, files: dict[str, bytes] | None = None, *, place: Path | None = None) -> Path:
        step = (place or self.out) / name
        for path, content in (files or {"w.bin": name.encode() * 100}).items():
            (step / path).parent.mkdir(parents=True, exist_ok=True)
            (step / path).write_bytes(content)
        return step

    def look(self, after_s: float = 0.0) -> list[int]:
        """Let time pass, look twice, and return the steps that were sealed."""
        made = []
        for _ in range(2):
            self.now += max(after_s / 2, 1.0)
            made += self.watch.look(self.record)
        return sorted({shard.step for shard in made})

    def restore(self, epoch: int, step: int, ranks: list[int] | None = None) -> None:
        """Make a folder of a step on the SSD."""
        shared = tuple(ranks or self.ranks) if self.rule.of is Whose.JOB else ()
        program_restoring.bring(
            self.folder, self.rule, self.ssd, snapshot=(epoch, step), ranks=self.ranks, all_ranks=shared
        )

    def codes(self) -> list[str]:
        return [each["code"] for each in self.said]

    def names(self) -> list[str]:
        return sorted(path.name for path in self.out.iterdir())

    def close(self) -> None:
        for handle in self.alive.values():
            os.close(handle)


@pytest.fixture
def make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    made: list[Place] = []

    def place(ranks: list[int] | None = None, **rule: Any) -> Place:
        made.append(Place(tmp_path, monkeypatch, FolderRule(**rule), ranks or [0]))
        return made[-1]

    yield place
    for each in made:
        each.close()


def content(folder: Path) -> dict[str, Any]:
    """Everything below a folder: bytes, link targets, and None for folders."""
    found: dict[str, Any] = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        found[name] = str(path.readlink()) if path.is_symlink() else None if path.is_dir() else path.read_bytes()
    return found


def test_nested_and_empty_files_odd_names_links_and_modes_come_back_as_they_were(make: Any) -> None:
    place = make(sealed_by=SealedBy.MARKER)
    odd = os.fsdecode(b"not-utf8-\xff")
    step = place.write("checkpoint-5", {"a/b/c": b"", "w": os.urandom(20_000_000), odd: b"odd", "STEPKEEPER_DONE": b""})
    (step / "none").mkdir()
    (step / "a" / "link").symlink_to("../w")
    (step / "w").chmod(0o750)
    before = content(step)
    assert place.look() == [5]
    place.restore(1, 5)
    place.die()
    (step / "w").write_bytes(b"other")
    found = place.begin((1, 5))
    assert found.restored == {"node": "checkpoint-5"}
    assert content(step) == before
    assert (step / "w").stat().st_mode & 0o777 == 0o750
    assert place.said == []


def test_a_step_that_is_one_file_comes_back_as_one(make: Any) -> None:
    place = make()
    (place.out / "epoch=1-step=100.ckpt").write_bytes(b"weights")
    assert place.look(after_s=30) == [100]
    place.restore(1, 100)
    place.die()
    found = place.begin((1, 100))
    assert found.restored == {"node": "epoch=1-step=100.ckpt"}
    assert (place.out / "epoch=1-step=100.ckpt").read_bytes() == b"weights"


def test_the_quiet_period_begins_anew_with_every_change(make: Any) -> None:
    place = make(quiet_s=10.0)
    step = place.write("step-1")
    assert place.look(after_s=9) == []
    (step / "more").write_bytes(b"more")
    assert place.look(after_s=9) == []
    assert place.look(after_s=6) == [1]


def test_what_a_killed_rank_wrote_is_never_taken_for_whole_by_its_quiet(make: Any) -> None:
    place = make(ranks=[0, 1])
    place.write("step-1")
    place.look()
    place.die(1)
    assert place.look(after_s=100) == []
    place.live(1)
    assert place.look(after_s=100) == [1]
    place.record.exits_reported = [0]
    place.write("step-2")
    assert place.look(after_s=100) == []
    place.record.ended_well = [0]
    assert place.look(after_s=100) == [2]


def test_a_marker_or_a_final_name_counts_also_when_the_rank_was_killed_then(make: Any) -> None:
    place = make(sealed_by=SealedBy.RENAME)
    place.write("tmp-step-3")
    place.write(".step-4.part")
    assert place.look(after_s=100) == []
    (place.out / "tmp-step-3").rename(place.out / "step-3")
    place.die()
    assert place.look() == [3]
    assert place.said == []


def test_without_its_marker_a_step_never_counts_where_a_marker_is_asked_for(make: Any) -> None:
    place = make(sealed_by=SealedBy.MARKER, marker="DONE")
    step = place.write("step-3")
    place.record.ended_well = [0]
    assert place.look(after_s=1000) == []
    (step / "DONE").touch()
    assert place.look() == [3]
    (place.out / "step-4.pt").write_bytes(b"x")
    (place.out / "step-4.pt.DONE").touch()
    assert place.look() == [4]


def test_every_rank_of_a_node_gets_a_shard_and_the_first_holds_the_files(make: Any) -> None:
    place = make(ranks=[2, 3])
    place.write("step-1", {"w": b"x" * 100_000})
    assert place.look(after_s=30) == [1]
    sizes = [place.ssd.record(Shard(1, 1, rank).flat_key)["size_bytes"] for rank in (2, 3)]
    assert sizes[0] > 100_000 > 10_000 > sizes[1]


def test_each_rank_may_have_a_folder_of_its_own(make: Any) -> None:
    place = make(ranks=[0, 1], of=Whose.RANK)
    for rank in (0, 1):
        place.write("step-1", {"w": b"%d" % rank}, place=place.folder.out / f"rank-{rank}")
    place.look(after_s=30)
    place.look()
    place.restore(1, 1)
    place.begin((1, 1))
    found = [(place.folder.out / f"rank-{rank}" / "step-1" / "w").read_bytes() for rank in (0, 1)]
    assert found == [b"0", b"1"]


def test_a_folder_of_the_job_comes_back_with_the_parts_of_all_nodes(
    make: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = make(of=Whose.JOB)
    place.write("step-1", {"part-0": b"0", ".metadata": b"m"})
    assert place.look(after_s=30) == [1]
    other = Place(tmp_path / "other", monkeypatch, place.rule, [1])
    other.write("step-1", {"part-1": b"1"})
    assert other.look(after_s=30) == [1]
    key = Shard(1, 1, 1).flat_key
    record = other.ssd.record(key)
    place.ssd.put(other.ssd.data_path(key), key, digest=record["digest"], record=record)
    place.restore(1, 1, [0, 1])
    place.begin((1, 1))
    assert content(place.out / "step-1") == {"part-0": b"0", "part-1": b"1", ".metadata": b"m"}
    other.close()


@pytest.mark.parametrize("target", ["/etc/passwd", "../secret", "a/../../secret", ".."])
def test_a_link_that_leads_outside_is_refused_and_named_once(make: Any, target: str) -> None:
    place = make(sealed_by=SealedBy.RENAME)
    step = place.write("step-1")
    (step / "link").symlink_to(target)
    assert place.look() == []
    place.watch = place.new_watch()
    assert place.look() == []
    assert [(each["code"], each["step"]) for each in place.said] == [("unfit_step", 1)]
    assert "link that leads outside" in place.said[0]["message"]
    place.write("step-2")
    assert place.look() == [2], "the next one counts all the same"


def test_a_pipe_or_a_step_that_is_a_link_itself_is_refused_and_nothing_waits_for_it(make: Any) -> None:
    place = make(sealed_by=SealedBy.RENAME)
    os.mkfifo(place.write("step-1") / "pipe")
    (place.out / "step-2").symlink_to("step-1")
    os.mkfifo(place.out / "step-3")
    assert place.look() == []
    assert sorted((each["step"], each["code"]) for each in place.said) == [(n, "unfit_step") for n in (1, 2, 3)]


def test_a_name_without_a_step_is_named_once_and_what_frameworks_leave_is_not(make: Any) -> None:
    place = make()
    place.write("best")
    for name in ("runs", "latest", "README.md", "lightning_logs"):
        place.write(name)
    place.look(after_s=100)
    place.watch = place.new_watch()
    place.look(after_s=100)
    place.begin()
    place.look(after_s=100)
    assert place.codes() == ["no_step_in_name"]
    assert "best" in place.said[0]["message"]
    for number in range(50):
        place.write(f"model-v{number}-final")
    place.look(after_s=100)
    assert len(place.said) == program_watch.MOST_NAMED


def test_two_names_of_one_step_count_once_and_the_second_is_named(make: Any) -> None:
    place = make(sealed_by=SealedBy.RENAME)
    place.write("step-5")
    assert place.look() == [5]
    place.write("checkpoint-5")
    assert place.look() == []
    assert place.codes() == ["unfit_step"]
    assert "step-5" in place.said[0]["message"]


def test_the_newest_goes_first_and_older_ones_are_not_wanted_any_more(make: Any) -> None:
    place = make(sealed_by=SealedBy.RENAME)
    for step in (1, 2, 3):
        place.write(f"step-{step}")
    assert place.look() == [3]
    assert place.look() == []


def test_a_step_that_the_program_removes_again_stays_a_snapshot(make: Any) -> None:
    place = make()
    step = place.write("step-1", {"a": b"a", "b": b"b", "c/d": b"d"})
    assert place.look(after_s=30) == [1]
    (step / "a").unlink()
    place.look()
    for path in (step / "c" / "d", step / "b"):
        path.unlink()
        place.look()
    assert place.said == []
    assert place.ssd.keys("") == [Shard(1, 1, 0).flat_key]


@pytest.mark.parametrize("later", [False, True])
def test_a_step_that_changes_after_it_was_sealed_is_thrown_away_whole_and_never_comes_back(
    make: Any, *, later: bool
) -> None:
    place = make(ranks=[0, 1])
    step = place.write("step-1")
    assert place.look(after_s=30) == [1]
    if later:
        place.watch = place.new_watch()
        place.look(after_s=1000)
    (step / "w.bin").write_bytes(b"x" * (step / "w.bin").stat().st_size)
    place.look(after_s=100)
    assert [(each["rank"], each["code"]) for each in place.said] == [(0, "digest_mismatch"), (1, "digest_mismatch")]
    assert place.ssd.keys("") == []
    assert place.ssd.thrown_away() == [Shard(1, 1, rank).flat_key for rank in (0, 1)]
    assert place.look(after_s=1000) == []
    assert len(place.said) == 2


@pytest.mark.parametrize("what", ["vanishes", "grows", "shrinks", "another appears"])
def test_what_changes_while_it_is_read_is_not_sealed_but_later(
    make: Any, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    place = make(sealed_by=SealedBy.RENAME)
    step = place.write("step-1", {"a": b"a" * 5000, "b": b"b" * 5000})
    real = program_listing.opened_file

    def opened(*given: Any) -> int:
        if given[2].path == "b" and not (place.root / "done").exists():
            (place.root / "done").touch()
            if what == "vanishes":
                (step / "b").unlink()
            elif what == "another appears":
                (step / "c").write_bytes(b"c")
            else:
                os.truncate(step / "b", 9000 if what == "grows" else 10)
        return real(*given)

    monkeypatch.setattr(program_listing, "opened_file", opened)
    assert place.look() == []
    assert [path.name for path in place.ssd.root.iterdir()] == [], "nothing of it is left"
    assert place.look() == [1]
    place.restore(1, 1)
    place.die()
    before = content(step)
    place.begin((1, 1))
    assert content(step) == before
    assert place.said == []


def test_a_full_disk_is_told_by_its_tier_leaves_nothing_and_is_tried_again(
    make: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = make(sealed_by=SealedBy.RENAME)
    place.write("step-1", {"w": b"x" * 9_000_000})
    real = os.write

    def full(handle: int, data: Any) -> int:
        if len(data) > 4_000_000:
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(handle, data)

    with monkeypatch.context() as patch:
        patch.setattr(program_shards.os, "write", full)
        with pytest.raises(TierFull):
            place.look()
    assert [path.name for path in place.ssd.root.iterdir()] == []
    small = os.statvfs_result((4096, 4096, 10, 1, 1, 0, 0, 0, 0, 255))
    with monkeypatch.context() as patch:
        patch.setattr(program_watch.os, "statvfs", lambda _path: small)
        with pytest.raises(TierFull, match="4096 are free"):
            place.look()
    assert place.look() == [1]


def test_thousands_of_small_files_are_sealed_and_come_back(make: Any) -> None:
    place = make(sealed_by=SealedBy.RENAME)
    step = place.write("step-1", {f"{number % 50}/{number}": b"%d" % number for number in range(5000)})
    before = content(step)
    assert place.look() == [1]
    place.restore(1, 1)
    place.die()
    place.begin((1, 1))
    assert content(step) == before


def test_nothing_newer_than_the_chosen_step_is_left_and_all_of_it_lies_aside(make: Any) -> None:
    place = make(sealed_by=SealedBy.RENAME)
    for step in (10, 20, 30):
        place.write(f"global_step{step}")
        assert place.look() == [step]
    (place.out / "last.ckpt").write_bytes(b"of step 30")
    (place.out / "latest").write_text("global_step30")
    (place.out / "latest_checkpointed_iteration.txt").write_text("30")
    place.write(".step-40.part")
    place.write("runs")
    place.die()
    place.restore(1, 20)
    found = place.begin((1, 20))
    assert place.names() == ["global_step10", "global_step20", "latest", "latest_checkpointed_iteration.txt", "runs"]
    assert (place.out / "latest").read_text() == "global_step20"
    assert (place.out / "latest_checkpointed_iteration.txt").read_text() == "20"
    aside = sorted(path.name.rpartition(".")[0] for path in place.folder.aside.iterdir())
    assert aside == ["e1-node-.step-40.part", "e1-node-global_step30", "e1-node-last.ckpt"]
    assert found.step == 20
    assert place.look(after_s=100) == [], "what lay there before is no step of this attempt"
    place.write("global_step30")
    assert place.look() == [30]
    assert place.ssd.keys("e2") == [Shard(2, 30, 0).flat_key]


def test_a_start_from_nothing_or_of_another_job_of_the_name_finds_an_empty_folder(make: Any) -> None:
    place = make(sealed_by=SealedBy.RENAME)
    place.write("step-10")
    assert place.look() == [10]
    place.die()
    place.begin()
    assert place.names() == []
    place.write("step-5")
    place.die()
    place.begin(job_key="another")
    assert place.names() == []
    assert len(list(place.folder.aside.iterdir())) == 2


def test_a_beginning_that_is_interrupted_at_any_write_ends_the_same_when_it_is_asked_again(
    make: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = make(sealed_by=SealedBy.RENAME)
    step = place.write("step-10")
    before = content(step)
    assert place.look() == [10]
    place.write("step-20")
    place.die()
    real = Path.rename
    for fails_at in range(12):
        place.restore(1, 10)
        calls = iter(range(100))

        def rename(path: Path, target: Path, fails_at: int = fails_at, calls: Iterator[int] = calls) -> Any:
            if next(calls) == fails_at:
                raise KeyboardInterrupt
            return real(path, target)

        with monkeypatch.context() as patch:
            patch.setattr(Path, "rename", rename)
            try:
                place.begin((1, 10))
            except KeyboardInterrupt:
                patch.undo()
                place.begin((1, 10))
        assert content(step) == before
        assert place.names() == ["step-10"]
        place.die()
        place.write("step-20")


def test_an_attempt_does_not_begin_from_a_step_that_was_not_brought(make: Any) -> None:
    place = make(sealed_by=SealedBy.RENAME)
    place.write("step-10")
    assert place.look() == [10]
    with pytest.raises(CopyMissing):
        program_restoring.begin(place.folder, place.rule, epoch=2, job_key="k", snapshot=(1, 10), ranks=[0])


def test_no_flipped_bit_and_no_cut_of_a_shard_ever_becomes_a_folder(make: Any) -> None:
    place = make(sealed_by=SealedBy.RENAME)
    place.write("step-1", {"a": b"0123456789" * 10, "b/c": b""})
    assert place.look() == [1]
    key = Shard(1, 1, 0).flat_key
    path = place.ssd.data_path(key)
    good = path.read_bytes()
    for at in [*range(0, 1200, 7), *range(1200, len(good), 211)]:
        damaged = bytearray(good)
        damaged[at] ^= 1 << at % 8
        path.write_bytes(damaged)
        with pytest.raises((DigestMismatch, RecordUnusable)):
            place.restore(1, 1)
    for size in range(0, len(good), 97):
        path.write_bytes(good[:size])
        with pytest.raises((DigestMismatch, RecordUnusable)):
            place.restore(1, 1)
    with pytest.raises(CopyMissing):
        program_restoring.begin(place.folder, place.rule, epoch=2, job_key="k", snapshot=(1, 1), ranks=[0])
    path.write_bytes(good)
    place.restore(1, 1)
    assert place.begin((1, 1)).restored == {"node": "step-1"}


def test_a_kill_while_a_changed_step_is_thrown_away_leaves_it_to_the_next_life(
    make: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = make(ranks=[0, 1])
    step = place.write("step-1")
    assert place.look(after_s=30) == [1]
    (step / "late").write_bytes(b"late")
    real = DirectoryTier.throw_away

    def killed(tier: DirectoryTier, key: str) -> None:
        if key.endswith("r0"):
            raise KeyboardInterrupt
        real(tier, key)

    with monkeypatch.context() as patch:
        patch.setattr(DirectoryTier, "throw_away", killed)
        with pytest.raises(KeyboardInterrupt):
            place.look(after_s=30)
    place.watch = place.new_watch()
    place.look(after_s=30)
    assert place.ssd.keys("") == []
    assert {(each["rank"], each["code"]) for each in place.said} == {(0, "digest_mismatch"), (1, "digest_mismatch")}


def test_hundreds_of_old_steps_are_not_read_through_at_every_look(make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    place = make(sealed_by=SealedBy.RENAME)
    for step in range(300):
        place.write(f"step-{step}")
    assert place.look() == [299]
    listed: list[str] = []
    real = program_listing.listed
    monkeypatch.setattr(program_listing, "listed", lambda folder, name: listed.append(name) or real(folder, name))
    place.look()
    assert set(listed) <= {"step-299"}
