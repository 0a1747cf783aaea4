"""Faults: what findings come to, whatever order and company they arrive in."""

from itertools import permutations
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from reliability.domain.faults import (
    STRENGTH,
    TABLE,
    Action,
    FaultClass,
    Finding,
    Judgement,
    code_for_exit,
    judge,
    lookup,
)
from reliability.errors import InvalidInput

NOW = 100.0


def seen(code: str, node: str = "n1", order: int = 1, at: float = NOW - 1, **more: Any) -> Finding:
    return Finding(code=code, node=node, order=order, at=at, **more)


def judged(
    *findings: Finding,
    unknown_action: Action = Action.RESTART_IN_PLACE,
    now: float = NOW,
    settle_s: float = 2.0,
    nodes: int | None = None,
) -> Judgement:
    judgement = judge(findings, unknown_action=unknown_action, now=now, settle_s=settle_s, nodes=nodes)
    assert judgement is not None
    return judgement


codes = st.sampled_from(sorted(TABLE))
findings = st.lists(
    st.builds(
        Finding,
        code=codes,
        node=st.sampled_from(["n1", "n2", "n3"]),
        at=st.floats(0, NOW),
        order=st.integers(0, 1000),
        rank=st.one_of(st.none(), st.integers(0, 3)),
    ),
    min_size=1,
    max_size=8,
    unique_by=lambda finding: finding.order,
)


def test_nothing_seen_is_nothing_to_judge() -> None:
    assert judge([], unknown_action=Action.FAILOVER, now=NOW, settle_s=2) is None


def test_an_error_on_a_survivor_does_not_hide_the_lost_node() -> None:
    judgement = judged(seen("exit-1", "n2", 1), seen("node-lost", "n1", 2))
    assert (judgement.action, judgement.fault_class) == (Action.FAILOVER, FaultClass.HARDWARE)
    assert judgement.root is not None
    assert judgement.root.node == "n1"
    assert any("exit-1 on n2" in reason for reason in judgement.reasons)


def test_a_lost_node_stays_the_root_when_survivors_fail_later() -> None:
    judgement = judged(seen("node-lost", "n1", 1), seen("exit-1", "n2", 2))
    assert judgement.root is not None
    assert judgement.root.code == "node-lost"


def test_the_earliest_of_equal_errors_is_the_root() -> None:
    judgement = judged(seen("exit-139", "n3", 7), seen("exit-1", "n2", 5), seen("exit-134", "n1", 9))
    assert judgement.root is not None
    assert judgement.root.code == "exit-1"


def test_the_order_of_arrival_decides_and_not_the_clock() -> None:
    judgement = judged(seen("exit-1", "n1", 1, at=NOW - 1), seen("exit-139", "n2", 2, at=NOW - 5))
    assert judgement.root is not None
    assert judgement.root.code == "exit-1"


def test_a_worse_code_raises_a_restart_to_a_failover() -> None:
    first = judged(seen("xid-31"))
    assert (first.action, first.fault_class) == (Action.RESTART_IN_PLACE, FaultClass.APPLICATION)
    then = judged(seen("xid-31"), seen("xid-79", order=2))
    assert (then.action, then.fault_class) == (Action.FAILOVER, FaultClass.HARDWARE)


def test_a_contained_memory_error_with_teardown_bursts_blames_one_node_and_moves_none() -> None:
    bursts = [seen("xid-45", f"n{index % 4 + 1}", index + 2) for index in range(32)]
    judgement = judged(seen("xid-94", "n1", 1), *bursts)
    assert judgement.root is not None
    assert (judgement.root.code, judgement.root.node) == ("xid-94", "n1")
    assert judgement.action is Action.RESTART_IN_PLACE


def test_teardown_bursts_with_a_program_error_are_the_programs_fault() -> None:
    judgement = judged(seen("xid-45", "n1", 1), seen("xid-45", "n2", 2), seen("exit-1", "n3", 3))
    assert (judgement.action, judgement.fault_class) == (Action.RESTART_IN_PLACE, FaultClass.APPLICATION)


