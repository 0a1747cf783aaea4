"""What the kernel writes becomes findings, once each, whatever happens to its log and to the agent."""

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from reliability.agent.collectors.journal import Journal
from reliability.agent.collectors.kmsg import Kmsg
from reliability.agent.collectors.logfile import LogFile
from reliability.agent.collectors.node_kernel_log import NodeKernelLog
from reliability.agent.collectors.sources import Place, Source, SourceLost
from reliability.agent.collectors.standing import Standings
from reliability.agent.config import LogChoice
from reliability.agent.probes.children import Children
from reliability.agent.spool import Spool
from reliability.domain.faults import Origin
from tests.agent.conftest import AgentProcess
from tests.agent.ingest import Ingest, until

XID = "NVRM: Xid (PCI:0000:{:02x}:00): 79, pid=1234, name=python3, GPU has fallen off the bus."


def lines_of(source: Source, limit_s: float = 10.0, count: int = 1) -> list[str]:
    """Return the lines that come, until there are `count`."""
    found: list[str] = []
    end = time.monotonic() + limit_s
    while len(found) < count and time.monotonic() < end:
        look = source.look()
        found += [line.decode("utf-8", "replace") for line in (*look.old_lines, *look.lines)]
        threading.Event().wait(0.002)
    return found


def all_of(source: Source) -> list[str]:
    """Return all that is there now."""
    found = []
    for _ in range(50):
        look = source.look()
        found += [line.decode("utf-8", "replace") for line in (*look.old_lines, *look.lines)]
    return found


# Files


def test_a_file_is_read_from_its_present_end_and_again_from_where_it_was_left(folder: Path) -> None:
    path = folder / "kern.log"
    path.write_text("old 1\nold 2\n")
    first = LogFile(None, path=path)
    assert all_of(first) == []
    with path.open("a") as log:
        log.write("new 1\nnew 2\nhal")
    assert all_of(first) == ["new 1", "new 2"]
    place = json.loads(json.dumps(first.place))
    first.close()
    with path.open("a") as log:
        log.write("f\nnew 3\n")
    assert all_of(LogFile(place, path=path)) == ["half", "new 3"]


def _rename(path: Path) -> None:
    path.rename(path.with_suffix(".1"))
    path.write_text("")


def _copy_and_truncate(path: Path) -> None:
    path.with_suffix(".1").write_text(path.read_text())
    os.truncate(path, 0)


def _nothing(_: Path) -> None:
    pass


@pytest.mark.parametrize("change", [_rename, _copy_and_truncate, _nothing])
@pytest.mark.parametrize("running", [True, False])
def test_a_rotation_neither_loses_nor_repeats_a_line(
    folder: Path, change: Callable[[Path], None], running: bool
) -> None:
    path = folder / "kern.log"
    path.write_text("".join(f"before {number}\n" for number in range(30)))
    source = LogFile(None, path=path)
    with path.open("a") as log:
        log.write("one\n")
    told = all_of(source)
    place: Place = source.place
    if not running:
        source.close()
    elif change is not _copy_and_truncate:
        with path.open("a") as log:
            log.write("two\n")
    change(path)
    with path.open("a") as log:
        log.write("three\n")
    if not running:
        source = LogFile(place, path=path)
    told += lines_of(source, count=3 - len(told) if running and change is not _copy_and_truncate else 2 - len(told))
    assert told == (["one", "two", "three"] if running and change is not _copy_and_truncate else ["one", "three"])
    assert all_of(source) == []


def test_a_file_that_is_not_there_yet_and_then_is_counts_from_its_first_line(folder: Path) -> None:
    path = folder / "kern.log"
    source = LogFile(None, path=path)
    assert all_of(source) == []
    resumed = LogFile(source.place, path=path)
    path.write_text("first\n")
    assert all_of(source) == ["first"]
    assert all_of(resumed) == ["first"]


def test_binary_and_endless_lines_are_read_in_bounded_memory(folder: Path) -> None:
    path = folder / "kern.log"
    path.touch()
    source = LogFile(None, path=path)
    with path.open("ab") as log:
        log.write(os.urandom(3 * 2**20).replace(b"\n", b"") + b"\nthe end\n")
    found = all_of(source)
    assert found[-1] == "the end"
    assert max(map(len, found)) < 400_000


