"""A node floods a real control plane: pages and other nodes' reports go on, and the odd one out is seen in time.

STEPKEEPER_FLOOD=50000 takes the flood at its full size.
"""

import os
import threading
import time
from typing import Any

import httpx
import pytest

from tests.ops.running import Up, until

pytestmark = [pytest.mark.broker, pytest.mark.slow]

SIZE = int(os.environ.get("STEPKEEPER_FLOOD", "2000"))
AT = SIZE * 4 // 5
BATCH = 200
SEEN_S = 10.0
BUSY = {"code": "xid-95", "evidence": "NVRM: Xid (PCI:0000:4d:00): 95, pid=77, name=python3, Uncontained ECC error"}
GONE = {"code": "xid-79", "evidence": "NVRM: Xid (PCI:0000:51:00): 79, GPU has fallen off the bus."}
MILD = {"code": "xid-13", "evidence": "NVRM: Xid (PCI:0000:01:00): 13, pid=1, name=a"}


class Node:
    """What speaks for a node, over HTTP as an agent does."""

    def __init__(self, up: Up, name: str, join_token: str) -> None:
        self.http = httpx.Client(base_url=f"http://127.0.0.1:{up.port}", trust_env=False, timeout=30)
        self.name = name
        body = {"name": name, "address": "127.0.0.1", "runtime": "process", "incarnation": name}
        self.token = self._post("register", body, join_token)["token"]
        self.seq = 0

    def _post(self, route: str, body: dict[str, Any], token: str) -> dict[str, Any]:
        answer = self.http.post(f"/ingest/{route}", json=body, headers={"Authorization": f"Bearer {token}"})
        answer.raise_for_status()
        return dict(answer.json())

    def send(self, bodies: list[dict[str, Any]], *, beat: bool = False) -> float:
        """Send findings until all are taken; returns how long the last answer took."""
        items = [{"seq": self.seq + n, "kind": "finding", "body": body} for n, body in enumerate(bodies, start=1)]
        self.seq += len(bodies)
        heartbeat = {"jobs": [], "spooled": 0, "disks": {}} if beat else None
        while True:
            batch = {"node": self.name, "incarnation": self.name, "sent_at": 1.0, "heartbeat": heartbeat}
            begun = time.monotonic()
            results = self._post("batch", {**batch, "reports": items}, self.token)["results"]
            took_s = time.monotonic() - begun
            later = {result["seq"] for result in results if result["status"] == "later"}
            items = [item for item in items if item["seq"] in later]
            if not items:
                return took_s
            threading.Event().wait(0.2)


class Looking(threading.Thread):
    """Opens a page and sends another node's reports again and again, and keeps how long each took."""

    def __init__(self, pages: httpx.Client, other: Node) -> None:
        super().__init__(daemon=True)
        self.pages, self.other = pages, other
        self.page_s: list[float] = []
        self.report_s: list[float] = []
        self.done = threading.Event()

    def run(self) -> None:
        while not self.done.is_set():
            begun = time.monotonic()
            self.pages.get("/incidents/").raise_for_status()
            self.page_s.append(time.monotonic() - begun)
            self.report_s.append(self.other.send([MILD], beat=True))
            self.done.wait(0.05)


def _signed_in(up: Up) -> httpx.Client:
    made = up.run(
        "shell", "-c",
        "from django.contrib.auth.models import User; User.objects.create_superuser('flo', password='a-long-password')",
    )  # fmt: skip
    assert made.returncode == 0, made.stderr
    client = httpx.Client(base_url=f"http://127.0.0.1:{up.port}", trust_env=False, timeout=30, follow_redirects=True)
    client.get("/sign-in/")
    values = {"username": "flo", "password": "a-long-password", "csrfmiddlewaretoken": client.cookies["csrftoken"]}
    assert client.post("/sign-in/", data=values).status_code == 200
    token = client.post("/api/token/", json={"username": "flo", "password": "a-long-password"}).json()["token"]
    client.headers["X-Test-Token"] = token
    return client


def _incidents(client: httpx.Client, node: str) -> dict[str, int]:
    token = client.headers["X-Test-Token"]
    rows = httpx.get(
        f"{client.base_url}/api/v1/incidents/?page_size=200", headers={"Authorization": f"Token {token}"},
        timeout=30, trust_env=False,
    ).json()["results"]  # fmt: skip
    return {
        row["code"]: sum(finding["count"] for finding in row["findings"]) for row in rows if row.get("node") == node
    }


@pytest.mark.timeout(600)
def test_a_flood_from_one_node_starves_nobody_and_loses_no_count(up: Up, record_property: Any) -> None:
    up.ready()
    join = up.run("node", "token").stdout.strip()
    pages = _signed_in(up)
    flooding, other = Node(up, "n1", join), Node(up, "n2", join)
    looking = Looking(pages, other)
    looking.start()
    begun = time.monotonic()
    sent_at = seen_at = 0.0
    for start in range(0, SIZE, BATCH):
        bodies = [GONE if number == AT else BUSY for number in range(start, min(start + BATCH, SIZE))]
        flooding.send(bodies, beat=True)
        if start <= AT < start + BATCH:
            sent_at = time.monotonic()
        if sent_at and not seen_at and "xid-79" in _incidents(pages, "n1"):
            seen_at = time.monotonic()
    flood_s = time.monotonic() - begun
    if not seen_at:
        until(lambda: "xid-79" in _incidents(pages, "n1"), limit_s=SEEN_S + 20, what="the different finding is seen")
        seen_at = time.monotonic()
    until(lambda: _incidents(pages, "n1").get("xid-95") == SIZE - 1, limit_s=60, what="all are counted")
    drained_s = time.monotonic() - begun
    looking.done.set()
    looking.join(60)
    assert _incidents(pages, "n1") == {"xid-95": SIZE - 1, "xid-79": 1}
    assert seen_at - sent_at < SEEN_S
    page_s, report_s = sorted(looking.page_s), sorted(looking.report_s)
    told = (
        f"{SIZE} findings sent in {flood_s:.1f} s, all counted after {drained_s:.1f} s, the different one seen after "
        f"{seen_at - sent_at:.2f} s; meanwhile {len(page_s)} pages, median {page_s[len(page_s) // 2]:.3f} s, longest "
        f"{page_s[-1]:.3f} s; another node's reports median {report_s[len(report_s) // 2]:.3f} s, longest "
        f"{report_s[-1]:.3f} s"
    )
    record_property("flood", told)
    print(told)  # noqa: T201
    assert page_s[-1] < SEEN_S
    assert report_s[-1] < SEEN_S
