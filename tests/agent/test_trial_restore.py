"""Trial restores on a real agent: what is good passes, whatever is wrong is named, and a recovery comes first."""

import json
import os
import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from reliability.agent import trial_restore
from reliability.agent.trials import PREFIX
from reliability.tiers import records
from tests.agent.conftest import AgentProcess
from tests.agent.ingest import Ingest, until
from tests.agent.shardfiles import damage

SLOW = 1000.0
"""Bytes per second: with it three small shards take longer than any test waits."""


def stored(
    ingest: Ingest, agent: AgentProcess, *, ranks: int = 3, storage: str = ""
) -> tuple[int, list[dict[str, Any]]]:
    """Train until a step is whole on storage, end training, and return it with the copies as the server knows them."""
    plan = [{"from_step": 0, "every_steps": 3}]
    given = {"storage_dir": storage, "env": {"LAST_STEP": "7"}} if storage else {}
    payload = agent.start_payload(ranks, period_plan=plan, **given)
    ingest.done("start", job="lm", epoch=1, payload=payload)

    def whole() -> dict[int, dict[str, Any]]:
        copies: dict[int, dict[int, dict[str, Any]]] = {}
        for body in ingest.of_kind("snapshot_copy"):
            if body["tier"] == "storage":
                copies.setdefault(body["step"], {})[body["rank"]] = body
        return next((found for _, found in sorted(copies.items()) if len(found) == ranks), {})

    found = until(whole, 30)
    ingest.done("stop", job="lm", epoch=2, payload={"grace_s": 0})
    return found[0]["step"], [found[rank] for rank in range(ranks)]


def request(step: int, copies: list[dict[str, Any]], **given: Any) -> dict[str, Any]:
    ranks = [
        {
            "rank": copy["rank"],
            "sources": [{name: copy[name] for name in ("tier", "path", "digest", "size_bytes")} | {"node": ""}],
        }
        for copy in copies
    ]
    return {"job": "lm", "snapshot_epoch": 1, "step": step, "ranks": ranks, "limit_s": 60, "bytes_per_s": 0, **given}


def rooms(agent: AgentProcess) -> list[Path]:
    return list((agent.folder / "ssd").glob(f"{PREFIX}*"))


def children(agent: AgentProcess) -> list[int]:
    """Return the processes that try a snapshot."""
    found = []
    for each in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = each.read_bytes()
        except OSError:
            continue
        if b"reliability.agent.trial_restore" in line and f"--parent={agent.process.pid}".encode() in line:  # type: ignore[union-attr]
            found.append(int(each.parent.name))
    return found


def tree(folder: Path) -> dict[str, tuple[int, int]]:
    return {str(path): (path.stat().st_ino, path.stat().st_mtime_ns) for path in folder.rglob("*") if path.is_file()}


def files_of(agent: AgentProcess) -> dict[str, tuple[int, int]]:
    return tree(agent.memory("lm") / "mem") | tree(agent.folder / "ssd")


def settled(agent: AgentProcess) -> dict[str, tuple[int, int]]:
    """Return the files of the job once the movers have nothing more to do with them."""
    looks: list[dict[str, tuple[int, int]]] = []

    def unchanged() -> bool:
        looks.append(files_of(agent))
        return len(looks) >= 20 and all(each == looks[-1] for each in looks[-20:])

    until(unchanged, 60)
    return looks[-1]


@pytest.mark.parametrize("where", ["folder", "object store"])
def test_a_good_snapshot_passes_and_nothing_of_the_job_is_touched(
    request_url: str, ingest: Ingest, agent: AgentProcess, where: str
) -> None:
    step, copies = stored(ingest, agent, storage=request_url if where == "object store" else "")
    before = settled(agent)
    result = ingest.done("trial_restore", payload=request(step, copies))
    assert [(each["rank"], each["tier"], each["second_try"]) for each in result["read"]] == [
        (rank, "storage", False) for rank in range(3)
    ]
    assert result["size_bytes"] == sum(copy["size_bytes"] for copy in copies)
    assert (result["bad"], result["unread"]) == ([], [])
    assert files_of(agent) == before
    assert rooms(agent) == []


