"""Snapshots of programs that write their own files: on a real agent, from the first save to what follows a kill."""

import contextlib
import os
import random
import shlex
import shutil
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from reliability.tiers import copying
from reliability.tiers.directory import DirectoryTier
from tests.agent.conftest import AgentProcess
from tests.agent.ingest import Ingest, until
from tests.agent.shardfiles import damage
from tests.agent.writer import save, trained

JOB = "own"
WRITER = Path(__file__).with_name("writer.py")
KILLS = int(os.environ.get("STEPKEEPER_KILLS", "3"))


class Trained:
    """A job whose program only knows --output-dir, on one node."""

    def __init__(self, ingest: Ingest, agent: AgentProcess, rule: dict[str, Any], *options: str) -> None:
        self.ingest = ingest
        self.agent = agent
        self.history = agent.folder / "history"
        self.out = agent.folder / "ssd" / f"{JOB}.programs" / "out" / "node"
        words = [sys.executable, str(WRITER), "--history", str(self.history), *options]
        self._program = ["sh", "-c", f'exec {shlex.join(words)} --output-dir "$STEPKEEPER_SNAPSHOT_DIR"']
        self.rule = {"of": "node", "sealed_by": "quiet", "quiet_s": 0.6, "marker": "DONE", "pattern": "", **rule}
        self.epoch = 0

    def start(self, restore: dict[str, Any] | None = None, ranks: int = 1, job_key: str = "") -> dict[str, int]:
        self.epoch += 1
        given = {"program": self._program, "mode": "plain", "snapshot_folder": self.rule}
        at = {"step": restore["step"], "snapshot_epoch": restore["snapshot_epoch"]} if restore else None
        payload = self.agent.start_payload(ranks, restore=at, lease_rule="keep", job_key=job_key)
        payload["container"] = self.agent.container(**given)
        return self.ingest.done("start", job=JOB, epoch=self.epoch, payload=payload)["pids"]

    def go_on_from(self, *copies: dict[str, Any], job_key: str = "") -> dict[str, int]:
        """Restore from copies, best first, and start, as the server has it done."""
        self.restored = self.restore(*copies, job_key=job_key)
        return self.start(copies[0], job_key=job_key)

    def restore(self, *copies: dict[str, Any], job_key: str = "") -> dict[str, Any]:
        names = ("tier", "path", "digest", "size_bytes")
        sources = [{name: copy[name] for name in names} | {"node": "node-a"} for copy in copies]
        wanted = {
            "step": copies[0]["step"],
            "snapshot_epoch": copies[0]["snapshot_epoch"],
            "ranks": [{"rank": 0, "sources": sources}],
            "snapshot_folder": self.rule,
            "local_ranks": [0],
            "job_key": job_key,
            "world_size": 1,
        }
        return self.ingest.done("restore", job=JOB, epoch=self.epoch + 1, payload=wanted)

    def copies(self, tier: str = "ssd", epoch: int | None = None) -> list[dict[str, Any]]:
        found = [copy for copy in self.ingest.of_kind("snapshot_copy") if copy["tier"] == tier]
        return [copy for copy in found if epoch in (None, copy["snapshot_epoch"])]

    def sealed(self, step: int = 1, tier: str = "ssd") -> dict[str, Any]:
        """Wait for a copy of at least this step that this attempt made, and return it."""
        return until(lambda: next((c for c in self.copies(tier, self.epoch) if c["step"] >= step), None), 30)

    def runs(self) -> list[tuple[int, list[tuple[int, str]]]]:
        """Return for each start of the program where it began and what it trained."""
        found: list[tuple[int, list[tuple[int, str]]]] = []
        for line in self.history.read_text().splitlines():
            first, _, second = line.partition(" ")
            if first == "from":
                found.append((int(second), []))
            else:
                found[-1][1].append((int(first), second))
        return found

    def has_begun(self) -> bool:
        return self.history.exists() and bool(self.runs())

    def problems(self) -> list[dict[str, Any]]:
        return self.ingest.of_kind("snapshot_problem")

    def kill(self, pids: dict[str, int]) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pids["0"], signal.SIGKILL)
        until(lambda: any(each["_epoch"] == self.epoch for each in self.ingest.of_kind("rank_exit")))


def assert_one_line(runs: list[tuple[int, list[tuple[int, str]]]]) -> None:
    """Every value is that of a run which nothing interrupted."""
    expected = [""]
    for _start, steps in runs:
        for step, value in steps:
            while len(expected) <= step:
                expected.append(trained(expected[-1], len(expected)))
            assert value == expected[step], step


