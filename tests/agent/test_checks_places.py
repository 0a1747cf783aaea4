"""Tiers, file servers, shared memory and the clock: real folders and mounts, one of which never answers."""

import ctypes
import errno
import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from reliability.agent.collectors.checking import Outcome
from reliability.agent.collectors.checks import apart, clock_skew, disks, file_servers, shared_memory, tiers
from reliability.agent.collectors.checks.mounted import mounts
from reliability.agent.collectors.checks.tree import Tree
from tests.agent.looks import Looks, codes

LIBC = ctypes.CDLL(None, use_errno=True)
MNT_DETACH = 2
ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="mounting needs root")


def _tiers(tmp_path: Path, **changed: Any) -> Looks:
    looks = Looks(tiers.look, tiers.OPTIONS, tmp_path, least_free_share=0.0, **changed)
    for name in ("memory", "ssd", "storage"):
        (tmp_path / name).mkdir(exist_ok=True)
    looks.facts = {
        "node": "n1",
        "memory_dir": str(tmp_path / "memory"),
        "ssd_dir": str(tmp_path / "ssd"),
        "storage_dirs": [str(tmp_path / "storage"), "s3://bucket/prefix"],
    }
    return looks


def test_a_tier_that_takes_files_is_well_and_nothing_is_left_in_it(tmp_path: Path) -> None:
    outcome = _tiers(tmp_path).look()
    assert outcome.ok, outcome.reason
    assert set(outcome.measured) == {"memory", "ssd", "storage"}
    assert outcome.measured["ssd"]["free_bytes"] > 0
    assert [path for path in tmp_path.rglob("*") if not path.is_dir()] == []


def test_a_tier_that_is_gone_is_told_and_the_others_are_told_all_the_same(tmp_path: Path) -> None:
    looks = _tiers(tmp_path)
    assert looks.look().ok
    assert looks.look().ok
    (tmp_path / "ssd").rename(tmp_path / "away")
    gone = looks.look()
    assert codes(gone) == ["tier-unwritable"]
    assert gone.findings[0].fields["tier"] == "ssd"
    assert "No such file" in gone.reason
    assert set(gone.measured) == {"memory", "ssd", "storage", "codes"}
    (tmp_path / "away").rename(tmp_path / "ssd")
    assert codes(looks.look()) == ["tier-unwritable-over"]


def test_a_store_that_nobody_made_yet_is_no_fault(tmp_path: Path) -> None:
    looks = _tiers(tmp_path)
    (tmp_path / "storage").rmdir()
    outcome = looks.look()
    assert (outcome.ok, outcome.measured["storage"]) == (True, {"write": "not made yet"})


@pytest.mark.parametrize(
    ("number", "code"),
    [
        (errno.EROFS, "tier-read-only"),
        (errno.ENOSPC, "disk-full"),
        (errno.EDQUOT, "quota-full"),
        (errno.EIO, "tier-io-error"),
        (errno.ESTALE, "tier-unwritable"),
    ],
)
def test_why_a_tier_takes_no_files_decides_its_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, code: str
) -> None:
    def refuse(_handle: int) -> None:
        raise OSError(number, os.strerror(number))

    looks = _tiers(tmp_path)
    monkeypatch.setattr(os, "fsync", refuse)
    assert codes(looks.look()) == [code] * 3


def test_what_may_not_be_written_at_the_top_of_a_tier_is_no_fault_unless_it_was_allowed_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_handle: int) -> None:
        raise PermissionError(errno.EACCES, "no")

    looks, before = _tiers(tmp_path), _tiers(tmp_path)
    assert before.look().ok
    assert before.look().ok
    monkeypatch.setattr(os, "fsync", refuse)
    assert looks.look().ok
    assert codes(before.look()) == ["tier-unwritable"] * 3


def test_a_tier_with_hardly_any_room_warns_except_the_memory_tier_that_slots_fill(tmp_path: Path) -> None:
    looks = _tiers(tmp_path)
    looks.options = {**looks.options, "least_free_share": 1.0, "write": False}
    low = looks.look()
    assert [each.fields["tier"] for each in low.findings] == ["ssd", "storage"]
    assert codes(low) == ["tier-low", "tier-low"]


@pytest.fixture
def silent_mount(tmp_path: Path) -> Iterator[Path]:
    """A file system of the kind fuse whose server never answers."""
    if not Path("/dev/fuse").exists():
        pytest.skip("there is no /dev/fuse")
    folder = tmp_path / "a silent mount"
    folder.mkdir()
    handle = os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC)
    options = f"fd={handle},rootmode=40000,user_id=0,group_id=0"
    if LIBC.mount(b"fileserver:/x", os.fsencode(folder), b"fuse", 0, options.encode()) != 0:
        os.close(handle)
        pytest.skip(f"fuse cannot be mounted: {os.strerror(ctypes.get_errno())}")
    try:
        yield folder
    finally:
        LIBC.umount2(os.fsencode(folder), MNT_DETACH)
        os.close(handle)