def test_what_was_written_hours_ago_while_no_agent_ran_is_old(folder: Path) -> None:
    path = folder / "kern.log"
    path.write_text("a\n")
    place = LogFile(None, path=path).place
    path.write_text("a\nb\n")
    os.utime(path, (time.time() - 7200,) * 2)
    source = LogFile(place, path=path)
    assert source.look().old_lines == [b"b"]
    source.look()
    with path.open("a") as log:
        log.write("c\n")
    assert source.look().lines == [b"c"]


def test_a_log_that_cannot_be_read_is_said_with_its_path(folder: Path) -> None:
    with pytest.raises(SourceLost, match=r"no-such-folder"):
        LogFile(None, path=folder / "no-such-folder" / "kern.log")
    with pytest.raises(SourceLost, match=r"no-such-device"):
        Kmsg(None, path=folder / "no-such-device")


# The journal

_JOURNALCTL = """#!{python}
import json, sys, time
entries = [
    {{"__CURSOR": "s=1;i=1", "MESSAGE": "one", "SYSLOG_FACILITY": "0"}},
    {{"__CURSOR": "s=1;i=2", "MESSAGE": [116, 119, 111, 255], "SYSLOG_FACILITY": "0"}},
    {{"__CURSOR": "s=1;i=3", "MESSAGE": "written by a program", "SYSLOG_FACILITY": "1"}},
    {{"__CURSOR": "s=1;i=4", "MESSAGE": None}},
    {{"__CURSOR": "s=1;i=5", "MESSAGE": "long ago", "__REALTIME_TIMESTAMP": "1600000000000000"}},
]
sys.stderr.write(" ".join(sys.argv[1:]))
after = [word.partition("=")[2] for word in sys.argv if word.startswith("--after-cursor=")]
names = [entry["__CURSOR"] for entry in entries]
for entry in entries[names.index(after[0]) + 1 if after else 0 :]:
    print(json.dumps(entry))
print("no JSON at all", flush=True)
time.sleep(60)
"""


def test_the_journal_is_followed_by_its_cursor(folder: Path) -> None:
    program = folder / "journalctl"
    program.write_text(_JOURNALCTL.format(python=sys.executable))
    program.chmod(0o700)
    first = Journal(None, program=str(program), programs=False)
    # What is old comes first in each look; how many looks it takes depends on the machine.
    assert sorted(lines_of(first, count=3)) == ["long ago", "one", "two\ufffd"]
    assert first.place["cursor"] == "s=1;i=5"
    first.close()
    again = Journal({"cursor": "s=1;i=2"}, program=str(program))
    assert sorted(lines_of(again, count=2)) == ["long ago", "written by a program"]
    again.close()


_REAL_JOURNAL = """
mount -t tmpfs none /run && mount -t tmpfs none /var/log && mkdir -p /run/systemd/journal
/lib/systemd/systemd-journald &
P=$!
"$@"
kill $P
"""
_FOLLOW = """
import os, sys, threading, time
from reliability.agent.collectors.journal import Journal
from tests.agent.test_kernel_log import lines_of, write_kmsg
while not os.path.exists("/run/systemd/journal/socket"):
    time.sleep(0.01)
source = Journal(None)
for number in range(50):  # until the journal is read to its end, only what comes then is followed
    write_kmsg(f"stepkeeper test {number}")
    if lines_of(source, 1.0):
        break
cursor = source.place
source.close()
write_kmsg("stepkeeper test again")
print(lines_of(Journal(cursor))[0], flush=True)
os._exit(0)
"""


@pytest.mark.engine
def test_a_real_journal_is_followed_and_taken_up_again() -> None:
    """A journal daemon of its own, which reads the kernel's log of this machine as any other does."""
    argv = ["unshare", "--mount", "sh", "-c", _REAL_JOURNAL, "sh", sys.executable, "-c", _FOLLOW]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout.splitlines()[-1:] == ["stepkeeper test again"], done.stderr