@pytest.mark.parametrize("options", [(), ("--rename",)], ids=["in the open", "renamed"])
def test_a_program_that_only_takes_an_output_folder_goes_on_after_a_kill_as_if_nothing_had_happened(
    ingest: Ingest, agent: AgentProcess, options: tuple[str, ...]
) -> None:
    rule = {"sealed_by": "rename"} if options else {}
    job = Trained(ingest, agent, rule, "--every", "40", "--pause-s", "0.02", *options)
    pids = job.start()
    copy = job.sealed()
    assert until(lambda: job.copies("storage"))[0]["digest"] == copy["digest"]
    assert copy["stall_s"] is None
    assert copy["drain_s"] >= 0
    job.kill(pids)
    newest = max(job.copies(), key=lambda each: each["step"])
    job.go_on_from(newest)
    until(lambda: len(job.runs()) == 2)
    again = job.sealed(newest["step"] + 1)
    assert again["snapshot_epoch"] == 2
    assert job.runs()[1][0] == newest["step"]
    assert_one_line(job.runs())
    assert job.problems() == []


def test_wherever_a_program_is_killed_it_begins_from_a_whole_step_and_nothing_newer_is_left(
    ingest: Ingest, agent: AgentProcess
) -> None:
    job = Trained(ingest, agent, {"quiet_s": 0.5}, "--every", "5", "--step-s", "0.02", "--pause-s", "0.1")
    chance = random.Random(4)
    pids = job.start()
    newest = job.sealed()
    for kill in range(KILLS):
        least = len(job.runs()[-1][1]) + chance.randint(0, 12)
        until(lambda least=least: len(job.runs()[-1][1]) >= least)
        job.kill(pids)
        newest = max(job.copies(), key=lambda each: (each["snapshot_epoch"], each["step"]))
        pids = job.go_on_from(newest)
        until(lambda runs=kill + 2: len(job.runs()) == runs)
        assert job.runs()[-1][0] == newest["step"], "exactly what was chosen is what the program finds as its newest"
        job.sealed(newest["step"] + 1)
    assert_one_line(job.runs())
    aside = [path.name for path in (job.out.parents[1] / "aside").iterdir()]
    assert aside, "what the killed attempts had begun was moved aside"
    assert job.problems() == []


def test_a_damaged_copy_is_named_and_storage_gives_the_files_without_passing_through_memory(
    ingest: Ingest, agent: AgentProcess
) -> None:
    job = Trained(ingest, agent, {"sealed_by": "rename"}, "--every", "1000", "--steps", "2000", "--rename")
    pids = job.start()
    until(job.has_begun)
    step = job.out / "checkpoint-7"
    part = job.out / "tmp-7"
    save(part, 7, "v", 0.0)
    part.rename(step)
    near, far = job.sealed(7), until(lambda: job.copies("storage"))[0]
    assert (near["superseded"], far["superseded"]) == (0, 0)
    job.kill(pids)
    damage(near["path"])
    job.go_on_from(near, far)
    assert job.restored["ranks"][0]["tier"] == "storage"
    assert [(each["tier"], each["code"]) for each in job.problems()] == [("ssd", "digest_mismatch")]
    until(lambda: len(job.runs()) == 2)
    assert job.runs()[1][0] == 7
    assert copying.verify(Path(near["path"]), digest=far["digest"]), "a good copy took the place of the damaged one"
    assert list((agent.memory(JOB) / "mem").iterdir()) == []
    told = [(each["_epoch"], each["path"], each["digest"]) for each in job.copies()]
    assert told == [(1, near["path"], near["digest"]), (2, near["path"], far["digest"])]


def test_of_a_folder_of_the_whole_job_the_shards_of_other_nodes_become_files_and_do_not_stay(
    ingest: Ingest, agent: AgentProcess
) -> None:
    job = Trained(ingest, agent, {"of": "job", "sealed_by": "rename"}, "--every", "1000")
    pids = job.start(ranks=2)
    until(job.has_begun)
    (job.out / ".new").mkdir()
    save(job.out / ".new" / "x", 7, "v", 0.0)
    (job.out / ".new" / "x").rename(job.out / "checkpoint-7")
    job.sealed(7)
    stored = until(lambda: len(job.copies("storage")) == 2 and job.copies("storage"))
    os.kill(pids["1"], signal.SIGKILL)
    job.kill(pids)
    names = ("tier", "path", "digest", "size_bytes")
    ranks = [{"rank": each["rank"], "sources": [{name: each[name] for name in names}]} for each in stored]
    rule = {"snapshot_folder": job.rule, "local_ranks": [0], "job_key": "k", "world_size": 2}
    wanted = {"step": 7, "snapshot_epoch": 1, "ranks": ranks, **rule}
    ingest.done("restore", job=JOB, epoch=2, payload=wanted)
    assert sorted(path.name for path in (agent.folder / "ssd" / JOB).glob("*.snap")) == ["e1-s7-r0.snap"]
    job.start({"step": 7, "snapshot_epoch": 1})
    until(lambda: len(job.runs()) == 3)
    assert job.runs()[2][0] == 7