@pytest.fixture
def request_url(request: pytest.FixtureRequest) -> str:
    return str(request.getfixturevalue("s3_url")) if "object" in request.node.name else ""


def test_every_kind_of_damage_is_found_and_named_and_the_other_ranks_are_read_all_the_same(
    ingest: Ingest, agent: AgentProcess
) -> None:
    step, copies = stored(ingest, agent)
    path = Path(copies[1]["path"])
    for name, spoil in SPOILS.items():
        kept = {each: each.read_bytes() for each in (path, path.with_suffix(".json"))}
        spoil(path)
        outcome = ingest.result(ingest.order("trial_restore", payload=request(step, copies)))
        assert (outcome["status"], outcome["error"]["code"]) == ("failed", "trial_failed"), name
        [bad] = outcome["result"]["bad"]
        assert (bad["rank"], bad["tier"], bad["path"]) == (1, "storage", str(path)), name
        assert bad["code"] in {"digest_mismatch", "corrupt", "copy_missing"}, name
        assert bad["message"] in outcome["error"]["message"], name
        assert [each["rank"] for each in outcome["result"]["read"]] == [0, 2], name
        for each, content in kept.items():
            each.write_bytes(content)
    assert rooms(agent) == []


def _record(path: Path, **changed: Any) -> None:
    """Change fields of a commit record so that the record itself agrees with its own check."""
    file = path.with_suffix(".json")
    record = {**json.loads(file.read_text()), **changed}
    file.write_text(json.dumps(records.guarded(record)))


def _cut(path: Path) -> None:
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size // 2)


def _another_ranks(path: Path) -> None:
    """Lay the shard of another rank there, whole and with a record that agrees with it."""
    other = path.with_name(path.name.replace("-r1", "-r0"))
    path.write_bytes(other.read_bytes())


SPOILS: dict[str, Callable[[Path], object]] = {
    "a flipped bit": lambda path: damage(str(path)),
    "cut in half": _cut,
    "all zeros": lambda path: path.write_bytes(bytes(path.stat().st_size)),
    "no data": Path.unlink,
    "no record": lambda path: path.with_suffix(".json").unlink(),
    "a torn record": lambda path: path.with_suffix(".json").write_text("{"),
    "sums that the trainer would refuse": lambda path: _record(path, sums=["0" * 32]),
    "chunks of another file": lambda path: _record(path, chunks=["0" * 32]),
    "another digest": lambda path: _record(path, digest=f"xxh3:{'0' * 32}"),
    "another rank's shard": _another_ranks,
}


def test_a_shard_that_agrees_with_its_record_but_holds_another_step_is_bad(
    ingest: Ingest, agent: AgentProcess, folder: Path
) -> None:
    step, copies = stored(ingest, agent, ranks=1)
    path = Path(copies[0]["path"])
    wrong = path.with_name(path.name.replace(f"s{step}-", f"s{step + 1}-"))
    for suffix in (".snap", ".json"):
        shutil.copy(path.with_suffix(suffix), wrong.with_suffix(suffix))
    asked = request(step + 1, [{**copies[0], "path": str(wrong)}], folder=str(folder / "room"))
    (folder / "room").mkdir()
    [bad] = trial_restore.run(asked)["bad"]
    assert bad["code"] == "corrupt"
    assert f"holds (epoch, step, rank) (1, {step}, 0)" in bad["message"]


def test_a_storage_that_is_not_mounted_is_unread_and_not_bad(ingest: Ingest, agent: AgentProcess) -> None:
    place = f"{agent.folder / 'gone'}/lm/e1/s10-r0.snap"
    copy = {"rank": 0, "tier": "storage", "path": place, "digest": f"xxh3:{'0' * 32}", "size_bytes": 10}
    outcome = ingest.result(ingest.order("trial_restore", payload=request(10, [copy])))
    assert outcome["result"]["bad"] == []
    [unread] = outcome["result"]["unread"]
    assert unread["code"] == "tier_unreachable"
    assert str(agent.folder / "gone" / "lm") in unread["message"]


