"""Faults in context: what the same findings come to beside others, before and after, here and elsewhere."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reliability.domain.faults import (
    MATCHER,
    STRENGTH,
    TABLE,
    Action,
    Attempt,
    Context,
    FaultClass,
    Finding,
    Judgement,
    Maintenance,
    code_for_exit,
    judge,
)

NOW = 10_000.0
HOUR_S = 3600.0
XID = "NVRM: Xid (PCI:0000:{gpu}:00): {number}, pid=1, name=python3, {rest}"


def seen(code: str, node: str = "n1", order: int = 1, at: float = NOW, **more: Any) -> Finding:
    return Finding(code=code, node=node, order=order, at=at, **more)


def line(text: str, node: str = "n1", order: int = 1, at: float = NOW, **more: Any) -> Finding:
    told = MATCHER.find(text)
    assert told is not None, text
    return seen(told.code, node, order, at, fields=told.fields, evidence=text, **more)


def judged(*findings: Finding, now: float | None = None, context: Context | None = None, **more: Any) -> Judgement:
    last = max(finding.at for finding in findings)
    judgement = judge(
        findings,
        now=last + 1 if now is None else now,
        unknown_action=more.pop("unknown_action", Action.RESTART_IN_PLACE),
        settle_s=more.pop("settle_s", 0.0),
        context=context or Context(),
        **more,
    )
    assert judgement is not None
    return judgement


def outcome(judgement: Judgement) -> tuple[FaultClass, Action]:
    return judgement.fault_class, judgement.action


def shader(gpc: int, tpc: int, order: int, at: float, job: str = "a", epoch: int = 1, gpu: str = "3b") -> Finding:
    rest = f"Graphics SM Warp Exception on (GPC {gpc}, TPC {tpc}, SM 1): Out Of Range Address"
    return line(XID.format(gpu=gpu, number=13, rest=rest), order=order, at=at, job=job, epoch=epoch)


def test_a_full_disk_is_the_jobs_storage_and_costs_no_node() -> None:  # C11
    full = seen(code_for_exit(1, "OSError: [Errno 28] No space left on device"), "n3", 1, rank=23)
    judgement = judged(full, seen("exit-1", "n2", 2, rank=16), seen("exit-143", "n1", 3, rank=0))
    assert judgement.action is not Action.FAILOVER
    alone = judged(full, seen("exit-143", "n1", 3, rank=0))
    assert outcome(alone) == (FaultClass.STORAGE, Action.HOLD)


def test_one_contained_error_and_a_burst_of_teardowns_is_one_fault_of_one_node() -> None:  # C13
    root = line(XID.format(gpu="3b", number=94, rest="Ch 00000008"))
    burst = [
        line(XID.format(gpu=f"{gpu}b", number=45, rest="Ch 00000006"), f"n{node}", 10 * node + gpu + 1, NOW + gpu)
        for node in range(1, 5)
        for gpu in range(8)
    ]
    judgement = judged(root, *burst)
    assert outcome(judgement) == (FaultClass.HARDWARE, Action.RESTART_IN_PLACE)
    assert (judgement.root, judgement.shared) == (root, False)
    assert any("32 findings" in reason for reason in judgement.reasons)
    only = judged(*burst, seen("exit-1", "n1", 99))
    assert outcome(only) == (FaultClass.APPLICATION, Action.RESTART_IN_PLACE)


def test_a_program_error_on_different_parts_of_a_gpu_is_the_programs() -> None:  # C14
    judgement = judged(shader(2, 3, 1, NOW), shader(5, 1, 2, NOW + 60))
    assert outcome(judgement) == (FaultClass.APPLICATION, Action.RESTART_IN_PLACE)


def test_the_same_part_of_a_gpu_three_times_in_a_day_is_suspected_itself() -> None:  # C14
    history = (shader(2, 3, 1, NOW), shader(2, 3, 2, NOW + HOUR_S, "b"))
    judgement = judged(shader(2, 3, 3, NOW + 2 * HOUR_S, "b", 2), context=Context(history=history))
    assert outcome(judgement) == (FaultClass.HARDWARE, Action.FAILOVER)
    assert "3 times within 24 h on the same unit (device 0000:3b:00 gpc 2 tpc 3)" in judgement.reasons[0]


def test_the_same_gpu_under_several_jobs_is_suspected_whatever_its_part() -> None:  # C14
    history = (shader(2, 3, 1, NOW, "a"), shader(4, 4, 2, NOW + HOUR_S, "b"))
    assert judged(shader(5, 1, 3, NOW + 2 * HOUR_S, "b", 2), context=Context(history=history)).action is Action.FAILOVER
    one_job = (shader(2, 3, 1, NOW, "b"), shader(4, 4, 2, NOW + HOUR_S, "b"))
    later = judged(shader(5, 1, 3, NOW + 2 * HOUR_S, "b", 2), context=Context(history=one_job))
    assert later.action is Action.RESTART_IN_PLACE


@pytest.mark.parametrize("apart", ["old", "other gpu", "other node", "one burst"])
def test_what_is_not_the_same_place_again_within_the_window_is_no_repeat(apart: str) -> None:
    at = {"old": -50 * HOUR_S, "one burst": 2 * HOUR_S - 1}.get(apart, 0.0)
    gpu = "9b" if apart == "other gpu" else "3b"
    epoch = 2 if apart == "one burst" else 1
    history = tuple(shader(2, 3, order, NOW + at + order / 10, "b", epoch, gpu) for order in (1, 2))
    if apart == "other node":
        history = tuple(Finding(**{**vars(each), "node": "n9"}) for each in history)
    judgement = judged(shader(2, 3, 3, NOW + 2 * HOUR_S, "b", 2), context=Context(history=history))
    assert judgement.action is Action.RESTART_IN_PLACE


def test_a_second_context_switch_timeout_of_a_gpu_needs_another_node() -> None:
    first, second = (line(XID.format(gpu="5d", number=109, rest="Ch 8"), order=n, at=NOW + 600 * n) for n in (1, 2))
    assert judged(first).action is Action.RESTART_IN_PLACE
    assert judged(second, context=Context(history=(first,))).action is Action.FAILOVER


def test_a_kill_is_told_by_the_evidence_beside_it() -> None:  # C16
    killed = seen("exit-137", order=5, rank=0)
    assert outcome(judged(seen("oom", order=4))) == (FaultClass.APPLICATION, Action.RESTART_IN_PLACE)
    victim = line("Memory cgroup out of memory: Killed process 12345 (python3) total-vm:1kB", order=4)
    explained = judged(victim, killed, unknown_action=Action.FAILOVER)
    assert outcome(explained) == (FaultClass.APPLICATION, Action.RESTART_IN_PLACE)
    assert "Killed process 12345" in explained.reasons[0]
    host = line("Out of memory: Killed process 12345 (python3) total-vm:1kB", order=4)
    assert outcome(judged(host, killed, unknown_action=Action.FAILOVER)) == outcome(explained)
    lost = judged(killed, seen("node-lost", order=6))
    assert outcome(lost) == (FaultClass.HARDWARE, Action.FAILOVER)
    assert outcome(judged(killed, unknown_action=Action.HOLD)) == (FaultClass.UNKNOWN, Action.HOLD)


def test_a_process_that_the_kernel_killed_beside_a_healthy_job_is_only_noted() -> None:
    victim = line("Memory cgroup out of memory: Killed process 77 (backup) total-vm:1kB")
    assert judged(victim).action is Action.OBSERVE
    elsewhere = judged(victim, seen("exit-137", "n2", 2), unknown_action=Action.HOLD)
    assert outcome(elsewhere) == (FaultClass.UNKNOWN, Action.HOLD)


def test_a_flood_is_one_finding_with_its_count() -> None:  # C17
    flood = line(XID.format(gpu="37", number=95, rest="Uncontained: FBHUB."), count=50_000)
    judgement = judged(flood, line(XID.format(gpu="37", number=79, rest="GPU has fallen off the bus."), order=2))
    assert judgement.action is Action.FAILOVER
    assert "(50000 times)" in judgement.reasons[0]


def test_a_worse_fault_that_comes_later_raises_what_is_done() -> None:  # C29
    first = line(XID.format(gpu="37", number=31, rest="MMU Fault"))
    assert judged(first).action is Action.RESTART_IN_PLACE
    worse = line(XID.format(gpu="37", number=79, rest="GPU has fallen off the bus."), order=2, at=NOW + 8)
    judgement = judged(first, worse)
    assert outcome(judgement) == (FaultClass.HARDWARE, Action.FAILOVER)
    assert any("outranks what was seen first (xid-31" in reason for reason in judgement.reasons)


def test_the_same_end_at_the_same_step_on_another_node_is_the_jobs_own() -> None:  # C38
    again = seen("cuda-assert", "b", rank=3)
    before = Attempt(code="cuda-assert", nodes=frozenset({"a"}), step=776)
    judgement = judged(again, context=Context(step=776, attempts=(before,)))
    assert outcome(judgement) == (FaultClass.APPLICATION, Action.HOLD)
    assert "Same step, two nodes" in judgement.reasons[0]


@pytest.mark.parametrize(
    ("code", "nodes", "step"),
    [("cuda-assert", {"b"}, 776), ("cuda-assert", {"a"}, 700), ("exit-1", {"a"}, 776)],
)
def test_another_step_node_or_end_does_not_clear_the_nodes(code: str, nodes: set[str], step: int) -> None:
    before = Attempt(code=code, nodes=frozenset(nodes), step=step)
    judgement = judged(seen("cuda-assert", "b"), context=Context(step=776, attempts=(before,)))
    assert judgement.action is Action.RESTART_IN_PLACE


def test_a_lost_node_is_never_taken_for_the_jobs_own_fault() -> None:
    before = Attempt(code="node-lost", nodes=frozenset({"a"}), step=776)
    assert judged(seen("node-lost", "b"), context=Context(step=776, attempts=(before,))).action is Action.FAILOVER


def timeout(rank: int, seq: int, order: int) -> Finding:
    text = (
        f"[rank{rank}]:[E ProcessGroupNCCL.cpp:607] [Rank {rank}] Watchdog caught collective operation timeout: "
        f"WorkNCCL(SeqNum={seq}, OpType=ALLREDUCE, NumelIn=4, NumelOut=4, Timeout(ms)=600000) ran for 600004 ms"
    )
    return line(text, f"n{rank // 2}", order, NOW + order, rank=rank)


def test_the_rank_that_had_begun_fewer_collectives_is_named() -> None:
    judgement = judged(timeout(0, 1580, 1), timeout(1, 1580, 2), timeout(3, 1579, 3), timeout(2, 1580, 4))
    assert judgement.root is not None
    assert judgement.root.rank == 3
    assert outcome(judgement) == (FaultClass.SOFTWARE, Action.RESTART_IN_PLACE)
    assert (
        "Rank 3 stayed behind: it had begun 1579 collectives, the others up to 1580. It runs on n1."
        in judgement.reasons
    )


def test_the_only_rank_that_tells_of_no_timeout_is_named() -> None:
    context = Context(ranks=4, rank_nodes={2: "n1"})
    judgement = judged(timeout(0, 7, 1), timeout(1, 7, 2), timeout(3, 7, 3), context=context)
    assert judgement.reasons[0].startswith("Rank 2 is the only one that told of no time-out")
    assert "It runs on n1." in judgement.reasons[0]
    nobody = judged(timeout(0, 7, 1), timeout(1, 7, 2), context=context)
    assert "nothing accuses a node" in nobody.reasons[0]


def unanswered(node: str, peer: str, order: int) -> Finding:
    text = (
        f"NCCL WARN NET/IB : Got completion from peer {peer}<38560> with status=12 opcode=0 len=0 vendor err 129 (Recv)"
    )
    return line(text, node, order)


def test_the_node_that_is_in_every_broken_pair_is_left() -> None:
    addresses = {f"192.0.2.{number}": f"n{number}" for number in range(1, 5)}
    context = Context(addresses=addresses)
    pairs = (unanswered("n1", "192.0.2.3", 1), unanswered("n2", "192.0.2.3", 2), unanswered("n3", "192.0.2.1", 3))
    judgement = judged(*pairs, context=context)
    assert outcome(judgement) == (FaultClass.NETWORK, Action.FAILOVER)
    assert judgement.root is not None
    assert judgement.root.node == "n3"
    one_pair = judged(unanswered("n1", "192.0.2.3", 1), unanswered("n3", "192.0.2.1", 3), context=context)
    assert outcome(one_pair) == (FaultClass.NETWORK, Action.RESTART_IN_PLACE)


DOWN = "mlx5_core 0000:9f:00.0 enp159s0f0np0: Link down"
UP = "mlx5_core 0000:9f:00.0 enp159s0f0np0: Link up"


def test_a_link_that_is_down_moves_nothing_while_training_goes_on() -> None:
    assert judged(line(DOWN), now=NOW + HOUR_S).action is Action.OBSERVE


def test_a_link_that_is_down_when_training_stops_is_why_it_stopped() -> None:
    judgement = judged(line(DOWN, "n2"), seen("peer-closed", "n1", 2, NOW + 5), now=NOW + 9)
    assert outcome(judgement) == (FaultClass.NETWORK, Action.FAILOVER)
    assert judgement.root is not None
    assert judgement.root.node == "n2"
    back = judged(line(DOWN, "n2"), line(UP, "n2", 2, NOW + 2), seen("peer-closed", "n1", 3, NOW + 5), now=NOW + 9)
    assert outcome(back) == (FaultClass.SOFTWARE, Action.RESTART_IN_PLACE)


def test_a_link_that_flaps_counts_as_down_until_it_was_stable_for_a_while() -> None:
    flaps = [line((DOWN, UP)[turn % 2], "n2", turn + 1, NOW + 20 * turn) for turn in range(6)]
    stopped = seen("peer-closed", "n1", 99, NOW + 130)
    assert judged(*flaps, stopped, now=NOW + 140).action is Action.FAILOVER
    much_later = seen("peer-closed", "n1", 99, NOW + 900)
    assert judged(*flaps, much_later, now=NOW + 910).action is Action.RESTART_IN_PLACE


def test_a_program_error_is_not_put_on_a_link_that_is_down() -> None:
    judgement = judged(line(DOWN, "n2"), seen("peer-closed", "n1", 2), seen("exit-1", "n3", 3))
    assert outcome(judgement) == (FaultClass.APPLICATION, Action.RESTART_IN_PLACE)


def test_a_condition_with_a_debounce_is_awaited_and_then_acted_on() -> None:
    cable = line(
        "mlx5_core 0000:4c:00.0: Port module event[error]: module 0, Cable error, Bus stuck (I2C or data shorted)"
    )
    waiting = judged(cable, now=NOW + 5)
    assert (waiting.undecided, waiting.action) == (True, Action.OBSERVE)
    due = judged(cable, now=NOW + TABLE["cable-error"].debounce_s)
    assert (due.undecided, due.action) == (False, Action.FAILOVER)


@pytest.mark.parametrize(
    ("recovery", "action"),
    [
        ("GPU Reset Required", Action.FAILOVER),
        ("Node Reboot Required", Action.FAILOVER),
        ("Drain and Reset", Action.RESTART_IN_PLACE),
        ("None", Action.RESTART_IN_PLACE),
    ],
)
def test_the_drivers_word_on_the_recovery_raises_the_code_before_it(recovery: str, action: Action) -> None:
    cause = line(XID.format(gpu="0f", number=94, rest="Ch 00000008"))
    note = line(
        f"NVRM: Xid (PCI:0000:0f:00): 154, GPU recovery action changed from 0x0 (None) to 0x1 ({recovery})", order=2
    )
    judgement = judged(cause, note)
    assert (judgement.action, judgement.root) == (action, cause)
    assert judged(note).action is Action.OBSERVE


def test_what_is_found_in_planned_maintenance_is_no_fault() -> None:
    gone = seen("xid-79", at=NOW)
    window = Maintenance(node="n1", start=NOW - 1, end=NOW + 1, reason="new firmware")
    judgement = judged(gone, context=Context(maintenance=(window,)))
    assert judgement.action is Action.OBSERVE
    assert "new firmware" in judgement.reasons[0]
    for other in (Maintenance(node="n2", start=0, end=2 * NOW), Maintenance(node="n1", start=0, end=NOW)):
        assert judged(gone, context=Context(maintenance=(other,))).action is Action.FAILOVER


def test_the_same_code_on_most_nodes_within_a_minute_blames_no_single_node() -> None:
    many = [seen("xid-74", f"n{number}", number, NOW + number) for number in range(3)]
    assert judged(*many, nodes=4).shared
    assert not judged(*many, nodes=8).shared


def test_teardown_lines_of_an_earlier_attempt_touch_no_job_that_goes_on() -> None:
    late = seen("xid-45", at=NOW)
    running = Context(ranks_ended=False, progress_at=NOW + 16, patience_s=15)
    assert outcome(judged(late, now=NOW + 17, context=running)) == (FaultClass.UNKNOWN, Action.OBSERVE)
    early = Context(ranks_ended=False, progress_at=NOW + 1, patience_s=15)
    assert judged(late, now=NOW + 2, context=early).undecided
    stuck = judged(late, now=NOW + 15.5, context=early)
    assert outcome(stuck) == (FaultClass.SOFTWARE, Action.RESTART_IN_PLACE)
    ended = Context(ranks_ended=True, progress_at=NOW + 16, patience_s=15)
    assert judged(late, now=NOW + 17, context=ended).action is Action.RESTART_IN_PLACE


codes = st.sampled_from(sorted(TABLE))
nodes = st.sampled_from(["n1", "n2", "n3"])
fields = st.fixed_dictionaries(
    {}, optional={"device": st.sampled_from(["a", "b"]), "gpc": st.just(1), "tpc": st.just(2)}
)
found = st.lists(
    st.builds(
        Finding,
        code=codes,
        node=nodes,
        at=st.floats(0, NOW),
        order=st.integers(0, 999),
        rank=st.none() | st.integers(0, 3),
        fields=fields,
        count=st.integers(1, 9),
    ),
    min_size=1,
    max_size=8,
    unique_by=lambda each: each.order,
)
contexts = st.builds(
    Context,
    history=found.map(lambda each: tuple(Finding(**{**vars(one), "order": -1 - one.order}) for one in each)),
    step=st.none() | st.integers(0, 3),
    ranks=st.none() | st.integers(1, 4),
)


@given(found, contexts, st.sampled_from(Action), st.floats(NOW, NOW + 100))
def test_whatever_is_found_is_judged_and_rooted_in_a_finding(
    findings: list[Finding], context: Context, unknown: Action, now: float
) -> None:
    judgement = judged(*findings, context=context, unknown_action=unknown, now=now)
    assert judgement.reasons
    assert judgement.root is None or judgement.root in findings
    assert not judgement.undecided or judgement.action is Action.OBSERVE


@given(found, contexts)
def test_more_history_never_makes_an_action_milder(findings: list[Finding], context: Context) -> None:
    bare = judged(*findings, context=Context(step=context.step, ranks=context.ranks), now=NOW)
    known = judged(*findings, context=context, now=NOW)
    assert STRENGTH[known.action] >= STRENGTH[bare.action]


@given(found)
def test_a_duplicate_only_counts(findings: list[Finding]) -> None:
    more = [Finding(**{**vars(each), "count": each.count + 5}) for each in findings if each.code not in ("link-down",)]
    same = [each for each in findings if each.code not in ("link-down",)]
    conditions = any(TABLE[each.code].debounce_s or TABLE[each.code].standing_action for each in same)
    if same and not conditions:
        assert outcome(judged(*more, now=NOW)) == outcome(judged(*same, now=NOW))


@pytest.mark.parametrize(("code", "times"), [("hang", 3), ("hang-newcomer", 2)])
@pytest.mark.parametrize("replaced", [frozenset(), frozenset({"n7"})])
def test_hangs_on_one_node_make_it_a_suspect_once_and_never_bad_hardware(
    code: str, times: int, replaced: frozenset[str]
) -> None:
    earlier = tuple(seen(code, order=n, at=NOW - HOUR_S * n, epoch=9 - n) for n in range(1, times))
    last = seen(code, order=9, epoch=9)
    context = Context(history=earlier, suspects_replaced=replaced)
    wanted = Action.HOLD if replaced else Action.FAILOVER
    assert outcome(judged(last, context=context)) == (FaultClass.UNKNOWN, wanted)
    context = Context(history=earlier[1:], suspects_replaced=replaced)
    assert outcome(judged(last, context=context)) == (FaultClass.SOFTWARE, Action.RESTART_IN_PLACE)
