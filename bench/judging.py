"""How many log lines are judged in a second on one core: ordinary ones, and a flood of faults."""

import io
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from bench.figures import Figure
from reliability.domain.faults import MATCHER
from reliability.domain.faults.streams import Lines

LINES = 200_000
ROUNDS = 5
CHUNK = 1 << 17
PROJECT = Path(__file__).resolve().parents[1]
WORDS = ("step", "token", "session", "user", "root", "started", "closed", "mount", "link", "worker", "shard", "memory")


def ordinary(count: int) -> bytes:
    """Return lines as training programs, services and kernels write them all day, the same on every run."""
    chance = random.Random(7)  # noqa: S311
    out = io.StringIO()
    for number in range(count):
        stamp = f"2026-01-02 10:{number // 60 % 60:02d}:{number % 60:02d},{number % 1000:03d}"
        words = " ".join(chance.choices(WORDS, k=8))
        kind = number % 10
        if kind < 5:
            out.write(
                f"{stamp} INFO trainer: step {number} | loss: {chance.random():.4f} | grad norm: {chance.random():.3f} "
                f"| lr 3e-4 | tokens/s {chance.randrange(10**5)} | mem 61.2 GiB\n"
            )
        elif kind < 8:
            out.write(f"Jan  2 10:00:{number % 60:02d} node-{number % 16} systemd[1]: {words}\n")
        else:
            out.write(f"[{number}.123456] usb 1-1: new high-speed device number {number % 9} {words}\n")
    return out.getvalue().encode()


def flood(count: int) -> bytes:
    """Return the same fault again and again, as a broken GPU logs it."""
    return b"".join(
        f"[{number}.5] NVRM: Xid (PCI:0000:37:00): 95, pid={number % 9999}, Uncontained: FBHUB.\n".encode()
        for number in range(count)
    )


def _judged(data: bytes) -> float:
    began, lines = time.process_time(), Lines()
    for at in range(0, len(data), CHUNK):
        for _ in MATCHER.scan(lines.feed(data[at : at + CHUNK])):
            pass
    return data.count(b"\n") / (time.process_time() - began)


def _command(data: bytes) -> float:
    began = time.perf_counter()
    answer = subprocess.run(
        [sys.executable, "manage.py", "judge", "--json", "--table", "builtin"],
        input=data, capture_output=True, check=True, cwd=PROJECT, timeout=300,
    )  # fmt: skip
    assert answer.stdout.count(b"\n") == data.count(b"\n")
    return data.count(b"\n") / (time.perf_counter() - began)


def measure() -> Iterator[Figure]:
    """Yield lines a second of processor time, and of the whole command with its start."""
    usual, faults = ordinary(LINES), flood(LINES // 10)
    MATCHER.find("RuntimeError: CUDA error: unknown error")
    yield Figure(name="ordinary lines", samples=[_judged(usual) for _ in range(ROUNDS)], unit="lines/s")
    yield Figure(name="a flood of one fault", samples=[_judged(faults) for _ in range(ROUNDS)], unit="lines/s")
    yield Figure(name="manage.py judge --json, with its start", samples=[_command(usual * 5)], unit="lines/s")
