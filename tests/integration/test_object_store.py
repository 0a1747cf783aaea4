"""The whole product with its snapshots on an object store: lost nodes are restored from it, its absence hurts none."""

import json
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.ops.running import Up, until
from tests.stores.s3 import SECRET, S3Server

pytestmark = [pytest.mark.broker, pytest.mark.timeout(300)]


class Watched:
    """A demo whose database a test reads."""

    def __init__(self, up: Up) -> None:
        self.up = up
        self.database = up.folder / "stepkeeper.sqlite3"

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        with sqlite3.connect(f"file:{self.database}?mode=ro", uri=True, timeout=10) as database:
            return list(database.execute(query))

    def value(self, query: str) -> Any:
        return self.rows(query)[0][0]

    def write(self, query: str) -> None:
        with sqlite3.connect(self.database, timeout=20) as database:
            database.execute(query)

    def stored_step(self) -> int:
        return self.value("select coalesce(storage_step, 0) from reliability_job") or 0

    def step(self) -> int:
        return min((step or 0 for (step,) in self.rows("select step from reliability_rank")), default=0)

    def printed(self) -> str:
        logs = [self.up.output_path, *self.up.folder.rglob("*.log")]
        return "".join(path.read_text(errors="replace") for path in logs)


NO_HEADS = """
create trigger no_heads after insert on reliability_shardpart
begin delete from reliability_shardpart where id = new.id; end
"""
"""Without what a rank alone holds, another rank's memory gives a lost one nothing back: the store must."""


@pytest.fixture
def demo(tmp_path: Path, s3_url: str) -> Iterator[Watched]:
    up = Up(folder=tmp_path / "demo", command=("demo",), settings={"STORAGE_DIR": s3_url})
    try:
        up.ready()
        until(lambda: "Sign in" in up.output, limit_s=60, what=f"the demo is up; it printed:\n{up.output}")
        yield Watched(up)
    finally:
        up.end()


def test_a_lost_nodes_ranks_are_restored_from_the_object_store_and_no_secret_is_kept_anywhere(
    demo: Watched, s3: S3Server, s3_url: str
) -> None:
    demo.write("update reliability_job set approval = 'automatic'")
    demo.write(NO_HEADS)
    demo.write("delete from reliability_shardpart")
    until(lambda: demo.stored_step() > 0, limit_s=60, what="a step is complete on the store")
    places = demo.rows("select path from reliability_snapshotcopy where tier = 'storage'")
    assert all(path.startswith(f"{s3_url}/demo/e1/s") for (path,) in places)
    drill = demo.up.run("drill", "demo", "--what", "kill_node", "--wait", "120", limit_s=150)
    assert drill.returncode == 0, drill.stdout + drill.stderr
    orders = demo.rows("select result from reliability_orderrecord where kind = 'restore' and state = 'done'")
    used = [rank["tier"] for (result,) in orders for rank in json.loads(result)["result"]["ranks"]]
    assert "storage" in used
    reached = demo.step()
    until(lambda: demo.step() > reached, limit_s=60, what="training goes on")
    assert s3.paths("team/demo/manifests/e2/") or until(
        lambda: s3.paths("team/demo/manifests/e2/"), limit_s=60, what="the new attempt is stored too"
    )
    assert SECRET.encode() not in demo.database.read_bytes()
    assert SECRET not in demo.printed()


def test_a_store_that_goes_away_and_comes_back_is_told_and_costs_training_nothing(demo: Watched, s3: S3Server) -> None:
    until(lambda: demo.stored_step() > 0, limit_s=60, what="a step is complete on the store")
    s3.stop()
    try:
        before = demo.step()
        told = "select count(*) from reliability_finding where code = 'store-unreachable'"
        until(lambda: demo.value(told), limit_s=90, what="the store's absence is told")
        until(lambda: demo.step() > before + 20, limit_s=60, what="training goes on without the store")
        stored = demo.stored_step()
    finally:
        s3.start()
    until(lambda: demo.stored_step() > stored, limit_s=90, what="newer steps get to the store again")
    assert demo.value("select count(*) from reliability_failover") == 0
