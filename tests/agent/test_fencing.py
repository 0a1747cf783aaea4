"""Do ranks end for certain, only those that are meant, and again until it is certain?"""

import json
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from reliability.agent import processes, standing
from reliability.agent.attempts import EpochTaken, PartReleased
from reliability.agent.clock import steady
from reliability.agent.engine import EngineWatch
from reliability.agent.fences import Fences
from reliability.agent.localjob import LocalJob
from reliability.errors import EngineUnreachable, RuntimeFailure, StaleEpoch
from tests.agent.ingest import until
from tests.agent.locals import JOB, Held, LocalNode, TroubledRuntime, container_plan, start_plan


@pytest.fixture
def node(folder: Path) -> Iterator[LocalNode]:
    runtime = TroubledRuntime(folder / "processes")
    node = LocalNode(folder, runtime)
    yield node
    runtime.before, runtime.after_list = lambda call: None, lambda: None
    node.jobs.close()
    for info in runtime.list({}):
        runtime.stop(info.name, grace_s=0)
    runtime.close()


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(max_workers=4) as pool:
        yield pool


def alive(pid: int) -> bool:
    return processes.alive(pid)


def unreachable(*calls: str) -> Callable[[str], None]:
    def fail(call: str) -> None:
        if call in calls:
            raise EngineUnreachable("The engine does not answer.")

    return fail


def launcher_of(node: LocalNode) -> int:
    ready = node.part.folder.ready()
    assert ready is not None
    return int(ready["pid"])


def fences(node: LocalNode, newest: dict[str, int], *, answered_at: float | None = None, lease_s: float = 60) -> Fences:
    def supersede(job: str, epoch: int) -> None:
        node.jobs.get(job).stop(epoch, grace_s=0.0)

    return Fences(
        node.jobs,
        newest=lambda job: newest.get(job, 0),
        supersede=supersede,
        answered_at=lambda: steady() if answered_at is None else answered_at,
        lease_s=lambda: lease_s,
        report=lambda kind, body, job="", epoch=0: node.reports.append(
            {"kind": kind, "job": job, "epoch": epoch, **body}
        ),
    )


def test_a_frozen_launcher_that_has_not_read_its_order_can_never_start_it_after_a_stop(
    node: LocalNode, pool: ThreadPoolExecutor
) -> None:
    node.part.prepare(container_plan(), epoch=1, slot=0, limit_s=20)
    launcher = launcher_of(node)
    os.kill(launcher, signal.SIGSTOP)
    starting = pool.submit(node.start, 1)
    until(lambda: node.part.folder.epoch_order(1))
    assert node.part.stop(2, grace_s=0.0) == [0]
    assert not alive(launcher), "only the end of the launcher makes sure of it"
    with pytest.raises(StaleEpoch):
        starting.result(10)
    assert set(node.start(2)) == {0}, "the next attempt gets a launcher of its own"
    assert node.part.folder.pids(1) is None


def test_a_stop_asked_again_looks_again_although_it_was_confirmed_before(node: LocalNode) -> None:
    node.start(1)
    node.part.stop(2, grace_s=0.0)
    launcher = launcher_of(node)
    (node.part.folder.root / "ctl" / "epoch-1.json").unlink()
    order = {"epoch": 1, "stop": False, "program": ["/bin/sleep", "600"], "mode": "plain", "ranks": []}
    order["ranks"] = [{"rank": 0, "local_rank": 0, "env": {}}]
    late = node.part.folder.root / "ctl" / "epoch-2.json"
    late.with_suffix(".part").write_text(json.dumps({**order, "epoch": 2}))
    late.with_suffix(".part").rename(late)
    stray = until(lambda: processes.below(launcher))
    node.part.stop(2, grace_s=0.0)
    assert not any(alive(pid) for pid in stray)


def test_a_stop_that_failed_is_tried_again_until_its_ranks_are_gone(node: LocalNode) -> None:
    pid = node.start(1)[0]
    node.runtime.before = unreachable("inspect", "stop")
    with pytest.raises(EngineUnreachable):
        node.part.stop(2, grace_s=0.0)
    assert alive(pid)
    watch = fences(node, {JOB: 2})
    watch.look()
    until(lambda: node.of_kind("finding"))
    assert node.of_kind("finding")[0]["code"] == "engine_unreachable"
    node.runtime.before = lambda call: None
    until(lambda: watch.look() or not alive(pid), 10)
    until(lambda: node.part.record.stopped)
    watch.stop()


