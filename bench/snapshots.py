"""Snapshots: what a save costs training, when it is durable, how fast it is back; ratios, with peers in the same run.

    python -m bench snapshots            # 256 MB, all contenders
    STEPKEEPER_BENCH_MB=256,1024 STEPKEEPER_BENCH_ROUNDS=15 python -m bench snapshots

Every save is preceded by a memcpy of the same tensors in the same process, contenders take turns, and figures are
medians. The peers live in an environment of their own, build/peers. What was taken while others used the machine is
left out, and a row with too little left is not judged.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from bench import _table
from bench._snapshots import targets
from bench._snapshots.busy import BUSY_CORES
from bench._table import Row
from bench.figures import Figure

ROOT = Path(__file__).resolve().parents[1]
PEERS = ("torch==2.13.0", "numpy==2.4.6", "safetensors==0.8.0", "dlrover==0.6.1", "grpcio", "protobuf", "psutil")
SHOWS_A_TABLE = True
RUNS = 3  # a first save happens once in a process
LIMIT_S = 1200.0

Facts = dict[str, Any]


def measure() -> Iterator[Figure]:
    """Measure each size in several processes, and judge."""
    python = peers_python()
    rounds = int(os.environ.get("STEPKEEPER_BENCH_ROUNDS", "15"))
    rows: list[Row] = []
    for size in map(int, os.environ.get("STEPKEEPER_BENCH_MB", "256").split(",")):
        facts = []
        for number in range(1, RUNS + 1):
            facts += run(python, size, -(-rounds // RUNS), f"{size} MB, run {number} of {RUNS}")
        yield Figure(name=f"{size} MB: share of disturbed samples", samples=[share_disturbed(facts)], unit="")
        rows += targets.table(f"{size} MB", facts)
    sys.stdout.writelines(f"{line}\n" for line in _table.lines(rows))
    yield from (row.figure for row in rows)


def peers_python() -> Path:
    """Return the interpreter with PyTorch and the peers, which is made when it is missing."""
    home = ROOT / "build" / "peers"
    python, complete = home / "bin" / "python", home / "complete"
    if not complete.exists():
        _progress("making the peers' environment, a few minutes the first time")
        subprocess.run([sys.executable, "-m", "venv", str(home)], check=True, timeout=120)
        subprocess.run([str(python), "-m", "pip", "install", "-qq", *PEERS], check=True, timeout=1800)
        complete.write_text("\n".join(PEERS))
    return python


def run(python: Path, size: int, rounds: int, what: str) -> list[Facts]:
    """Run one worker, tell how far it is, and return what it printed."""
    argv = [str(python), "-W", "ignore", "-m", "bench._snapshots.worker", f"--size={size}", f"--rounds={rounds}"]
    argv += [f"--folder={ROOT / 'build' / 'bench' / 'snapshots'}", f"--python={sys.executable}"]
    argv += [f"--only={name}" for name in filter(None, os.environ.get("STEPKEEPER_BENCH_ONLY", "").split(","))]
    facts, began = [], time.monotonic()
    errors = ROOT / "build" / "bench" / "snapshots.log"
    errors.parent.mkdir(parents=True, exist_ok=True)
    with errors.open("wb") as log, subprocess.Popen(argv, cwd=ROOT, stdout=subprocess.PIPE, stderr=log) as worker:
        try:
            for line in worker.stdout or ():
                if not line.startswith(b"{"):
                    continue
                said = json.loads(line)
                if said["kind"] == "progress":
                    _progress(f"{what}, {said['what']}, {time.monotonic() - began:.0f} s")
                facts.append(said)
                if time.monotonic() - began > LIMIT_S:
                    raise RuntimeError(f"the worker did not end within {LIMIT_S:.0f} s")
        except BaseException:
            worker.kill()
            raise
    if worker.returncode:
        raise RuntimeError(f"the worker ended with {worker.returncode}: {errors.read_text()[-2000:]}")
    return facts


def share_disturbed(facts: Sequence[Facts]) -> float:
    """Return the share of samples while which others used the machine."""
    used = [row["others"] for row in facts if "others" in row]
    return sum(cores > BUSY_CORES for cores in used) / max(len(used), 1)


def _progress(text: str) -> None:
    sys.stdout.write(f"  ... {text}\n")
    sys.stdout.flush()