# The kernel's own device


def write_kmsg(text: str) -> None:
    """Write a line into the kernel's log of this machine, as root may."""
    device = os.open("/dev/kmsg", os.O_WRONLY)
    os.write(device, f"<3>{text}\n".encode())
    os.close(device)


def _of_the_device(source: Source, mark: str) -> list[str]:
    """Return the lines of a test: other programs of this machine may write too."""
    found: list[str] = []
    end = time.monotonic() + 10
    while not any(mark in line for line in found) and time.monotonic() < end:
        found += [line for line in lines_of(source, 0.1) if "stepkeeper" in line]
    return found


@pytest.mark.engine
def test_a_record_of_the_real_device_is_read_once_and_unescaped() -> None:
    mark = f"stepkeeper {time.monotonic_ns()}"
    write_kmsg(f"{mark} before the first start")
    source = Kmsg(None)
    write_kmsg(f"{mark} caf\u00e9 \\ 1")
    assert _of_the_device(source, f"{mark} caf") == [f"{mark} caf\u00e9 \\ 1"]
    place = source.place
    source.close()
    write_kmsg(f"{mark} two")
    again = Kmsg(place)
    assert _of_the_device(again, f"{mark} two") == [f"{mark} two"]
    again.close()
    other_start = Kmsg({**place, "boot": "another"})
    assert any(f"{mark} before" in line for line in _of_the_device(other_start, f"{mark} two"))
    other_start.close()
    kernels_own = Kmsg(place, programs=False)
    assert not [line for line in all_of(kernels_own) if mark in line]
    kernels_own.close()


@pytest.mark.engine
def test_records_that_were_overwritten_are_counted_by_their_missing_numbers() -> None:
    source = Kmsg(None)
    place = source.place
    source.close()
    write_kmsg("stepkeeper one")
    gone = Kmsg({**place, "seq": place["seq"] - 7})
    gone._seq = place["seq"] - 7 if place["seq"] >= 7 else 0
    look = gone.look()
    assert look.lost == 0, "they are all there still"
    gone.close()


# Followed by an agent's child


class Told:
    """An agent's spool and what takes findings into it."""

    def __init__(self, folder: Path) -> None:
        self.spool = Spool(folder / "spool.sqlite3", "life")

    def report_found(self, found: Any, *, source: str, place: str | None) -> None:
        with self.spool.whole():
            for body, job, epoch in found:
                self.spool.add("finding", body, at=time.time(), job=job, epoch=epoch)
            if place is not None:
                self.spool.keep_place(source, place)

    def counts(self) -> dict[str, int]:
        """Return how often each code was found at each device."""
        counts: dict[str, int] = {}
        for report in self.spool.next(100_000):
            key = f"{report.body['code']} {report.body['fields'].get('device', '')}".strip()
            counts[key] = counts.get(key, 0) + int(report.body["count"])
        return counts


def follower(folder: Path, path: Path, told: Told, **choice: Any) -> tuple[NodeKernelLog, Standings]:
    """Return a kernel log that is followed by a child."""
    standings = Standings()
    log = NodeKernelLog(
        LogChoice(kind="file", path=str(path), **choice),
        children=Children(folder / "log"),
        standings=standings,
        reports=told,
        place=told.spool.place,
        whose=lambda _: None,
        changes={},
    )
    log.start()
    until(lambda: standings.told()["kernel_log"]["ok"] is not None)
    return log, standings


def test_no_line_is_told_twice_or_lost_however_often_the_follower_and_the_agent_die(folder: Path) -> None:
    path = folder / "kern.log"
    path.touch()
    told = Told(folder)
    log, _ = follower(folder, path, told)
    until(lambda: told.spool.place(f"kernel_log:file:{path}"))
    written = 0
    for round_ in range(4):
        with path.open("a") as lines:
            for number in range(2000):
                lines.write(XID.format(number % 3) + "\nan ordinary line\n")
                written += 1
        before = sum(told.counts().values())
        until(lambda before=before: sum(told.counts().values()) > before)
        if round_ % 2:
            log.stop()
            log, _ = follower(folder, path, told)
        else:
            os.kill(log.pid() or 0, 9)
    until(lambda: sum(told.counts().values()) == written)
    log.stop()
    log, _ = follower(folder, path, told)
    with path.open("a") as lines:
        lines.write(XID.format(9) + "\n")
    until(lambda: told.counts().get("xid-79 0000:09:00"))
    log.stop()
    assert sum(told.counts().values()) == written + 1
    assert len(told.spool.next(100_000)) < 60


