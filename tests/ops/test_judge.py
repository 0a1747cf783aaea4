"""`manage.py judge` as a person at a terminal and a program behind a pipe meet it."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.ops.running import PROJECT, environment

XID = "[ 12.5] NVRM: Xid (PCI:0000:05:00): 79, pid=7, name=python3, GPU has fallen off the bus."
ASSERT = "[rank1]: RuntimeError: CUDA error: device-side assert triggered"
NOTHING = dict.fromkeys(("source", "code", "class", "severity", "action", "fields"))


def judge(folder: Path, given: bytes, *arguments: str) -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "manage.py", "judge", *arguments]
    return subprocess.run(
        command, input=given, capture_output=True, check=False, timeout=60, cwd=PROJECT, env=environment(folder)
    )


def judged(folder: Path, given: bytes, *arguments: str) -> list[dict[str, Any]]:
    answer = judge(folder, given, "--json", *arguments)
    assert answer.returncode == 0, answer.stderr.decode()
    return [json.loads(line) for line in answer.stdout.decode().splitlines()]


def test_every_line_gets_one_object_in_its_place_also_binary_ones_and_the_last_without_an_end(tmp_path: Path) -> None:
    lines = [XID.encode(), b"", b"\x00\xff\xfe binary \x1b[0m", b"step 7 | loss: 0.2", ASSERT.encode()]
    objects = judged(tmp_path, b"\n".join(lines))
    assert len(objects) == len(lines)
    assert objects[0] == {
        "source": "nvidia-xid",
        "code": "xid-79",
        "class": "hardware",
        "severity": "fatal",
        "action": "failover",
        "fields": {"device": "0000:05:00", "xid": 79, "pid": 7, "process": "python3"},
    }
    assert objects[1:4] == [NOTHING] * 3
    assert (objects[4]["code"], objects[4]["class"]) == ("cuda-assert", "application")
    assert not (tmp_path / "stepkeeper.sqlite3").exists()


def test_who_wrote_the_lines_counts(tmp_path: Path) -> None:
    both = f"{XID}\n{ASSERT}\n".encode()
    assert [each["code"] for each in judged(tmp_path, both, "--origin", "output")] == [None, "cuda-assert"]
    assert [each["code"] for each in judged(tmp_path, both, "--origin", "kernel")] == ["xid-79", None]


def test_no_lines_give_no_objects(tmp_path: Path) -> None:
    assert judged(tmp_path, b"") == []


def test_a_person_reads_sentences_with_the_number_of_the_line(tmp_path: Path) -> None:
    answer = judge(tmp_path, f"hello\n{XID}\n".encode())
    assert answer.returncode == 0
    told = answer.stdout.decode()
    assert "line 2: xid-79 (hardware, fatal: failover)" in told
    assert "1 of 2 lines tell of a fault." in told


def test_a_database_that_does_not_answer_is_told_and_the_table_taken_as_shipped(tmp_path: Path) -> None:
    command = [sys.executable, "manage.py", "judge", "--json"]
    away = environment(tmp_path, DATABASE_URL="postgresql://nobody@127.0.0.1:25001/none?connect_timeout=2")
    answer = subprocess.run(
        command, input=XID.encode(), capture_output=True, check=False, timeout=60, cwd=PROJECT, env=away
    )
    assert answer.returncode == 0
    assert b"as shipped" in answer.stderr
    assert json.loads(answer.stdout)["code"] == "xid-79"


@pytest.mark.parametrize("form", [("--json",), ()])
def test_a_reader_that_goes_away_is_no_error(tmp_path: Path, form: tuple[str, ...]) -> None:
    given = (XID + "\n").encode() * 20_000
    command = f"{sys.executable} manage.py judge {' '.join(form)} | head -n 1"
    answer = subprocess.run(
        ["bash", "-o", "pipefail", "-c", command],
        input=given, capture_output=True, check=False, timeout=60, cwd=PROJECT, env=environment(tmp_path),
    )  # fmt: skip
    assert answer.stdout.count(b"\n") == 1
    assert b"Traceback" not in answer.stderr
    assert answer.returncode == 0


def test_a_line_is_answered_while_more_are_awaited(tmp_path: Path) -> None:
    command = [sys.executable, "manage.py", "judge", "--json", "--table", "builtin"]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=PROJECT, env=environment(tmp_path)
    ) as running:
        assert running.stdin is not None
        assert running.stdout is not None
        running.stdin.write(f"{XID}\n".encode())
        running.stdin.flush()
        os.set_blocking(running.stdout.fileno(), True)
        assert json.loads(running.stdout.readline())["code"] == "xid-79"
        running.stdin.close()
        assert running.wait(timeout=30) == 0