@pytest.mark.parametrize("code", ["peer-closed", "exit-143", "xid-45", "collective-timeout"])
def test_only_consequences_wait_for_a_cause_and_then_restart(code: str) -> None:
    findings = (seen(code, "n1", 1, at=NOW), seen(code, "n2", 2, at=NOW + 1))
    waiting = judged(*findings, now=NOW + 2.0)
    assert waiting.undecided
    assert waiting.action is Action.OBSERVE
    settled = judged(*findings, now=NOW + 2.1)
    assert not settled.undecided
    assert settled.root is None
    assert (settled.action, settled.fault_class) == (Action.RESTART_IN_PLACE, FaultClass.SOFTWARE)
    assert "No root was found" in settled.reasons[0]


def test_a_silent_agent_alone_is_only_observed() -> None:
    judgement = judged(seen("agent-silent"))
    assert judgement.action is Action.OBSERVE
    assert not judgement.undecided


def test_a_full_snapshot_tier_moves_no_node() -> None:
    judgement = judged(seen("disk-full"), seen("snapshot-problem", "n2", 2))
    assert (judgement.action, judgement.fault_class) == (Action.OBSERVE, FaultClass.STORAGE)


def test_a_program_that_filled_the_disk_is_held_even_when_its_peers_fall_with_it() -> None:
    judgement = judged(seen("exit-disk-full", "n2", 1), seen("exit-143", "n1", 2), seen("peer-closed", "n3", 3))
    assert (judgement.action, judgement.fault_class) == (Action.HOLD, FaultClass.STORAGE)


@pytest.mark.parametrize("code", ["container-died", "exit-137"])
@pytest.mark.parametrize("action", list(Action))
def test_an_unexplained_end_follows_the_policy_of_the_job(code: str, action: Action) -> None:
    judgement = judged(seen(code), unknown_action=action)
    assert judgement.action is action
    assert judgement.fault_class is FaultClass.UNKNOWN


def test_an_end_that_the_same_node_explains_does_not_ask_the_policy() -> None:
    judgement = judged(seen("container-died", "n1", 1), seen("oom", "n1", 2), unknown_action=Action.FAILOVER)
    assert (judgement.action, judgement.fault_class) == (Action.RESTART_IN_PLACE, FaultClass.APPLICATION)


def test_an_error_on_another_node_does_not_explain_an_unexplained_end() -> None:
    judgement = judged(seen("exit-1", "n2", 1), seen("container-died", "n1", 2), unknown_action=Action.FAILOVER)
    assert judgement.action is Action.FAILOVER
    assert judgement.root is not None
    assert judgement.root.node == "n1"


def test_reasons_carry_rank_and_evidence() -> None:
    judgement = judged(seen("exit-139", rank=3, evidence="signal 11"))
    assert "rank 3" in judgement.reasons[0]
    assert "signal 11" in judgement.reasons[0]


def test_the_same_hardware_code_on_most_nodes_points_to_something_shared() -> None:
    many = [seen("xid-74", f"n{index}", index, at=NOW + index) for index in range(3)]
    assert any("3 of 4 nodes" in reason for reason in judged(*many, nodes=4).reasons)
    assert not any("share" in reason for reason in judged(*many, nodes=6).reasons)


def test_the_same_code_hours_apart_points_to_nothing_shared() -> None:
    apart = [seen("xid-74", f"n{index}", index, at=index * 3600.0) for index in range(3)]
    assert not any("share" in reason for reason in judged(*apart).reasons)


@given(findings, st.sampled_from(Action))
def test_the_order_in_which_findings_are_listed_does_not_matter(listed: list[Finding], unknown: Action) -> None:
    assert judged(*listed, unknown_action=unknown) == judged(*reversed(listed), unknown_action=unknown)


@given(findings, codes, st.sampled_from(["n1", "n4"]))
def test_one_more_finding_never_lowers_a_known_cause(listed: list[Finding], code: str, node: str) -> None:
    before = judged(*listed, unknown_action=Action.OBSERVE)
    assume(not lookup(code).clears)  # the end of a condition is good news, and may lower what was not acted on yet
    more = Finding(code=code, node=node, at=NOW, order=2000)
    after = judged(*listed, more, unknown_action=Action.OBSERVE)
    if before.root is not None:
        assert STRENGTH[after.action] >= STRENGTH[before.action]