@pytest.mark.parametrize(
    ("path", "tier", "node"),
    [
        ("/etc/passwd", "storage", ""),
        ("/storage/other/e1/s10-r0.snap", "storage", ""),
        ("/storage/lm/e1/s20-r0.snap", "storage", ""),
        ("relative/lm/e1/s10-r0.snap", "storage", ""),
        ("/ssd/lm/e1-s10-r0.snap", "ssd", "another"),
    ],
)
def test_no_other_file_than_the_shard_that_was_named_is_opened(
    ingest: Ingest, agent: AgentProcess, path: str, tier: str, node: str
) -> None:
    asked = request(10, [{"rank": 0, "tier": tier, "path": path, "digest": f"xxh3:{'0' * 32}", "size_bytes": 1}])
    asked["ranks"][0]["sources"][0]["node"] = node
    outcome = ingest.result(ingest.order("trial_restore", payload=asked))
    assert outcome["status"] == "failed"
    assert not (outcome["result"] or {}).get("read")


def begun(ingest: Ingest, agent: AgentProcess) -> str:
    """Begin a trial that takes long, and return its order once shards are being read."""
    step, copies = stored(ingest, agent)
    order = ingest.order("trial_restore", payload=request(step, copies, bytes_per_s=SLOW))
    until(lambda: children(agent) and rooms(agent), 20)
    return order


def test_an_order_of_a_recovery_ends_the_trial_at_once_and_first(ingest: Ingest, agent: AgentProcess) -> None:
    order = begun(ingest, agent)
    began = time.monotonic()
    ingest.done("prepare", job="other", epoch=1, payload={"container": agent.container()})
    outcome = ingest.result(order)
    assert (outcome["status"], outcome["error"]["code"]) == ("failed", "trial_ended")
    assert "prepare" in outcome["error"]["message"]
    kinds = [body["order"] for body in ingest.of_kind("order_result")]
    assert kinds.index(order) < len(kinds) - 1, "the trial was over before the order was done"
    assert (children(agent), rooms(agent)) == ([], [])
    assert time.monotonic() - began < 15


def test_a_child_that_is_killed_is_told_and_leaves_no_room_taken(ingest: Ingest, agent: AgentProcess) -> None:
    order = begun(ingest, agent)
    os.kill(children(agent)[0], signal.SIGKILL)
    outcome = ingest.result(order)
    assert (outcome["status"], outcome["error"]["code"]) == ("failed", "probe_crashed")
    assert not (outcome["result"] or {}).get("bad")
    assert rooms(agent) == []


def test_a_trial_that_takes_too_long_is_ended_and_says_nothing_of_the_snapshot(
    ingest: Ingest, agent: AgentProcess
) -> None:
    step, copies = stored(ingest, agent)
    outcome = ingest.result(ingest.order("trial_restore", payload=request(step, copies, bytes_per_s=SLOW, limit_s=1.5)))
    assert outcome["error"]["code"] == "probe_timeout"
    assert (children(agent), rooms(agent)) == ([], [])


def test_an_agent_that_is_killed_takes_its_trial_along_and_the_next_one_clears_up(
    ingest: Ingest, agent: AgentProcess
) -> None:
    begun(ingest, agent)
    agent.kill()
    until(lambda: not children(agent), 10)
    assert rooms(agent)
    agent.start()
    until(lambda: not rooms(agent), 20)


def test_one_trial_at_a_time(ingest: Ingest, agent: AgentProcess) -> None:
    order = begun(ingest, agent)
    copy = {"rank": 0, "tier": "storage", "path": "/x/lm/e1/s10-r0.snap", "digest": f"xxh3:{'0' * 32}", "size_bytes": 1}
    second = ingest.result(ingest.order("trial_restore", payload=request(10, [copy])))
    assert second["error"]["code"] == "trial_busy"
    assert children(agent), "the first goes on"
    assert not [body for body in ingest.of_kind("order_result") if body["order"] == order]