def test_a_stop_by_lease_that_failed_is_finished_also_by_the_next_life(node: LocalNode, monkeypatch: Any) -> None:
    monkeypatch.setattr(LocalJob, "renew_lease", lambda *_args: None)  # the launcher would end them by itself
    pid = node.start(1, lease_rule="stop")[0]
    node.runtime.before = unreachable("inspect")
    watch = fences(node, {}, answered_at=steady() - 10, lease_s=1)
    watch.look()
    until(lambda: node.of_kind("finding"))
    assert alive(pid)
    assert node.of_kind("rank_exit") == [], "what did not happen is not reported"
    watch.stop()
    node.runtime.before = lambda call: None
    node.reborn()
    watch = fences(node, {})
    until(lambda: watch.look() or not alive(pid), 10)
    ended = until(lambda: node.of_kind("rank_exit"))
    assert (ended[0]["exit_code"], ended[0]["rank"], len(ended)) == (137, 0, 1)
    assert "lease" in ended[0]["tail"]
    watch.stop()


def test_ranks_whose_lease_is_good_again_when_their_turn_comes_go_on(node: LocalNode) -> None:
    pid = node.start(1)[0]
    node.part.stop_by_lease("too late", epoch=1, still=lambda: False)
    node.part.stop_by_lease("for an older attempt", epoch=0)
    assert alive(pid)
    assert node.part.record.training


def test_a_rank_that_may_not_be_killed_ends_with_its_container(node: LocalNode, monkeypatch: Any) -> None:
    pid = node.start(1)[0]
    real = os.kill

    def refuse(target: int, number: int) -> None:
        if target == pid:
            raise PermissionError(1, "Operation not permitted")
        real(target, number)

    monkeypatch.setattr(processes.os, "kill", refuse)
    assert node.part.stop(2, grace_s=0.0) == [0]
    assert not alive(pid)
    assert not node.part.container.up


def test_processes_that_cannot_be_seen_do_not_count_as_gone(node: LocalNode, monkeypatch: Any, tmp_path: Path) -> None:
    pid = node.start(1)[0]
    info = node.part.container.inspect()
    assert info is not None
    monkeypatch.setattr(processes, "_PROC", tmp_path)
    assert not processes.end_below(info.pid, grace_s=0, limit_s=1)
    assert alive(pid) or Path(f"/proc/{pid}").exists()


def test_a_grace_lets_a_rank_end_by_itself(node: LocalNode, tmp_path: Path) -> None:
    program = tmp_path / "polite.py"
    program.write_text(
        "import signal, sys, time\n"
        "signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))\n"
        "print('up', flush=True)\ntime.sleep(600)\n"
    )
    node.start(1, container={**container_plan().raw, "program": [str(program)]})
    until(lambda: "up" in (node.part.folder.root / "log" / "1-0.log").read_text())
    node.part.stop(2, grace_s=10.0)
    assert until(lambda: node.part.folder.exits(1))[0]["exit_code"] == 7


def test_a_delayed_stop_leaves_a_newer_attempt_alone(node: LocalNode, pool: ThreadPoolExecutor) -> None:
    node.start(1)
    held = Held(node.runtime, "inspect")
    late = pool.submit(node.part.stop, 2, grace_s=0.0)
    assert held.reached.wait(10)

    def begin() -> dict[int, int]:
        node.part.stop(3, grace_s=0.0)
        return node.start(3)

    begun = pool.submit(begin)
    until(lambda: node.part.record.epoch == 3)
    held.go.set()
    late.result(10)
    pid = begun.result(20)[0]
    assert node.part.stop(3, grace_s=0.0) == []
    assert node.part.stop(2, grace_s=0.0) == []
    assert alive(pid)


