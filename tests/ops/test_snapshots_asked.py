"""What `manage.py snapshots` refuses at once, by the name of the option, before it reads or blames what is stored."""

import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from django.core.management import CommandError

from reliability.management.commands import snapshots as command
from reliability.tiers import choosing
from tests.ops.test_snapshots_command import JOB, run, store, tier

__all__ = ["store", "tier"]


@pytest.fixture
def address(tmp_path: Path) -> str:
    (tmp_path / "storage").mkdir()
    return str(tmp_path / "storage")


@pytest.mark.parametrize("action", ["verify", "restore", "export"])
@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--step", "7"), r"--step: no step 7 is stored\n.*There are: 20, 10\."),
        (("--step", "20", "--epoch", "1"), r"no step 20 of attempt 1 is stored\n.*There are: 10\."),
        (("--epoch", "9"), r"--epoch: nothing of attempt 9 is stored\n.*There are: 2, 1\."),
    ],
)
def test_a_step_that_is_not_stored_is_refused_and_those_there_are_named(
    address: str, store: Callable[..., None], tmp_path: Path, action: str, words: tuple[str, ...], says: str
) -> None:
    store(10)
    store(20, epoch=2)
    to = () if action == "verify" else ("--to", str(tmp_path / "back.safetensors"))
    with pytest.raises(CommandError, match=says):
        run(action, JOB, "--at", address, *to, *words)


@pytest.mark.parametrize(
    ("action", "target", "says"),
    [
        ("export", "/nope/x.safetensors", "/nope is no folder"),
        ("export", "/proc/x.safetensors", "nothing can be written into /proc"),
        ("export", "/proc/x", "nothing can be written into /proc"),
        ("export", "{here}", "is a folder"),
        ("export", "{here}/../old.pt", "old.pt is there already"),
        ("export", "{here}/../parts.safetensors", "parts-rank0.safetensors is there already"),
        ("restore", "{here}/..", "is not empty"),
        ("restore", "/nope/x", "/nope is no folder"),
        ("restore", "/proc/x", "nothing can be written into /proc"),
        ("restore", "/etc/hostname", "is no folder"),
    ],
)
def test_a_target_that_takes_nothing_is_the_one_that_is_blamed(
    address: str, store: Callable[..., None], tmp_path: Path, action: str, target: str, says: str
) -> None:
    store(10)
    (tmp_path / "there.pt").mkdir()
    for name in ("old.pt", "parts-rank0.safetensors"):
        (tmp_path / name).write_text("kept")
    words = (action, JOB, "--at", address, "--to", target.format(here=tmp_path / "there.pt"))
    with pytest.raises(CommandError, match=f"--to: .*{says}"):
        run(*words)
    there = ["node", "old.pt", "parts-rank0.safetensors", "storage", "there.pt"]
    assert sorted(path.name for path in tmp_path.iterdir()) == there
    assert (tmp_path / "old.pt").read_text() == (tmp_path / "parts-rank0.safetensors").read_text() == "kept"


@pytest.mark.parametrize("number", ["-1", "0", "99999999999999999999", "1.5", "", "\N{ARABIC-INDIC DIGIT ONE}"])
def test_numbers_that_no_job_has_are_refused(address: str, store: Callable[..., None], number: str) -> None:
    store(10)
    with pytest.raises(CommandError, match=r"argument --ranks: .* is no whole number from 1 to 1000000"):
        run("list", JOB, "--at", address, f"--ranks={number}")
    if number != "0":
        with pytest.raises(CommandError, match="argument --step"):
            run("verify", JOB, "--at", address, f"--step={number}")


@pytest.mark.parametrize("action", ["list", "verify", "prune", "restore", "export"])
@pytest.mark.parametrize("name", ["storage/lm", "../lm", "/lm", ".", "..", "", "l m", "lm\n", "l" * 81])
def test_what_is_no_name_of_a_job_is_refused(
    address: str, store: Callable[..., None], tmp_path: Path, action: str, name: str
) -> None:
    store(10)
    to = ("--to", str(tmp_path / "x")) if action in {"restore", "export"} else ()
    with pytest.raises(CommandError, match="is no name of a job"):
        run(action, name, "--at", str(tmp_path), *to)


def test_a_cap_that_has_no_room_for_one_snapshot_is_refused_as_it_is_over_rest(
    address: str, store: Callable[..., None]
) -> None:
    store(10)
    store(20)
    with pytest.raises(CommandError, match="1 B is less than one snapshot of this job"):
        run("prune", JOB, "--at", address, "--keep", "3", "--cap", "1 B", "--dry-run")


def test_what_is_being_removed_while_it_is_listed_is_not_shown_as_damage(
    address: str, store: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    for step in (10, 20, 30, 40):
        store(step, ranks=3)
    place = choosing.job_tier(address, JOB, owner="n")
    for step in (10, 20, 30):
        place.delete(f"e1/s{step}-r0")
    going = threading.Event()

    def pause(_seconds: float) -> None:
        place.delete("e1/s10-r1")
        for rank in (1, 2):
            place.delete(f"e1/s20-r{rank}")
        going.set()

    monkeypatch.setattr(command.time, "sleep", pause)
    shown = {line.split()[0]: line for line in run("list", JOB, "--at", address)[0].splitlines()[1:]}
    assert going.is_set()
    assert sorted(shown) == ["10", "30", "40"], "what is gone by then is not listed"
    assert shown["10"].endswith("is being removed")
    assert shown["30"].endswith("no rank 0")
    assert shown["40"].endswith("whole")
