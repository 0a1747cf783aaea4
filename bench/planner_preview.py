"""How long does the web process take to answer what a plan would give?

A real server on loopback with a database of its own; `healthz` of the same server, which does next to nothing, is the
measure of what a request costs at all.
"""

import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import httpx

from bench.figures import Figure
from reliability.supervisor.addresses import free_port
from tests.ops.running import PROJECT, environment, until

FIRST_PORT = 21200
WARM_UP, ROUNDS = 50, 400
START_LIMIT_S = 60.0
P50_S, P99_S = 0.015, 0.050
SETUP = """
from datetime import timedelta
from django.contrib.auth.models import Group, User
from django.utils import timezone
from rest_framework.authtoken.models import Token
from reliability import roles
from reliability.models import Epoch, Job, Node, Rank, Slot, Snapshot, SnapshotCopy
roles.ensure_roles()
user = User.objects.create_user("bench")
user.groups.add(Group.objects.get(name="viewer"))
now = timezone.now()
job = Job.objects.create(name="lm", nodes=8, runtime="process", program=["x"], storage_dir="/x", state="running",
    epoch=1, every_steps=20, created_at=now, started_at=now - timedelta(days=2))
Epoch.objects.create(job=job, number=1, started_at=now - timedelta(days=2), running_at=now - timedelta(days=2))
for index in range(8):
    node = Node.objects.create(name=f"n{index}", address="10.0.0.1", runtime="process", role="training",
        registered_at=now, last_seen_at=now)
    slot = Slot.objects.create(job=job, index=index, node=node)
    Rank.objects.create(job=job, slot=slot, rank=index, epoch=1, step=1000, step_s=14.2, state="running")
kept = Snapshot.objects.bulk_create(Snapshot(job=job, epoch=1, step=20 * number, created_at=now)
    for number in range(500))
SnapshotCopy.objects.bulk_create(SnapshotCopy(snapshot=snapshot, rank=rank, tier="memory", path="/x", size_bytes=1,
    digest="x", stall_s=0.5, drain_s=3.0, committed_at=now) for snapshot in kept for rank in range(8))
print(Token.objects.create(user=user).key)
"""
ENTERED = {
    "save_stall": "30s",
    "faults": 12,
    "exposure": "30d",
    "recovery": "10m",
    "downtime": "2m",
    "drain": "5m",
    "drain_ssd": "20s",
    "node_share": 0.6,
    "memory_share": 0.2,
    "target": 0.97,
    "step_time": 14.2,
    "nodes": 128,
    "standbys": 4,
    "repair": "1d",
    "period": "1h",
    "planned_stops_per_week": 2,
    "cluster_availability": 0.99,
}


@contextmanager
def server() -> Iterator[tuple[str, str]]:
    """Give the address of a server in a folder of its own and a token for it; it ends with the block."""
    with tempfile.TemporaryDirectory(prefix="stepkeeper-bench-") as folder:
        env = environment(Path(folder) / "data", VALIDATE_STANDBYS="no", LOG_LEVEL="warning")
        manage = [sys.executable, "manage.py"]
        subprocess.run([*manage, "migrate", "-v0"], cwd=PROJECT, env=env, check=True, timeout=120)
        done = subprocess.run(
            [*manage, "shell", "-v0", "-c", SETUP], cwd=PROJECT, env=env, check=True, timeout=60, capture_output=True
        )
        token = done.stdout.decode().split()[-1]
        port = free_port("127.0.0.1", FIRST_PORT)
        command = ["-m", "uvicorn", "webapp.asgi:application", "--no-access-log", "--host", "127.0.0.1"]
        process = subprocess.Popen([sys.executable, *command, "--port", str(port)], cwd=PROJECT, env=env)
        try:
            address = f"http://127.0.0.1:{port}"
            until(lambda: _answers(address), limit_s=START_LIMIT_S, what="the server answers")
            yield address, token
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(5)


def _answers(address: str) -> bool:
    try:
        return httpx.get(f"{address}/healthz", timeout=2).status_code == 200
    except httpx.HTTPError:
        return False


def timed(request: Callable[[], httpx.Response]) -> list[float]:
    """Return the seconds of each request, after some to warm up. Raises RuntimeError unless all are answered."""
    samples = []
    for number in range(WARM_UP + ROUNDS):
        began = time.perf_counter()
        reply = request()
        took = time.perf_counter() - began
        if reply.status_code != 200:
            raise RuntimeError(f"{reply.request.url} answered {reply.status_code}: {reply.text[:300]}")
        if number >= WARM_UP:
            samples.append(took)
    return samples


def percentile(samples: Sequence[float], share: float) -> float:
    """Return the sample that so large a share of all is not above."""
    return sorted(samples)[min(len(samples) - 1, int(share * len(samples)))]


def told(samples: Sequence[float], reference: Sequence[float]) -> str:
    """Return the percentiles, and how many times the reference's median is."""
    p50, p99 = percentile(samples, 0.5), percentile(samples, 0.99)
    times = p50 / statistics.median(reference)
    verdict = "within" if p50 <= P50_S and p99 <= P99_S else "ABOVE"
    limits = f"{verdict} 15 and 50 ms"
    return f"p50 {p50 * 1000:.1f} ms, p99 {p99 * 1000:.1f} ms: {limits}; {times:.1f} times healthz"


def measure() -> Iterator[Figure]:
    """Return the figures."""
    with server() as (address, token):
        preview = f"{address}/api/v1/plans/preview/"
        with httpx.Client(headers={"Authorization": f"Token {token}"}, timeout=10) as client:
            reference = timed(lambda: client.get(f"{address}/healthz"))
            yield Figure(name="healthz", samples=reference, note=f"load {os.getloadavg()[0]:.1f}")
            entered = timed(lambda: client.post(preview, json=ENTERED))
            yield Figure(name="preview, every value given", samples=entered, note=told(entered, reference))
            of_job = timed(lambda: client.post(preview, json={"job": "lm", "target": 0.97}))
            yield Figure(name="preview of a job, measured anew every 2 s", samples=of_job, note=told(of_job, reference))