@ROOT
@pytest.mark.engine
def test_a_mount_that_hangs_is_named_once_and_the_others_are_told_as_ever(silent_mount: Path, tmp_path: Path) -> None:
    server = tmp_path / "well"
    server.mkdir()
    looks = Looks(file_servers.look, file_servers.OPTIONS, tmp_path, kinds="fuse,here", answer_s=5.0)
    real = next(line for line in Path("/proc/self/mounts").read_text().splitlines() if "silent" in line)
    looks.write({"self/mounts": f"{real}\nhere:/y {server} here rw 0 0"})
    began = time.monotonic()
    hangs = looks.look()
    assert time.monotonic() - began < 40
    assert hangs.ok is False
    assert codes(hangs) == ["probe-hang"]
    assert hangs.findings[0].fields["device"] == str(silent_mount)
    assert hangs.measured == {"codes": ["probe-hang"], "mounts": 2, "silent": [str(silent_mount)]}
    looks.options = {**looks.options, "answer_s": 1.0}
    assert "probe-hang" not in [each.code for each in looks.look().findings if each.fields["device"] != str(server)]
    looks.options = {**looks.options, "answer_s": 5.0}
    looks.write({"self/mounts": f"here:/y {server} here rw 0 0"})
    assert "probe-hang-over" in codes(looks.look())


@ROOT
@pytest.mark.engine
def test_a_tier_that_hangs_is_not_well_and_the_others_are_told_as_ever(silent_mount: Path, tmp_path: Path) -> None:
    looks = _tiers(tmp_path, answer_s=5.0, ssd=str(silent_mount))
    hangs = looks.look()
    assert hangs.ok is False
    assert codes(hangs) == ["probe-hang"]
    assert set(hangs.measured) == {"codes", "memory", "storage"}


def _on_device(outcome: Outcome, device: str) -> list[str]:
    return [each.code for each in outcome.findings if each.fields.get("device") == device]


def _turn_read_only(folder: Path, device: str) -> list[str]:
    """Have a file system turn read-only; return the codes to expect.

    With STEPKEEPER_REAL_ERRORS it meets an error, which the kernel tells in its log: whoever follows that sees it too.
    """
    if os.environ.get("STEPKEEPER_REAL_ERRORS"):
        Path(f"/sys/fs/ext4/{device}/trigger_fs_error").write_text("an error for a test\n")
        return ["filesystem-damaged", "filesystem-read-only"]
    subprocess.run(["mount", "-o", "remount,ro", str(folder)], check=True)
    return ["filesystem-read-only"]


@ROOT
@pytest.mark.engine
def test_a_real_file_system_that_turns_read_only_is_told_and_its_tier_takes_no_files(tmp_path: Path) -> None:
    image, folder = tmp_path / "image", tmp_path / "ssd"
    folder.mkdir()
    image.write_bytes(b"")
    os.truncate(image, 16 * 2**20)
    subprocess.run(["mkfs.ext4", "-q", str(image)], check=True)
    mounted = subprocess.run(["mount", "-o", "loop,errors=remount-ro", str(image), str(folder)], check=False)
    if mounted.returncode != 0:
        pytest.skip("no loop device can be mounted")
    try:
        device = next(each.source for each in mounts(Tree(Path("/proc"))) or [] if each.folder == str(folder))[5:]
        disk, tier = Looks(disks.look, disks.OPTIONS, tmp_path), _tiers(tmp_path)
        disk.options = disks.OPTIONS
        for looks in (disk, tier):
            looks.look()
            looks.look()
        expected = _turn_read_only(folder, device)
        assert _on_device(disk.look(), device) == expected
        assert codes(tier.look()) == ["tier-read-only"]
    finally:
        subprocess.run(["umount", str(folder)], check=True)


@ROOT
@pytest.mark.engine
def test_a_real_tier_without_room_is_full_and_well_again_when_there_is_some(tmp_path: Path) -> None:
    looks = _tiers(tmp_path)
    folder = tmp_path / "ssd"
    if LIBC.mount(b"small", os.fsencode(folder), b"tmpfs", 0, b"size=64k") != 0:
        pytest.skip("tmpfs cannot be mounted")
    try:
        assert looks.look().ok
        (folder / "snapshot").write_bytes(bytes(65_536))
        assert codes(looks.look()) == ["disk-full"]
        (folder / "snapshot").unlink()
        assert codes(looks.look()) == ["disk-full-over"]
    finally:
        LIBC.umount2(os.fsencode(folder), MNT_DETACH)


