"""Which steps of a program's snapshot folder are sealed, which are named and passed over, and how they come back."""

import errno
import fcntl
import itertools
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from reliability.agent import program_aside, program_listing, program_restoring, program_shards, program_watch
from reliability.agent.jobrecord import JobRecord
from reliability.agent.program_folder import Attempt, ProgramFolder
from reliability.agent.program_watch import ProgramWatch
from reliability.domain.program_folders import FolderRule, SealedBy, Whose
from reliability.errors import CopyMissing, DigestMismatch, TierFull, TierUnreachable
from reliability.tiers.directory import DirectoryTier
from reliability.tiers.records import RecordUnusable
from reliability.tiers.shards import Shard
from reliability.tiers.step_folder import UnfitStep

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


class Nodes:
    """Two nodes that write their parts of the folders of one job; rank 0's gets the shards of both."""

    def __init__(self, first: Place, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.first = first
        self.other = Place(root, monkeypatch, first.rule, [1])
        monkeypatch.setattr(program_watch, "steady", lambda: first.now + self.other.now)

    def brought(self, step: int = 1) -> None:
        """Seal what both wrote, bring rank 1's shard to the first node, and restore all there."""
        assert self.first.look(after_s=30) == [step]
        assert self.other.look(after_s=30) == [step]
        key = Shard(1, step, 1).flat_key
        record = self.other.ssd.record(key)
        self.first.ssd.put(self.other.ssd.data_path(key), key, digest=record["digest"], record=record)
        self.first.restore(1, step, [0, 1])


@pytest.fixture
def nodes(make: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Nodes]:
    found = Nodes(make(of=Whose.JOB), tmp_path / "other", monkeypatch)
    yield found
    found.other.close()


def test_a_folder_of_the_job_comes_back_with_the_parts_of_all_nodes_each_of_which_has_its_marker(nodes: Nodes) -> None:
    same = {"STEPKEEPER_DONE": b"", "a/config": b"{}"}
    nodes.first.write("step-1", {"part-0": b"0", ".metadata": b"m", **same})
    nodes.other.write("step-1", {"part-1": b"1", **same})
    for place in (nodes.first, nodes.other):
        (place.out / "step-1" / "a" / "link").symlink_to("config")
    nodes.brought()
    nodes.first.begin((1, 1))
    folders: dict[str, Any] = {"a": None, "a/link": "config"}
    expected = {"part-0": b"0", "part-1": b"1", ".metadata": b"m", **same, **folders}
    assert content(nodes.first.out / "step-1") == expected


def test_a_file_that_two_nodes_wrote_differently_is_named_and_no_folder_is_made_of_either(nodes: Nodes) -> None:
    nodes.first.write("step-1", {"a/config": b"1", "w": b"0"})
    nodes.other.write("step-1", {"a/config": b"2"})
    with pytest.raises(UnfitStep, match="a/config lies in"):
        nodes.brought()
    with pytest.raises(CopyMissing):
        nodes.first.begin((1, 1))


def test_links_of_one_node_never_take_the_files_of_another_outside(nodes: Nodes, tmp_path: Path) -> None:
    """Each link of the chain climbs one folder, though each stays within the step by its words."""
    seal, link = program_shards.plan_of, {"q": ".", "p": "q/..", "p2": "p/..", "p3": "p2/..", "p4": "p3/.."}
    nodes.first.write("step-1", {"w": b"0"})
    nodes.other.write("step-1", {"p4/evil": b"evil", "p/evil": b"evil"})

    def with_links(listing: Any, **about: Any) -> Any:
        return seal(listing and replace(listing, links=tuple(link.items())), **about)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(program_shards, "plan_of", with_links)
        nodes.first.look(after_s=30)
    before = sorted(str(path) for path in tmp_path.rglob("evil"))
    assert nodes.other.look(after_s=30) == [1]
    key = Shard(1, 1, 1).flat_key
    record = nodes.other.ssd.record(key)
    nodes.first.ssd.put(nodes.other.ssd.data_path(key), key, digest=record["digest"], record=record)
    with pytest.raises((UnfitStep, RecordUnusable)):
        nodes.first.restore(1, 1, [0, 1])
    assert sorted(str(path) for path in tmp_path.rglob("evil")) == before


def test_links_that_lead_outside_only_with_those_of_another_node_are_refused(nodes: Nodes, tmp_path: Path) -> None:
    (nodes.first.write("step-1", {"w": b"0"}) / "q").symlink_to(".")
    step = nodes.other.write("step-1", {"w-1": b"1", "q/x": b""})
    (step / "p").symlink_to("q/..")
    with pytest.raises(UnfitStep, match="q"):
        nodes.brought()
    assert not list(tmp_path.glob("ssd/own.programs/.stepkeeper-restored-*[0-9]"))


@pytest.mark.parametrize("target", ["/etc/passwd", "../secret", "a/../../secret", "..", "here/../x", "link/x"])
def test_a_link_that_leads_outside_is_refused_and_named_once(make: Any, target: str) -> None:
    place = make(sealed_by=SealedBy.RENAME)
    step = place.write("step-1")
    (step / "here").symlink_to(".")
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


def test_what_is_passed_over_between_two_sealed_steps_is_counted_beside_the_second(make: Any) -> None:
    place = make(ranks=[0, 1], sealed_by=SealedBy.MARKER)

    def counted(step: int) -> list[int]:
        assert place.look() == [step]
        return [place.ssd.record(Shard(1, step, rank).flat_key)["superseded"] for rank in (0, 1)]

    for name in ("step-1", "step-2", "step-3", "checkpoint-2", "tmp-step-1", "best"):
        place.write(name, {"w": b"w", "STEPKEEPER_DONE": b""})
    place.write("step-0")
    assert counted(3) == [2, 2]
    place.write("step-4", {"w": b"w", "STEPKEEPER_DONE": b""})
    assert counted(4) == [0, 0]
    for step in (5, 6, 7):
        place.write(f"step-{step}", {"w": b"w", "STEPKEEPER_DONE": b""})
    place.watch = place.new_watch()
    assert counted(7) == [2, 2]
    place.die(0)
    place.die(1)
    place.restore(1, 4)
    place.begin((1, 4))
    place.write("step-9", {"w": b"w", "STEPKEEPER_DONE": b""})
    assert place.look() == [9]
    assert place.ssd.record(Shard(2, 9, 0).flat_key)["superseded"] == 0, "of an attempt that was given up is none"


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
    small = os.statvfs_result((4096, 4096, 9999, 1, 1, 0, 0, 0, 0, 255))
    with monkeypatch.context() as patch:
        patch.setattr(program_shards.os, "statvfs", lambda _path: small)
        with pytest.raises(TierFull, match="4096 are free"):
            place.look()
    assert place.watch.at == Shard(1, 1, 0), "a trouble names it"
    assert place.look() == [1]


def test_a_step_larger_than_the_whole_disk_is_named_once_and_holds_up_no_later_one(make: Any) -> None:
    place = make([0, 1], sealed_by=SealedBy.RENAME, of=Whose.NODE)
    os.truncate(place.write("step-6", {"w": b""}) / "w", 2**42)
    assert place.look() == []
    assert place.look(60.0) == []
    assert [(each["code"], each["step"], each["rank"]) for each in place.said] == [("unfit_step", 6, 0)]
    assert "the whole disk" in place.said[0]["message"]
    assert place.ssd.keys("") == [], "nor do shards of ranks without files stay"
    place.write("step-7")
    assert place.look() == [7]


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


def test_a_kill_while_what_was_brought_is_removed_loses_no_beginning(
    make: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = make(ranks=[0, 1], of=Whose.RANK, sealed_by=SealedBy.RENAME)
    for rank in (0, 1):
        place.write("step-1", {"w": b"%d" % rank}, place=place.folder.out / f"rank-{rank}")
        assert place.look() == [1]
    place.restore(1, 1)
    real, calls = program_restoring.shutil.rmtree, itertools.count()

    def killed(path: Path) -> None:
        if ".stepkeeper-restored" not in str(path):
            return real(path)
        (path / "about.json").unlink(missing_ok=True)
        if next(calls) < 2:
            raise KeyboardInterrupt
        return real(path)

    monkeypatch.setattr(program_restoring.shutil, "rmtree", killed)
    arguments = {"epoch": 2, "job_key": "k", "snapshot": (1, 1), "ranks": [0, 1]}
    for _kill in range(2):
        with pytest.raises(KeyboardInterrupt):
            program_restoring.begin(place.folder, place.rule, **arguments)
    found = program_restoring.begin(place.folder, place.rule, **arguments)
    assert found.restored == {"rank-0": "step-1", "rank-1": "step-1"}
    assert [(place.folder.out / f"rank-{rank}" / "step-1" / "w").read_bytes() for rank in (0, 1)] == [b"0", b"1"]
    assert not list(place.folder.root.glob(".stepkeeper-restored-*"))


def test_a_kill_between_the_folders_of_two_ranks_loses_no_beginning(make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    place = make(ranks=[0, 1], of=Whose.RANK, sealed_by=SealedBy.RENAME)
    for rank in (0, 1):
        place.write("step-1", {"w": b"%d" % rank}, place=place.folder.out / f"rank-{rank}")
        assert place.look() == [1]
    arguments = {"epoch": 2, "job_key": "k", "snapshot": (1, 1), "ranks": [0, 1]}
    place.restore(1, 1)
    real = program_restoring._take_place

    def killed(folder: ProgramFolder, rule: FolderRule, where: str, *given: Any, **more: Any) -> str:
        if where == "rank-1":
            raise KeyboardInterrupt
        return real(folder, rule, where, *given, **more)

    with monkeypatch.context() as patch:
        patch.setattr(program_restoring, "_take_place", killed)
        with pytest.raises(KeyboardInterrupt):
            program_restoring.begin(place.folder, place.rule, **arguments)
    found = program_restoring.begin(place.folder, place.rule, **arguments)
    assert found.restored == {"rank-0": "step-1", "rank-1": "step-1"}


def test_what_is_moved_aside_stays_up_to_the_limit_of_the_job_and_the_first_moved_goes_first(make: Any) -> None:
    place = make(sealed_by=SealedBy.RENAME, aside_bytes=2_500_000)
    for attempt in range(12):
        step = place.write("step-7", {"w": os.urandom(1_000_000)})
        os.utime(step / "w", (10**9 - attempt, 10**9 - attempt))
        place.die()
        place.begin()
        place.look()
        left = sorted(path.name for path in place.folder.aside.iterdir())
        assert left == sorted(f"e{each}-node-step-7.{each}" for each in range(max(1, attempt), attempt + 2))
    place.record.snapshot_folder = replace(place.rule, aside_bytes=0).as_dict()
    place.die()
    place.begin()
    place.look()
    assert list(place.folder.aside.iterdir()) == []
    assert place.names() == []


def test_what_cannot_be_removed_from_aside_or_has_the_longest_name_keeps_no_attempt_from_beginning(
    make: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = make(sealed_by=SealedBy.RENAME, aside_bytes=0)

    def refused(_path: Path) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    (place.out / ("." + "x" * 254)).mkdir()
    (place.out / ("." + "x" * 253)).symlink_to("nowhere")
    place.die()
    with monkeypatch.context() as patch:
        patch.setattr(program_aside.shutil, "rmtree", refused)
        assert place.begin().ready
        place.look()
    assert len(list(place.folder.aside.iterdir())) == 1
    place.die()
    place.begin()
    place.look()
    assert list(place.folder.aside.iterdir()) == []


def test_what_is_unfinished_and_cannot_be_moved_aside_is_left_and_a_newer_step_is_not(
    make: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = make(sealed_by=SealedBy.RENAME)
    real = Path.rename

    def rename(path: Path, target: Path) -> Path:
        if target.parent == place.folder.aside:
            raise OSError(errno.EPERM, "Operation not permitted")
        return real(path, target)

    place.write("tmp_step-9")
    place.die()
    monkeypatch.setattr(Path, "rename", rename)
    assert place.begin().ready
    assert place.names() == ["tmp_step-9"]
    place.write("step-9")
    place.die()
    with pytest.raises(TierUnreachable):
        place.begin()


def test_what_was_brought_and_never_begun_from_goes_when_the_job_leaves(make: Any) -> None:
    place = make(sealed_by=SealedBy.RENAME)
    place.write("step-3")
    assert place.look() == [3]
    place.restore(1, 3)
    (place.folder.root / ".stepkeeper-restored-node-e2-s4.part").mkdir()
    assert len(list(place.folder.root.glob(".stepkeeper-restored-*"))) == 2
    program_restoring.leave(place.folder)
    assert list(place.folder.root.glob(".stepkeeper-restored-*")) == []
    assert place.names() == ["step-3"], "what the program wrote stays"


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


@pytest.mark.parametrize("name", ["step-999999999999999999", "checkpoint-20261129", "20261129", "iter_1000000000001"])
@pytest.mark.parametrize("first", [True, False], ids=["before any other", "among others"])
def test_a_name_that_is_no_step_of_this_training_hides_none_that_follows(make: Any, name: str, first: bool) -> None:
    place = make(sealed_by=SealedBy.RENAME)
    if first:
        place.write(name)
        place.look()
    sealed = []
    for step in range(10, 80, 10):
        place.write(f"step-{step}")
        if step == 30:
            place.write(name)
        sealed += [each for _ in range(2) for each in place.look() if each < 10**6]
    assert sealed[-5:] == [30, 40, 50, 60, 70], "each of them once, whatever lies beside it"
    assert sorted(place.ssd.keys(""))[-1] == "e1-s70-r0", "nothing is left of it"
    assert "doubted_step" in place.codes()
    assert all("pattern" in each["hint"] for each in place.said)
    assert len(place.said) <= 3, "told once, not at every look"
    place.watch = place.new_watch()
    place.write("step-80")
    assert place.look() == [80]
    assert len(place.said) <= 3, "nor in the next life of the process"


def test_steps_far_beyond_the_last_are_believed_once_the_next_goes_on_from_there(make: Any) -> None:
    place = make(sealed_by=SealedBy.RENAME)
    for step in (1, 2, 3):
        place.write(f"step-{step}")
        assert place.look() == [step]
    place.write("step-50001")  # the disk was full for long, and the program removed what it wrote meanwhile
    assert place.look() == []
    assert place.codes() == ["doubted_step"]
    for step in (50_002, 50_003):
        place.write(f"step-{step}")
        assert place.look() == [step]
    assert len(place.said) == 1


def test_a_lower_step_that_comes_late_is_told_with_how_many_and_a_well_supported_newer_one_stays(make: Any) -> None:
    place = make(sealed_by=SealedBy.RENAME)
    for step in (1000, 2000, 5000):
        place.write(f"step-{step}")
        assert place.look() == [step]
    for late in range(100, 115):
        place.write(f"step-{late}")
        assert place.look() == []
    assert [each["message"].partition(" ")[0] for each in place.said] == ["1", "10"]
    assert "step-5000" in place.said[0]["message"]
    assert place.ssd.record("e1-s5000-r0")