def test_a_release_leaves_alone_what_began_while_it_was_under_way(node: LocalNode) -> None:
    node.start(1)
    part, seen = node.part, node.part.begun
    part.stop(2, grace_s=0.0)
    pid = node.start(2)[0]
    with pytest.raises(StaleEpoch):
        node.jobs.release(part, 1, seen=seen)
    with pytest.raises(StaleEpoch):
        node.jobs.release(part, 2, seen=seen)
    assert alive(pid)
    node.jobs.release(part, 2, seen=part.begun)
    assert not alive(pid)
    assert not part.folder.root.exists()


def test_a_start_under_way_does_not_bring_back_what_was_released(node: LocalNode, pool: ThreadPoolExecutor) -> None:
    part = node.part
    held = threading.Event()
    real = part.container.ensure_image
    part.container.ensure_image = lambda image: held.wait(20) and real(image)  # type: ignore[method-assign,return-value]
    starting: Future[Any] = pool.submit(part.start, start_plan(), epoch=1, limit_s=20)
    until(lambda: part.record.epoch == 1)
    node.jobs.release(part, 1, seen=part.begun)
    held.set()
    with pytest.raises(PartReleased):
        starting.result(20)
    assert part.container.inspect() is None
    assert node.jobs.find(JOB) is None


def test_a_release_that_failed_is_not_on_record(node: LocalNode) -> None:
    pid = node.start(1)[0]
    node.runtime.before = unreachable("stop")
    with pytest.raises(EngineUnreachable):
        node.jobs.release(node.part, 1, seen=node.part.begun)
    node.runtime.before = lambda call: None
    node.reborn()
    assert node.jobs.find(JOB) is not None
    assert alive(pid)


def test_a_lost_record_does_not_let_ranks_go_unseen(node: LocalNode) -> None:
    pid = node.start(3)[0]
    record = node.jobs_dir / f"{JOB}.json"
    record.write_text("{")
    node.reborn()
    assert node.jobs.find(JOB) is None
    part = node.jobs.here(JOB)
    assert part is not None
    assert part.stop(3, grace_s=0.0) == []
    assert alive(pid), "an attempt is known by its epoch file"
    assert part.stop(4, grace_s=0.0) == [0]
    assert not alive(pid)


def test_an_unreachable_engine_is_no_proof_that_nothing_runs(node: LocalNode) -> None:
    node.start(1)
    (node.jobs_dir / f"{JOB}.json").unlink()
    node.reborn()
    node.runtime.before = unreachable("inspect")
    with pytest.raises(EngineUnreachable):
        node.jobs.here(JOB)


def test_a_record_with_fields_of_another_version_is_read(node: LocalNode) -> None:
    node.start(1)
    record = node.jobs_dir / f"{JOB}.json"
    record.write_text(json.dumps({**json.loads(record.read_text()), "of_tomorrow": 1}))
    node.reborn()
    assert node.part.record.training
    assert not node.part.record.adopted


def test_a_stray_container_is_told_of_and_ends_when_nobody_knows_its_job(node: LocalNode) -> None:
    pid = node.start(2)[0]
    (node.jobs_dir / f"{JOB}.json").unlink()
    node.reborn()
    EngineWatch(node.runtime, node.jobs, lambda *_args, **_more: None).compare()
    part = node.jobs.find(JOB)
    assert part is not None
    assert (part.status()["epoch"], part.status()["container"]) == (2, "running")
    node.jobs.judge_adopted({"another"}, heard_at=part.made_at)
    assert alive(pid), "that heartbeat did not name it yet"
    node.jobs.judge_adopted({"another"}, heard_at=part.made_at + 5)
    until(lambda: not alive(pid), 10)


def test_a_job_that_orders_told_of_is_never_taken_for_a_stray(node: LocalNode) -> None:
    pid = node.start(1)[0]
    node.jobs.judge_adopted(set(), heard_at=node.part.made_at + 5)
    EngineWatch(node.runtime, node.jobs, lambda *_args, **_more: None).compare()
    node.jobs.judge_adopted(set(), heard_at=node.part.made_at + 5)
    assert alive(pid)
    assert node.part.record.training