@given(findings)
def test_a_follow_up_is_never_the_root(listed: list[Finding]) -> None:
    root = judged(*listed).root
    assert root is None or not lookup(root.code).follow_up


def test_every_code_has_a_class_an_action_and_words() -> None:
    for code, row in TABLE.items():
        assert row.code == code
        assert row.meaning.endswith(".")
        assert row.advice.endswith(".")
        assert row.fault_class in FaultClass
        assert row.action in Action


def test_what_never_decides_alone_asks_for_no_action_by_itself() -> None:
    assert all(row.action is Action.OBSERVE for row in TABLE.values() if row.follow_up or row.unexplained)


@pytest.mark.parametrize(
    "code",
    [
        *("exit-1", "exit-86", "exit-134", "exit-135", "exit-137", "exit-139", "exit-143", "peer-closed", "oom"),
        *("container-died", "engine-lost", "node-lost", "agent-silent", "no-progress", "sdc", "drill"),
        *("disk-full", "snapshot-problem", "xid-79", "xid-48", "xid-94", "xid-13", "xid-31", "xid-45"),
    ],
)
def test_the_codes_that_other_parts_report_are_known(code: str) -> None:
    assert code in TABLE


def test_a_code_the_table_does_not_know_is_harmless() -> None:
    row = lookup("xid-999")
    assert (row.code, row.fault_class, row.action) == ("xid-999", FaultClass.UNKNOWN, Action.OBSERVE)


@pytest.mark.parametrize(
    ("exit_code", "tail", "oom_killed", "code"),
    [
        (1, "Traceback ...\nValueError: bad", False, "exit-1"),
        (3, "", False, "exit-other"),
        (86, "Connection reset by peer", False, "exit-86"),
        (127, "sh: python4: not found", False, "exit-127"),
        (135, "", False, "exit-135"),
        (137, "", False, "exit-137"),
        (137, "", True, "oom"),
        (-9, "", True, "oom"),
        (-11, "", False, "exit-139"),
        (143, "", False, "exit-143"),
        (1, "RuntimeError: [pair.cc:598] Connection closed by peer [192.0.2.1]:1", False, "peer-closed"),
        (134, "ncclRemoteError: A call failed", False, "nccl-remote-error"),
        (1, "ConnectionResetError: [Errno 104] Connection reset by peer", False, "peer-closed"),
        (1, "OSError: [Errno 28] No space left on device", False, "exit-disk-full"),
        (1, "OSError: [Errno 122] Disk quota exceeded", False, "exit-disk-full"),
        (1, "OSError: [Errno 5] Input/output error: '/ckpt/a'", False, "exit-storage"),
        (1, "NVRM: Xid (PCI:0000:05:00): 79, pid=1, GPU has fallen off the bus.", False, "exit-1"),
        (1, "the manual says: CUDA error: uncorrectable ECC error encountered means a broken GPU", False, "exit-1"),
        (1, "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB", False, "oom-app"),
        (1, "numpy._core._exceptions._ArrayMemoryError: Unable to allocate", False, "oom-app"),
        (1, "RuntimeError: unable to write to file </dev/shm/x>: No space left on device", False, "shm-full"),
        (1, "DataLoader worker (pid 7) is killed by signal: Bus error", False, "loader-bus-error"),
        (1, "RuntimeError: CUDA error: uncorrectable ECC error encountered", False, "cuda-ecc"),
    ],
)
def test_an_exit_is_told_by_its_output_then_the_runtime_then_its_number(
    exit_code: int, tail: str, oom_killed: bool, code: str
) -> None:
    assert code_for_exit(exit_code, tail, oom_killed=oom_killed) == code


def test_an_own_error_outranks_the_sign_of_a_lost_peer() -> None:
    tail = "Connection closed by peer\nRuntimeError: CUDA error: device-side assert triggered"
    assert code_for_exit(1, tail) == "cuda-assert"


def test_a_good_end_is_no_fault() -> None:
    with pytest.raises(InvalidInput, match="exit_code"):
        code_for_exit(0, "")


