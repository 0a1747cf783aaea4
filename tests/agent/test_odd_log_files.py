"""A log file that is none, cannot be read, or is mostly NULs is told or read, and never ends its follower."""

import errno
import os
import socket
from pathlib import Path

import pytest

from reliability.agent import config
from reliability.agent.collectors import logfile
from reliability.agent.collectors.logfile import LogFile
from reliability.agent.collectors.sources import SourceLost
from reliability.errors import InvalidInput
from tests.agent.test_joining import options
from tests.agent.test_kernel_log import all_of, lines_of


def _folder(path: Path) -> None:
    path.mkdir()


def _socket(path: Path) -> None:
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(path))
    listener.close()


def _device(path: Path) -> None:
    path.symlink_to("/dev/null")


def _open_files() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


ODD = {"a folder": _folder, "a named pipe": os.mkfifo, "a socket": _socket, "a device": _device}


@pytest.mark.parametrize("kind", ODD)
def test_what_is_no_file_is_said_as_what_it_is_at_the_first_look_and_at_any_later(
    folder: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = folder / "kern.log"
    path.write_text("a line that was there\n")
    followed = LogFile(None, path=path)
    place = followed.place
    path.rename(folder / "kern.log.1")
    ODD[kind](path)
    monkeypatch.setattr(logfile, "LEFT_S", 0.0)
    opened = _open_files()
    for begin in (None, place):
        with pytest.raises(SourceLost, match=rf"kern\.log is {kind}"):
            LogFile(begin, path=path)
    assert _open_files() <= opened, "nothing stays open"
    with pytest.raises(SourceLost, match=rf"kern\.log is {kind}"):
        all_of(followed)
    with pytest.raises(InvalidInput, match=rf"--kernel-log: .*kern\.log is {kind}"):
        config.parse(options(folder, **{"kernel-log": f"file:{path}"}), {})


def test_a_file_that_cannot_be_read_is_lost_and_no_error_of_the_follower(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = folder / "kern.log"
    path.write_text("one\n")
    place = LogFile(None, path=path).place

    def broken(*_: object) -> bytes:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "pread", broken)
    for begin in (None, place):
        with pytest.raises(SourceLost, match="cannot be read: Input/output error"):
            LogFile(begin, path=path)


@pytest.mark.parametrize("size", [1, 300, 511, 512, 5000, 2**18, 2**18 + 700, 3 * 2**30])
def test_a_hole_that_a_truncation_left_before_a_line_costs_neither_time_nor_lines(folder: Path, size: int) -> None:
    path = folder / "kern.log"
    path.write_text("before\n")
    source = LogFile(None, path=path)
    with path.open("r+b") as log:
        log.truncate(0)
        log.seek(size)
        log.write(b"one\ntwo\nhal")
    assert all_of(source) == ["one", "two"]
    place = source.place
    assert place["offset"] == size + 8
    with path.open("r+b") as log:
        log.truncate(0)  # again, and the writer still does not append
        log.seek(size + 11)
        log.write(b"three\n")
    assert all_of(source)[-1].endswith("three")
    assert all_of(LogFile(source.place, path=path)) == []
    source.close()


def test_nuls_that_were_written_are_passed_over_with_a_place_and_end_the_line_before(folder: Path) -> None:
    path = folder / "kern.log"
    path.touch()
    source = LogFile(None, path=path)
    nuls = 2**23
    with path.open("ab") as log:
        log.write(b"cut off" + bytes(nuls))
    assert lines_of(source) == ["cut off"]
    for _ in range(nuls // logfile.CHUNK_BYTES + 2):
        source.look()
    assert source.place["offset"] == 7 + nuls, "no newline is needed to keep it"
    resumed = LogFile(source.place, path=path)
    with path.open("ab") as log:
        log.write(b"next\n")
    assert all_of(source) == ["next"]
    assert all_of(resumed) == ["next"]
    os.truncate(path, 0)
    with path.open("ab") as log:
        log.write(b"after\n")
    assert all_of(source) == ["after"]