def test_a_stray_of_an_older_attempt_is_ended(node: LocalNode) -> None:
    pid = node.start(2)[0]
    (node.jobs_dir / f"{JOB}.json").unlink()
    node.reborn()
    EngineWatch(node.runtime, node.jobs, lambda *_args, **_more: None).compare()
    watch = fences(node, {JOB: 3})
    until(lambda: watch.look() or not alive(pid), 10)
    watch.stop()


def test_a_container_that_began_while_the_list_was_under_way_is_not_taken_for_dead(node: LocalNode) -> None:
    watch = EngineWatch(node.runtime, node.jobs, lambda *_args, **_more: None)
    part = node.part
    node.runtime.after_list = lambda: node.start(1) and None
    watch.compare()
    assert part.container.up
    assert part.record.training
    assert node.of_kind("container") == []
    node.runtime.after_list = lambda: None
    node.runtime.stop(part.container.name, grace_s=0)
    watch.compare()
    assert [report["event"] for report in node.of_kind("container")] == ["die"]


def test_an_attempt_is_never_confirmed_by_what_an_earlier_one_of_its_number_left(node: LocalNode) -> None:
    node.start(1)
    node.part.stop_by_lease("the lease ran out", epoch=1)
    with pytest.raises(EpochTaken):
        node.start(1)
    (node.jobs_dir / f"{JOB}.json").unlink()
    node.runtime.stop(node.part.container.name, grace_s=0)
    node.reborn()
    with pytest.raises(EpochTaken) as refusal:
        node.start(1)
    assert refusal.value.code == "epoch_taken"
    assert set(node.start(2)) == {0}


def test_a_start_asked_again_while_its_ranks_run_is_confirmed(node: LocalNode) -> None:
    pids = node.start(1)
    node.reborn()
    assert node.start(1) == pids


def test_a_start_that_was_recorded_and_not_yet_told_is_told_now(node: LocalNode, monkeypatch: Any) -> None:
    def crash(*_args: object) -> None:
        raise RuntimeFailure("power loss")

    with monkeypatch.context() as patch:
        patch.setattr("reliability.agent.folder.JobFolder.write_epoch", crash)
        with pytest.raises(RuntimeFailure):
            node.start(1)
    node.reborn()
    assert node.part.record.training
    assert set(node.start(1)) == {0}


def test_a_late_start_does_not_undo_a_newer_plan(node: LocalNode) -> None:
    newer = [{"from_step": 0, "every_steps": 9}]
    node.part.set_period(version=2, plan=newer)
    node.start(1, plan_version=1)
    period = json.loads((node.part.folder.root / "ctl" / "period.json").read_text())
    assert (period["version"], period["plan"]) == (2, newer)
    node.part.set_period(version=1, plan=[])
    assert json.loads((node.part.folder.root / "ctl" / "period.json").read_text())["version"] == 2


def test_an_old_lease_does_not_end_new_ranks(node: LocalNode) -> None:
    standing.write_lease(node.part.folder, until=steady() - 100, lease_s=1, rule="stop")
    pid = node.start(1, lease_rule="stop")[0]
    began = time.monotonic()
    until(lambda: time.monotonic() - began > 0.6)
    assert alive(pid)
    node.part.renew_lease(steady() - 1, 1)
    until(lambda: not alive(pid), 5)
    ended = until(lambda: node.of_kind("rank_exit"))[0]
    assert ended["exit_code"] == 137
    assert "lease ran out" in ended["tail"]


def test_a_lease_is_renewed_also_where_no_file_can_be_made(node: LocalNode, monkeypatch: Any) -> None:
    standing.write_lease(node.part.folder, until=1.0, lease_s=1, rule="stop")

    def full(*_args: object, **_more: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_text", full)
    standing.write_lease(node.part.folder, until=2.0, lease_s=1, rule="keep")
    assert standing.lease_until(node.part.folder) == 2.0
    assert standing.lease_rule(node.part.folder) == "keep"


def test_a_stop_and_start_on_a_warm_launcher_take_no_time_of_waiting(node: LocalNode) -> None:
    node.start(1)
    began = time.monotonic()
    node.part.stop(2, grace_s=0.0)
    node.part.stop(2, grace_s=0.0)
    node.start(2)
    assert time.monotonic() - began < 5