@given(st.integers(-64, 255).filter(lambda number: number != 0), st.text(max_size=80), st.booleans())
def test_every_exit_gives_a_code_of_the_table(exit_code: int, tail: str, oom_killed: bool) -> None:
    assert code_for_exit(exit_code, tail, oom_killed=oom_killed) in TABLE


def test_three_findings_come_to_the_same_in_all_orders_of_listing() -> None:
    trio = (seen("peer-closed", "n2", 1), seen("exit-1", "n3", 2), seen("xid-79", "n1", 3))
    assert len({judged(*listed) for listed in permutations(trio)}) == 1


def test_an_old_observation_does_not_shorten_the_wait_for_a_cause() -> None:
    old = Finding(code="snapshot-problem", node="a", at=NOW - 60, order=1)
    complaint = Finding(code="peer-closed", node="b", at=NOW, order=2)
    judgement = judge([old, complaint], unknown_action=Action.RESTART_IN_PLACE, now=NOW + 1, settle_s=2)
    assert judgement is not None
    assert judgement.undecided


# What a program prints


def printed(code: str, node: str = "n1", order: int = 1, at: float = NOW - 1, rank: int = 0, **more: Any) -> Finding:
    return seen(code, node, order, at, rank=rank, printed=True, **more)


@pytest.mark.parametrize(
    "code",
    [
        *("cuda-illegal-access", "cuda-ecc", "gpu-shared", "ib-event", "disk-full"),
        *("exit-1", "exit-137", "exit-139", "exit-255", "oom", "connect-failed", "mesh-incomplete"),
    ],
)
def test_what_a_rank_printed_that_goes_on_is_only_noted_however_often(code: str) -> None:
    often = [printed(code, order=order, at=NOW - 100 + order, rank=order % 2) for order in range(1, 6)]
    assert judged(*often).action is Action.OBSERVE
    witness = seen("oom-killed", order=9) if "oom-killed" in TABLE else seen("xid-43", order=9)
    assert judged(*often, witness).action is judged(witness).action, "what was printed is no end beside it either"


def test_what_a_rank_printed_explains_its_own_end_soon_after() -> None:
    told = printed("cuda-ecc", order=1, at=NOW - 30)
    judgement = judged(told, seen("exit-1", order=2, rank=0))
    assert (judgement.action, judgement.fault_class) == (Action.FAILOVER, FaultClass.HARDWARE)
    assert judgement.root is not None
    assert judgement.root.code == "cuda-ecc"
    assert judged(told, seen("container-died", order=2)).action is Action.FAILOVER


@pytest.mark.parametrize(
    "end",
    [
        pytest.param(seen("exit-1", order=2, rank=1), id="another rank"),
        pytest.param(seen("exit-1", "n2", order=2, rank=0), id="another node"),
        pytest.param(seen("exit-1", order=2, rank=0, at=NOW + 100), id="long after"),
    ],
)
def test_what_a_rank_printed_explains_no_other_end(end: Finding) -> None:
    judgement = judged(printed("cuda-ecc"), end, now=NOW + 101)
    assert judgement.action is Action.RESTART_IN_PLACE
    assert judgement.root is not None
    assert judgement.root.code == "exit-1"


def test_what_was_printed_does_not_count_as_a_repetition_of_the_end_that_it_explains() -> None:
    told = [printed("cuda-fabric", order=1, at=NOW - 50), printed("cuda-fabric", order=2, at=NOW - 40)]
    judgement = judged(*told, seen("cuda-fabric", order=3, rank=0), seen("exit-1", order=4, rank=0))
    assert judgement.action is Action.RESTART_IN_PLACE


def test_what_ranks_that_go_on_print_does_not_hold_back_the_fault_of_one_that_ended() -> None:
    quoted = [printed("cuda-ecc", f"n{node}", order=node, rank=node) for node in (2, 3, 4)]
    judgement = judged(seen("cuda-ecc", order=9, rank=1), *quoted, seen("exit-1", order=10, rank=1), nodes=4)
    assert (judgement.action, judgement.meanwhile) == (Action.FAILOVER, None)
