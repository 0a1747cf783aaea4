"""A kill for memory is known by the count of the container's own control group."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from reliability.agent.memory_kills import MemoryKills, counter_of

_TOO_MUCH = """
import os, sys
open(sys.argv[1], "w").write(str(os.getpid()))
sys.stdin.readline()
if os.fork() == 0:
    held = bytearray(200 << 20)
    os._exit(0)
os.write(1, b"%d" % os.wait()[1])
sys.stdin.readline()
"""


@pytest.fixture
def group() -> Iterator[Path]:
    """A control group with 60 MB of memory, of either version."""
    root = Path("/sys/fs/cgroup")
    two = (root / "cgroup.controllers").exists()
    folder = (root if two else root / "memory") / f"stepkeeper-test-{os.getpid()}"
    folder.mkdir()
    (folder / ("memory.max" if two else "memory.limit_in_bytes")).write_text(str(60 << 20))
    yield folder
    folder.rmdir()


@pytest.mark.engine
def test_a_real_kill_for_memory_is_counted_where_only_a_child_of_the_container_was_hit(group: Path) -> None:
    argv = [sys.executable, "-c", _TOO_MUCH, str(group / "cgroup.procs")]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as main:
        assert main.stdin
        assert main.stdout
        told: list[tuple[str, Any]] = []
        kills = MemoryKills(lambda: main.pid)
        report = kills.beside(lambda kind, body: told.append((kind, body)))
        while str(main.pid) not in (group / "cgroup.procs").read_text().split():
            assert main.poll() is None
        report("first_step", {"rank": 0})
        report("rank_exit", {"rank": 0, "signal": signal.SIGKILL})
        main.stdin.write(b"\n")
        main.stdin.flush()
        assert main.stdout.read(1) == b"9"
        report("rank_exit", {"rank": 1, "signal": signal.SIGKILL})
        report("rank_exit", {"rank": 2, "signal": signal.SIGKILL})
        report("rank_exit", {"rank": 3, "signal": 0})
        main.stdin.close()
    assert [body.get("oom_killed") for _, body in told] == [None, False, True, True, None]
    after = MemoryKills(lambda: 0)
    assert not after.rose()


def test_groups_of_both_versions_are_found(tmp_path: Path) -> None:
    for pid, text in (("1", "4:memory:/a/b\n0::/x\n"), ("2", "0::/x/y\n"), ("3", "garbage\n"), ("4", "")):
        (tmp_path / pid).mkdir()
        (tmp_path / pid / "cgroup").write_text(text)
    found = [counter_of(tmp_path, pid, Path("/c")) for pid in ("1", "2", "3", "4", "5")]
    v1, v2 = Path("/c/memory/a/b/memory.oom_control"), Path("/c/x/y/memory.events")
    assert found == [v1, v2, None, None, None]