def test_what_a_restore_brings_to_a_node_stays_its_jobs_and_what_another_job_left_there_is_moved_aside(
    ingest: Ingest, agent: AgentProcess
) -> None:
    job = Trained(ingest, agent, {"sealed_by": "rename"}, "--every", "10", "--steps", "100000", "--rename")
    pids = job.start(job_key="mine")
    job.sealed()
    far = until(lambda: job.copies("storage"))[0]
    job.kill(pids)
    shutil.rmtree(agent.folder / "ssd" / JOB)  # as on a standby, where another job of the name was before
    DirectoryTier(agent.folder / "ssd" / JOB).claim("another", ranks=1)
    job.go_on_from(far, job_key="mine")
    assert job.sealed(far["step"] + 1)
    assert (agent.folder / "ssd" / JOB / f"e1-s{far['step']}-r0.snap").exists()
    assert len(list((agent.folder / "ssd").glob(f"{JOB}.aside-*"))) == 1
    assert [(each["tier"], each["code"]) for each in job.problems()] == [("ssd", "tier_conflict")]


def test_a_file_whose_name_is_no_text_in_the_snapshot_folder_silences_nothing(
    ingest: Ingest, agent: AgentProcess
) -> None:
    job = Trained(ingest, agent, {"sealed_by": "rename"}, "--every", "10", "--steps", "100000", "--rename")
    job.start()
    first = job.sealed()
    (job.out / os.fsdecode(b"evil\xff.txt")).write_bytes(b"x")
    told = until(lambda: next((each for each in job.problems() if "evil" in each["message"]), None))
    assert told["message"].startswith("evil\\xff.txt in the snapshot folder")
    beats = len(ingest.beats)
    assert job.sealed(first["step"] + 1)
    until(lambda: len(ingest.beats) > beats + 2)


def test_a_program_that_ends_well_has_its_last_step_sealed_at_once_also_when_it_is_released(
    ingest: Ingest, agent: AgentProcess
) -> None:
    job = Trained(ingest, agent, {"quiet_s": 600}, "--every", "10", "--steps", "20")
    job.start()
    until(lambda: ingest.of_kind("rank_exit"))
    ingest.done("release", job=JOB, epoch=2, payload={})
    assert job.sealed(20)["step"] == 20
    until(lambda: 20 in {each["step"] for each in job.copies("storage")})


def test_an_agent_that_was_killed_while_it_sealed_seals_in_its_next_life_without_a_second_copy(
    ingest: Ingest, agent: AgentProcess
) -> None:
    job = Trained(ingest, agent, {"sealed_by": "marker"}, "--every", "1000000")
    job.start()
    until(job.has_begun)
    step = job.out / "step-7"
    step.mkdir()
    (step / "w").write_bytes(b"x" * 40_000_000)
    (step / "DONE").touch()
    part = agent.folder / "ssd" / JOB
    until(lambda: part.exists() and any(path.name.endswith((".part", ".snap")) for path in part.iterdir()))
    agent.kill()
    agent.start()
    copy = job.sealed(7)
    assert [path.name for path in part.iterdir() if path.name.endswith(".part")] == []
    assert {each["digest"] for each in job.copies()} == {copy["digest"]}


def test_files_that_change_after_a_step_was_sealed_throw_it_away_on_every_tier_by_name(
    ingest: Ingest, agent: AgentProcess
) -> None:
    job = Trained(ingest, agent, {}, "--every", "1000000")
    job.start()
    until(job.has_begun)
    step = job.out / "checkpoint-5"
    step.mkdir()
    (step / "w").write_bytes(b"half")
    copy = job.sealed(5)
    stored = Path(until(lambda: job.copies("storage"))[0]["path"])
    (step / "rest").write_bytes(b"the other half")
    named = until(lambda: len(job.problems()) == 2 and job.problems())
    assert {(each["tier"], each["step"], each["code"]) for each in named} == {
        ("ssd", 5, "digest_mismatch"),
        ("storage", 5, "digest_mismatch"),
    }
    assert next(each for each in named if each["tier"] == "ssd")["never_whole"] is True
    assert "node/checkpoint-5 was changed after it was sealed" in named[0]["message"] + named[1]["message"]
    assert not Path(copy["path"]).exists()
    assert not stored.exists()