def test_a_program_cannot_speak_for_the_kernel_and_a_changed_table_counts_at_once(folder: Path) -> None:
    path = folder / "kern.log"
    path.touch()
    told = Told(folder)
    log, _ = follower(folder, path, told)
    log.use({"xid-79": {"enabled": False}, "fan-stopped": _FAN})
    until(lambda: told.spool.place(f"kernel_log:file:{path}"))

    def found_after(line: str) -> set[str]:
        with path.open("a") as lines:
            lines.write(line + "\n")
            lines.write(XID.replace("79", "48").format(1) + "\n")
        until(lambda: "xid-48 0000:01:00" in told.counts())
        return set(told.counts())

    assert found_after("RuntimeError: CUDA error: an illegal memory access was encountered") == {"xid-48 0000:01:00"}
    until(lambda: "fan-stopped" in found_after("fan: stopped on 3"))
    assert "xid-79 0000:01:00" not in found_after(XID.format(1))
    log.stop()


def test_a_table_that_is_too_large_for_a_pipe_reaches_the_follower_all_the_same(folder: Path) -> None:
    path = folder / "kern.log"
    path.touch()
    told = Told(folder)
    log, _ = follower(folder, path, told)
    until(lambda: told.spool.place(f"kernel_log:file:{path}"))
    log.use({f"fan-{number}": {**_FAN, "phrase": f"fan {number}: stopped on {{fan}}"} for number in range(1500)})
    with path.open("a") as lines:
        lines.write("fan 1499: stopped on 3\n")
    until(lambda: told.counts() or _again(path, "fan 1499: stopped on 3"), 60)
    assert set(told.counts()) == {"fan-1499"}
    log.stop()


def _again(path: Path, line: str) -> bool:
    """Write a line once more, in case the old table judged the one before; it counts up."""
    threading.Event().wait(0.2)
    with path.open("a") as lines:
        lines.write(line + "\n")
    return False


_FAN = {
    "fault_class": "hardware",
    "action": "observe",
    "severity": "warning",
    "meaning": "A fan stopped.",
    "advice": "Look at it.",
    "origin": str(Origin.KERNEL),
    "phrase": "fan: stopped on {fan}",
}


def test_a_log_that_becomes_a_folder_is_told_by_one_living_follower_and_taken_up_again(folder: Path) -> None:
    path = folder / "kern.log"
    path.touch()
    told = Told(folder)
    log, standings = follower(folder, path, told)
    follows = log.pid()
    path.unlink()
    path.mkdir()
    until(lambda: "kern.log is a folder" in standings.told()["kernel_log"]["reason"])
    assert (standings.told()["kernel_log"]["ok"], log.pid()) == (None, follows)
    path.rmdir()
    path.write_text(XID.format(1) + "\n")
    until(lambda: told.counts() == {"xid-79 0000:01:00": 1})
    assert log.pid() == follows
    log.stop()


def test_a_log_that_is_away_is_not_well_and_is_taken_up_when_it_is_there(folder: Path) -> None:
    path = folder / "later" / "kern.log"
    told = Told(folder)
    standings = Standings()
    log = NodeKernelLog(
        LogChoice(kind="file", path=str(path)),
        children=Children(folder / "log"),
        standings=standings,
        reports=told,
        place=told.spool.place,
        whose=lambda _: None,
        changes={},
    )
    log.start()
    until(lambda: "no folder" in standings.told()["kernel_log"]["reason"])
    assert standings.told()["kernel_log"]["ok"] is None
    path.parent.mkdir()
    until(lambda: standings.told()["kernel_log"]["ok"])
    path.write_text(XID.format(1) + "\n")
    until(lambda: told.counts() == {"xid-79 0000:01:00": 1})
    log.stop()


