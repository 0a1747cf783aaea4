"""`manage.py snapshots export --to FOLDER`: the files of a program that wrote them itself, from storage."""

import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from reliability.agent import program_listing, program_shards
from reliability.errors import InvalidInput
from reliability.management import program_files
from reliability.tiers.directory import DirectoryTier
from reliability.tiers.shards import Shard
from reliability.tiers.step_folder import UnfitStep

JOB = "own"


def store(tmp_path: Path, files: Mapping[str, bytes], rank: int) -> None:
    """Put a program's step on storage as the shard of a rank."""
    place, shard = tmp_path / f"node-{rank}", Shard(1, 5, rank)
    for path, content in files.items():
        (place / "step-5" / path).parent.mkdir(parents=True, exist_ok=True)
        (place / "step-5" / path).write_bytes(content)
    (place / "step-5" / "link").symlink_to("w")
    listing = program_listing.listed(place, "step-5")
    head, size = program_shards.plan_of(listing, job=JOB, shard=shard, generation=1, taken_at=1.0)
    sealed = program_shards.write(place / "shard", head, size, place=place, listing=listing, owner="n")
    named = {"job": JOB, "epoch": 1, "step": 5, "rank": rank, "taken_at": 1.0, "stall_s": None}
    record = {**named, "format": "stepkeeper-2", "chunks": sealed.chunks, "sums": sealed.sums}
    storage = DirectoryTier(tmp_path / "storage" / JOB)
    storage.put(place / "shard", shard.stored_key, digest=sealed.digest, record=record)


def export(tmp_path: Path, target: str, *more: str) -> str:
    out = io.StringIO()
    where = ["--at", str(tmp_path / "storage"), "--to", str(tmp_path / target)]
    call_command("snapshots", "export", JOB, *where, *more, stdout=out, stderr=out)
    return out.getvalue()


def test_the_files_of_all_ranks_come_back_into_one_folder(tmp_path: Path) -> None:
    (tmp_path / "storage").mkdir()
    store(tmp_path, {"w": b"0", "a/b": b""}, 0)
    store(tmp_path, {"w-1": b"1"}, 1)
    assert "step 5" in export(tmp_path, "files", "--ranks", "2").lower()
    found = {str(path.relative_to(tmp_path / "files")) for path in (tmp_path / "files").rglob("*") if path.is_file()}
    assert found == {"w", "a/b", "w-1", "link"}
    assert (tmp_path / "files" / "w").read_bytes() == b"0"


def test_a_state_that_is_no_folder_and_a_path_that_leads_outside_are_refused_in_words(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="one state and no files"):
        write(tmp_path, {"model": 1})
    for path in ("../x", "/x", "a/../../x"):
        with pytest.raises(UnfitStep, match="leads outside"):
            write(tmp_path, {program_files.KIND: {"name": "s", "files": {path: b""}}})
    with pytest.raises(CommandError):
        export(tmp_path, "files.zip")


def write(tmp_path: Path, *states: Any) -> None:
    with program_files.opened(tmp_path / "a" / "x") as take:
        for state in states:
            take(state, tmp_path)


@pytest.mark.parametrize("links", [{"p": ".."}, {"q": ".", "p": "q/.."}, {"q": ".", "r": "q/..", "p": "r/.."}])
def test_no_links_of_one_rank_take_the_files_of_another_outside(tmp_path: Path, links: dict[str, str]) -> None:
    first = {program_files.KIND: {"name": "s", "links": list(links.items())}}
    second = {program_files.KIND: {"name": "s", "files": {"p/evil": b"x"}}}
    for states in ((first, second), (second, first), (first,)):
        with pytest.raises(UnfitStep):
            write(tmp_path, *states)
    assert {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("evil")} <= {"a/x/p/evil"}
    assert not [path for path in tmp_path.rglob("*") if path.is_symlink()]


def test_a_marker_of_every_node_is_one_file_and_what_lies_there_otherwise_is_never_written_over(tmp_path: Path) -> None:
    (tmp_path / "storage").mkdir()
    store(tmp_path, {"w": b"0", "DONE": b""}, 0)
    store(tmp_path, {"w-1": b"1", "DONE": b""}, 1)
    export(tmp_path, "files", "--ranks", "2")
    export(tmp_path, "files", "--ranks", "2")
    (tmp_path / "files" / "w").write_bytes(b"my own")
    with pytest.raises(CommandError, match=r"w lies in .*another content"):
        export(tmp_path, "files", "--ranks", "2")
    assert (tmp_path / "files" / "w").read_bytes() == b"my own"
