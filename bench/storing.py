"""How fast does process 3 bring a snapshot to an object store, against a plain upload by the same library?

Both send the same file, in turn, to a store on this machine: one that takes bytes as fast as they come, and one that is
as fast as a network of 1 Gbit/s. The plain upload is one call, in parts of the same size, and checks nothing; process 3
reads and hashes the file, sends, compares what the store says it holds, and writes record and manifest.
"""

import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import obstore
from obstore.store import S3Store

from bench import _table
from bench._snapshots.busy import BUSY_CORES, Watch
from bench._table import Row
from bench.figures import Figure
from reliability.supervisor.addresses import free_port
from reliability.tiers import choosing, copying
from reliability.tiers.object_store import AT_ONCE, PART_BYTES

SHOWS_A_TABLE = True
ROUNDS = 15
MUST, STRETCH = 0.9, 0.97
SIZE_BYTES = 256 * 2**20
STORES = {"a store without limit": 0.0, "a store behind 1 Gbit/s": 125e6}
START_LIMIT_S = 20.0
FIRST_PORT = 24950


@contextmanager
def store(bytes_per_s: float) -> Iterator[str]:
    """Run a store; give its address for both senders, who find it by the environment."""
    port = free_port("127.0.0.1", FIRST_PORT)
    process = subprocess.Popen([sys.executable, "-m", "bench._sink", str(port), str(bytes_per_s)])
    before = dict(os.environ)
    os.environ |= {
        "AWS_ACCESS_KEY_ID": "x",
        "AWS_SECRET_ACCESS_KEY": "x",
        "AWS_ENDPOINT": f"http://127.0.0.1:{port}",
        "AWS_ALLOW_HTTP": "true",
        "AWS_REGION": "us-east-1",
    }
    try:
        _await(port)
        yield "s3://bench/team"
    finally:
        process.kill()
        process.wait()
        os.environ.clear()
        os.environ |= before


def _await(port: int) -> None:
    end = time.monotonic() + START_LIMIT_S
    while time.monotonic() < end:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.02)
    raise RuntimeError(f"the store did not listen within {START_LIMIT_S:g} s")


def _plain(path: Path, name: str) -> float:
    target = S3Store("bench", client_options={"allow_http": True, "timeout": "120s"})
    began = time.monotonic()
    obstore.put(target, f"plain/{name}", path, chunk_size=PART_BYTES, max_concurrency=AT_ONCE)
    took = time.monotonic() - began
    obstore.delete(target, f"plain/{name}")
    return took


def _process_3(path: Path, address: str, step: int, digest: str) -> float:
    tier = choosing.job_tier(address, "lm", owner="node")
    began = time.monotonic()
    tier.put(path, f"e1/s{step}-r0", digest=digest, record={"step": step})
    took = time.monotonic() - began
    tier.delete(f"e1/s{step}-r0")
    return took


@dataclass(frozen=True)
class Round:
    """Seconds of both, and how many cores others used meanwhile."""

    plain_s: float
    ours_s: float
    others: float


def _round(path: Path, address: str, number: int, digest: str) -> Round:
    watch = Watch(os.getpid())
    plain_s, ours_s = _plain(path, str(number)), _process_3(path, address, number, digest)
    return Round(plain_s, ours_s, watch.others())


def _row(name: str, rounds: Sequence[Round]) -> Row:
    everything = [each.plain_s / each.ours_s for each in rounds]
    undisturbed = [each.plain_s / each.ours_s for each in rounds if each.others <= BUSY_CORES]
    judged = _table.enough(undisturbed, everything)
    return Row(
        what=f"process 3 / plain upload, {name}",
        samples=undisturbed if judged else everything,
        taken=len(rounds),
        judged=judged,
        must=MUST,
        stretch=STRETCH,
        at_least=True,
    )


def measure() -> Iterator[Figure]:
    """Return the figures: seconds of both, and the ratio of their speeds in each round."""
    rows = []
    with tempfile.TemporaryDirectory(prefix="stepkeeper-bench-") as folder:
        path = Path(folder) / "shard"
        path.write_bytes(os.urandom(2**20) * (SIZE_BYTES // 2**20))
        digest, _ = copying.digest_of(path, "xxh3:")
        for name, bytes_per_s in STORES.items():
            sys.stdout.write(f"  ... {name}, {ROUNDS} rounds\n")
            sys.stdout.flush()
            with store(bytes_per_s) as address:
                rounds = [_round(path, address, number, digest) for number in range(ROUNDS + 1)][1:]
            note = f"{SIZE_BYTES // 2**20} MiB, in turn, after one round that does not count"
            yield Figure(name=f"{name}: plain upload", samples=[each.plain_s for each in rounds], note=note)
            yield Figure(name=f"{name}: process 3", samples=[each.ours_s for each in rounds], note=note)
            rows.append(_row(name, rounds))
    sys.stdout.writelines(f"{line}\n" for line in _table.lines(rows))
    yield from (row.figure for row in rows)