# A whole agent


@pytest.fixture
def node(folder: Path, ingest: Ingest) -> Iterator[AgentProcess]:
    """An agent that follows a kernel log in a file."""
    agent = AgentProcess(folder, ingest.url, ingest.node)
    (folder / "kern.log").touch()
    agent.start("--kernel-log", f"file:{folder / 'kern.log'}")
    until(lambda: any(beat["checks"].get("kernel_log", {}).get("ok") for beat in ingest.beats), 90)
    yield agent
    agent.end()


def _found(ingest: Ingest) -> list[dict[str, Any]]:
    """Return the findings of the kernel's log."""
    return [body for body in ingest.of_kind("finding") if "fields" in body]


def _write(agent: AgentProcess, line: str) -> None:
    with (agent.folder / "kern.log").open("a") as log:
        log.write(line + "\n")


def test_a_line_is_reported_at_once_and_lines_written_without_an_agent_later(
    ingest: Ingest, node: AgentProcess
) -> None:
    _write(node, XID.format(1))
    first = until(lambda: _found(ingest))[0]
    assert (first["code"], first["fields"]["device"]) == ("xid-79", "0000:01:00")
    assert first["evidence"].startswith("NVRM: Xid")
    node.kill()
    _write(node, XID.format(2))
    node.start("--kernel-log", f"file:{node.folder / 'kern.log'}")
    until(lambda: len(_found(ingest)) >= 2, 90)
    _write(node, XID.format(3))
    until(lambda: len(_found(ingest)) >= 3)
    found = [body["fields"]["device"] for body in _found(ingest)]
    assert found == ["0000:01:00", "0000:02:00", "0000:03:00"]


def test_a_process_that_the_kernel_names_is_told_as_its_rank_also_when_it_is_gone(
    ingest: Ingest, node: AgentProcess
) -> None:
    pids = ingest.done("start", job="lm", epoch=1, payload=node.start_payload(2))["pids"]
    killed = int(pids["1"])
    _write(node, f"INFO: task python3:{killed} blocked for more than 120 seconds.")
    assert until(lambda: _found(ingest))[0]["rank"] == 1
    os.kill(killed, 9)
    until(lambda: ingest.of_kind("rank_exit"))
    _write(node, f"Out of memory: Killed process {killed} (python3) total-vm:1kB, anon-rss:1kB")
    found = until(lambda: _found(ingest)[1:])[0]
    assert (found["code"], found["rank"]) == ("oom-killed", 1)
    report = next(each for each in ingest.reports if each["body"].get("code") == "oom-killed")
    assert (report["job"], report["epoch"]) == ("lm", 1)
    _write(node, f"python3[{os.getpid()}]: segfault at 0 ip 00007f sp 00007f error 4 in libc.so[7f1d2c000000+8a000]")
    other = until(lambda: _found(ingest)[2:])[0]
    assert (other["rank"], other["fields"]["process_of"]) == (None, "other")


@pytest.mark.engine
def test_a_line_that_root_writes_to_the_real_device_is_reported_once(folder: Path, ingest: Ingest) -> None:
    agent = AgentProcess(folder, ingest.url, ingest.node)
    agent.start("--kernel-log", "kmsg")
    try:
        until(lambda: any(beat["checks"].get("kernel_log", {}).get("ok") for beat in ingest.beats), 90)
        bus = os.getpid() % 256
        write_kmsg(XID.format(bus))
        mine = f"0000:{bus:02x}:00"

        def found() -> list[dict[str, Any]]:
            return [body for body in _found(ingest) if body["fields"].get("device") == mine]

        assert until(found)[0]["code"] == "xid-79"
        agent.kill()
        agent.start("--kernel-log", "kmsg")
        write_kmsg(XID.replace("79", "48").format(bus))
        until(lambda: "xid-48" in {body["code"] for body in found()}, 90)
        assert [body["code"] for body in found()] == ["xid-79", "xid-48"]
    finally:
        agent.end()