def test_a_place_whose_process_still_hangs_is_not_asked_again() -> None:
    with subprocess.Popen(["/bin/sleep", "60"]) as hanging:
        mark = apart._mark(hanging.pid)
        answers = apart.asked({"a": lambda: {"x": 1}, "b": lambda: {"x": 2}}, limit_s=5.0, stuck={"a": mark})
        hanging.kill()
    assert (answers.silent, dict(answers.said), dict(answers.stuck)) == (("a",), {"b": {"x": 2}}, {"a": mark})
    again = apart.asked({"a": lambda: {"x": 1}}, limit_s=5.0, stuck=answers.stuck)
    assert dict(again.said) == {"a": {"x": 1}}


def test_a_place_that_raises_or_dies_says_so_and_none_is_left_behind() -> None:
    def dies() -> dict[str, Any]:
        os._exit(3)

    answers = apart.asked({"a": lambda: {"x": 1 / 0}, "b": dies}, limit_s=5.0, stuck={})
    assert answers.said["a"]["error"].startswith("ZeroDivisionError")
    assert answers.said["b"] == {"error": "it ended without an answer"}
    assert (answers.silent, dict(answers.stuck)) == ((), {})


def test_mounts_are_read_with_their_spaces_and_lines_that_are_none_left_out(tmp_path: Path) -> None:
    (tmp_path / "self").mkdir()
    (tmp_path / "self/mounts").write_text("a:/b /mnt/a\\040b nfs4 ro,vers=4 0 0\nhalf /x nf\n\nq /w z rwx 0 0\n")
    found = mounts(Tree(tmp_path))
    assert found is not None
    assert [(each.source, each.folder, each.kind, each.writable) for each in found] == [
        ("a:/b", "/mnt/a b", "nfs4", False)
    ]
    assert mounts(Tree(tmp_path / "none")) is None


def test_a_mount_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    looks = Looks(file_servers.look, file_servers.OPTIONS, tmp_path)
    looks.write({"self/mounts": f"fs:/a {tmp_path}/gone nfs4 rw 0 0"})
    assert codes(looks.look()) == ["mount-failed"]
    looks.write({"self/mounts": "proc /proc proc rw 0 0"})
    over = looks.look()
    assert codes(over) == ["mount-failed-over"]
    assert over.ok


@ROOT
@pytest.mark.engine
def test_shared_memory_that_is_full_warns_and_names_the_job(tmp_path: Path) -> None:
    folder = tmp_path / str(os.getpid()) / "root/dev/shm"
    folder.mkdir(parents=True)
    if LIBC.mount(b"shm", os.fsencode(folder), b"tmpfs", 0, b"size=1m") != 0:
        pytest.skip("tmpfs cannot be mounted")
    try:
        looks = Looks(shared_memory.look, shared_memory.OPTIONS, tmp_path, folder=str(tmp_path / "none"))
        looks.facts = {"containers": [{"job": "j1", "pid": os.getpid()}, {"job": "gone", "pid": 4_000_000}, "x"]}
        assert looks.look().ok
        (folder / "segment").write_bytes(bytes(1024 * 1024 - 8192))
        full = looks.look()
        assert codes(full) == ["shared-memory-full"]
        assert "job j1 is full" in full.reason
    finally:
        LIBC.umount2(os.fsencode(folder), MNT_DETACH)


@pytest.mark.parametrize(
    ("clock", "oks"),
    [
        (None, [None, None]),
        ({"ahead_s": 0.4, "uncertainty_s": 0.1}, [True, True]),
        ({"ahead_s": -90.0, "uncertainty_s": 0.2}, [True, False]),
        ({"ahead_s": 9.0, "uncertainty_s": 30.0}, [True, True]),
        ({"ahead_s": "x"}, [None, None]),
    ],
    ids=["no answer yet", "well", "behind in two looks", "too unsure to say", "garbage"],
)
def test_a_clock_warns_when_it_is_certainly_off(tmp_path: Path, clock: object, oks: list[bool | None]) -> None:
    looks = Looks(clock_skew.look, clock_skew.OPTIONS, tmp_path)
    looks.facts = {"clock": clock}
    outcomes = [looks.look(), looks.look()]
    assert [each.ok for each in outcomes] == oks
    assert codes(outcomes[1]) == (["clock-skew"] if oks[1] is False else [])
