"""Snapshots: what a save costs training, when it is durable, how fast it is back; ratios, with peers in the same run.

    python -m bench snapshots            # 256 MB, all contenders
    STEPKEEPER_BENCH_MB=256,1024 STEPKEEPER_BENCH_ROUNDS=15 python -m bench snapshots

Every save is preceded by a memcpy of the same tensors in the same process, contenders take turns, and figures are
medians. The peers live in an environment of their own, build/peers. When others use the machine, nothing is judged.
"""

import json
import os
import statistics
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from bench._snapshots.busy import BUSY_CORES, WORST_SHARE
from bench.figures import Figure

ROOT = Path(__file__).resolve().parents[1]
PEERS = ("torch==2.13.0", "numpy==2.4.6", "safetensors==0.8.0", "dlrover==0.6.1", "grpcio", "protobuf", "psutil")
RUNS = 3  # a first save happens once in a process
LIMIT_S = 3000.0

Row = dict[str, Any]


def measure() -> Iterator[Figure]:
    """Measure each size in several processes, and judge."""
    python = peers_python()
    rounds = int(os.environ.get("STEPKEEPER_BENCH_ROUNDS", "15"))
    for size in map(int, os.environ.get("STEPKEEPER_BENCH_MB", "256").split(",")):
        rows = [row for _ in range(RUNS) for row in run(python, size, -(-rounds // RUNS))]
        disturbed = share_disturbed(rows)
        quiet = disturbed <= WORST_SHARE
        yield Figure(name=f"{size} MB: share of disturbed saves", samples=[disturbed], unit="", note=_quiet(quiet))
        yield from figures(f"{size} MB", rows, quiet)


def peers_python() -> Path:
    """Return the interpreter with PyTorch and the peers, which is made when it is missing."""
    home = ROOT / "build" / "peers"
    python, complete = home / "bin" / "python", home / "complete"
    if not complete.exists():
        subprocess.run([sys.executable, "-m", "venv", str(home)], check=True, timeout=120)
        subprocess.run([str(python), "-m", "pip", "install", "-q", *PEERS], check=True, timeout=1800)
        complete.write_text("\n".join(PEERS))
    return python


def run(python: Path, size: int, rounds: int) -> list[Row]:
    """Run one worker and return what it printed."""
    argv = [str(python), "-W", "ignore", "-m", "bench._snapshots.worker", f"--size={size}", f"--rounds={rounds}"]
    argv += [f"--folder={ROOT / 'build' / 'bench' / 'snapshots'}", f"--python={sys.executable}"]
    argv += [f"--only={name}" for name in filter(None, os.environ.get("STEPKEEPER_BENCH_ONLY", "").split(","))]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    if done.returncode:
        raise RuntimeError(f"the worker ended with {done.returncode}: {done.stderr[-2000:]}")
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def share_disturbed(rows: Sequence[Row]) -> float:
    """Return the share of saves while which others used the machine."""
    saves = [row for row in rows if row["kind"] in ("first", "save")]
    return sum(row["others"] > BUSY_CORES for row in saves) / max(len(saves), 1)


def figures(size: str, rows: Sequence[Row], quiet: bool) -> Iterator[Figure]:
    """Yield every ratio that something is demanded of, and the peers' beside it."""
    for name in names(rows):
        saves = of(rows, "save", name)
        yield _figure(f"{size} {name}: stall / memcpy", ratios(saves, "stall", "memcpy"), STALL.get(name), quiet)
        yield _figure(f"{size} {name}: lost / memcpy", ratios(saves, "lost", "memcpy"), LOST.get(name), quiet)
        first = ratios(of(rows, "first", name), "stall", "memcpy")
        yield _figure(f"{size} {name}: first save / memcpy", first, 1.3 if ours(name) else None, quiet)
        durable = ratios(of(rows, "durable", name), "durable", "disk")
        yield _figure(f"{size} {name}: durable / disk", durable, 1.5 if ours(name) else None, quiet)
        yield from _restores(size, name, of(rows, "restore", name), quiet)
    yield from _against(size, rows, quiet)
    for row in rows:
        if row["kind"] == "memory":
            yield _figure(f"{size} {row['name']}: extra memory / state", [row["used"] / row["state"]], 2.1, True)
        if row["kind"] == "cadence":
            kept = row["taken"] / row["asked"]
            must = "met" if kept == 1 else "missed"
            note = f"must be 1: {must}" if ours(row["name"]) else ""
            yield Figure(name=f"{size} {row['name']}: kept, asked each step", samples=[kept], unit="x", note=note)
            yield Figure(name=f"{size} {row['name']}: goodput so", samples=[row["goodput"]], unit="x")


STALL = {"ours sync": 1.10, "ours lazy": 0.05}
LOST = {"ours lazy": 1.0}


def _restores(size: str, name: str, rows: Sequence[Row], quiet: bool) -> Iterator[Figure]:
    if rows and "memory" in rows[0]:
        memory = ratios(rows, "memory", "memcpy")
        yield _figure(f"{size} {name}: restore memory / memcpy", memory, 1.2 if ours(name) else None, quiet)
    for what in ("warm", "cold"):
        yield _figure(f"{size} {name}: restore {what} / memcpy", ratios(rows, what, "memcpy"), None, quiet)


def _against(size: str, rows: Sequence[Row], quiet: bool) -> Iterator[Figure]:
    """Yield ours against a peer's, both of the same run."""
    for kind, what, mine, theirs, must in (
        ("save", "lost", "ours lazy", "dlrover", 0.8),
        ("durable", "durable", "ours lazy", "dlrover", 0.6),
        ("restore", "warm", "ours lazy", "torch.save", 0.35),
        ("restore", "cold", "ours lazy", "torch.save", 0.7),
    ):
        pairs = zip(of(rows, kind, mine), of(rows, kind, theirs), strict=False)
        found = [a[what] / b[what] for a, b in pairs if b[what] > 0]
        yield _figure(f"{size} {mine}: {what} / {theirs}", found, must, quiet)


def _figure(name: str, samples: Sequence[float], must: float | None, quiet: bool) -> Figure:
    note = ""
    if must is not None and samples:
        verdict = "met" if statistics.median(samples) <= must else "missed"
        note = f"must be <= {must}: {verdict if quiet else 'not judged'}"
    return Figure(name=name, samples=list(samples) or [float("nan")], unit="x", note=note)


def _quiet(quiet: bool) -> str:
    return "" if quiet else f"above {WORST_SHARE}: the machine is busy, nothing is judged"


def names(rows: Sequence[Row]) -> list[str]:
    """Return the contenders in order."""
    return list(dict.fromkeys(row["name"] for row in rows if row["kind"] == "opened"))


def ours(name: str) -> bool:
    """Whether a contender is this project."""
    return name.startswith("ours")


def of(rows: Sequence[Row], kind: str, name: str) -> list[Row]:
    """Return one contender's rows of a kind; saves that it left out do not count."""
    return [row for row in rows if row["kind"] == kind and row["name"] == name and row.get("taken", True)]


def ratios(rows: Sequence[Row], above: str, below: str) -> list[float]:
    """Return one figure in units of another, save by save."""
    return [row[above] / row[below] for row in rows]
