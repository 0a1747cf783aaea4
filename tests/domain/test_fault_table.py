"""The fault-code table: every row can be trusted, every line of it is found, and nothing that merely looks like one."""

import ast
import re
from dataclasses import replace
from pathlib import Path

import pytest

from reliability.domain import report_bodies
from reliability.domain.faults import MATCHER, TABLE, Action, FaultClass, FaultCode, Matcher, Origin, Severity, Table
from reliability.domain.faults.families.rows import HOLD, numbers, row
from reliability.domain.faults.words import Repeat

SERVICES = Path(report_bodies.__file__).parents[1] / "services"
EXAMPLES = [(each.code, example) for each in TABLE.values() for example in each.examples]
XIDS = [*range(1, 173)]


@pytest.mark.parametrize(("code", "example"), EXAMPLES, ids=lambda value: value[:40])
def test_every_example_of_the_table_is_found_as_its_own_code(code: str, example: str) -> None:
    told = MATCHER.find(example)
    assert told is not None
    assert told.code == code
    assert {*told.fields} <= {*TABLE[code].fields} | {
        "rank",
        "pid",
        "local_rank",
        "exit_code",
        "signal",
        "named",
        "oom_killed",
    }


@pytest.mark.parametrize(("code", "example"), EXAMPLES, ids=lambda value: value[:40])
def test_an_example_is_still_found_behind_what_loggers_put_in_front(code: str, example: str) -> None:
    kernel = TABLE[code].origin is Origin.KERNEL
    fronts = (
        ("[ 1234.567890] ", "Nov  3 10:20:30 node-4 kernel: ", "6,1234,99887766,-;", "<4>")
        if kernel
        else ("\x1b[31m", "[rank3]: ")
    )
    if example.startswith(" "):
        fronts = fronts[:2] if kernel else ("\x1b[31m",)
    for front in fronts:
        told = MATCHER.find(f"{front}{example}")
        assert told is not None, front
        assert told.code == code


@pytest.mark.parametrize("row", [each for each in TABLE.values() if each.lines], ids=lambda each: each.code)
def test_every_row_that_lines_stand_for_has_an_example_for_each_of_them(row: FaultCode) -> None:
    for line in row.lines:
        assert re.compile(line.pattern)
        assert line.literals
    assert row.examples


@pytest.mark.parametrize(
    "row",
    [each for each in TABLE.values() if each.origin is Origin.KERNEL and each.examples],
    ids=lambda each: each.code,
)
def test_what_a_program_prints_never_counts_as_a_line_of_the_kernel(row: FaultCode) -> None:
    for example in row.examples:
        told = MATCHER.find(example, origin=Origin.OUTPUT)
        assert told is None or TABLE[told.code].origin is not Origin.KERNEL
        assert told is None or TABLE[told.code].fault_class is not FaultClass.HARDWARE


@pytest.mark.parametrize("row", [each for each in TABLE.values() if each.examples], ids=lambda each: each.code)
def test_a_sentence_that_speaks_of_a_fault_is_none(row: FaultCode) -> None:
    for example in row.examples:
        for sentence in (
            f"The manual explains what {example.strip()} means",
            f'loader: sample 12 "{example.strip()}"',
            f"I have seen it say {example.strip()}",
        ):
            told = MATCHER.find(sentence)
            assert told is None or TABLE[told.code].source in ("exit-code",), (told, sentence)


@pytest.mark.parametrize("number", XIDS)
def test_every_xid_from_1_to_172_has_a_row_and_is_read_from_its_line(number: int) -> None:
    told = MATCHER.find(f"NVRM: Xid (PCI:0000:3b:00): {number}, pid=77, name=python3, Ch 00000008")
    assert told is not None
    assert told.code.removesuffix("-unstated") == f"xid-{number}"
    assert told.code in TABLE
    assert (told.fields["device"], told.fields["pid"], told.fields["process"]) == ("0000:3b:00", 77, "python3")


SXIDS = sorted({int(re.findall(r"\d+", code)[0]) for code in TABLE if code.startswith("sxid-") and code != "sxid-data"})


@pytest.mark.parametrize("number", SXIDS)
def test_every_sxid_of_the_table_is_read_from_its_line_by_its_word(number: int) -> None:
    fatal = MATCHER.find(f"nvidia-nvswitch1: SXid (PCI:0000:0a:00.0): {number}, Fatal, Link 57 something")
    passing = MATCHER.find(f"nvidia-nvswitch1: SXid (PCI:0000:0a:00.0): {number}, Non-fatal, Link 57 something")
    assert fatal is not None
    assert passing is not None
    assert fatal.code == f"sxid-{number}"
    assert TABLE[passing.code].action is not Action.FAILOVER
    assert (fatal.fields["link"], fatal.fields["switch"], fatal.fields["severity"]) == (57, 1, "Fatal")


@pytest.mark.parametrize(
    ("line", "fields"),
    [
        (
            "NVRM: Xid (PCI:0000:38:00): 13, pid='<unknown>', name=<unknown>, Graphics SM Warp Exception on "
            "(GPC 10, TPC 1, SM 1): Out Of Range Address",
            {"device": "0000:38:00", "xid": 13, "gpc": 10, "tpc": 1, "sm": 1},
        ),
        (
            "NVRM: Xid (PCI:0000:32:00): 31, pid=115, name=python3, channel 0x00000002, intr 00000000. MMU Fault: "
            "ENGINE GRAPHICS GPC0 GPCCLIENT_T1_0 faulted @ 0x33_8404d000.",
            {"device": "0000:32:00", "xid": 31, "pid": 115, "process": "python3", "gpc": 0, "tpc": 1},
        ),
        (
            "NVRM: Xid (PCI:0000:04:00): 145, RLW_REMAP Nonfatal XC1 i0 Link 05 (0x00000004 0x00000100)",
            {
                "device": "0000:04:00",
                "xid": 145,
                "unit": "RLW_REMAP",
                "severity": "Nonfatal",
                "origin": "XC1",
                "link": 5,
            },
        ),
        (
            "NVRM: Xid (PCI:0009:01:00): 154, GPU recovery action changed from 0x0 (None) to "
            "0x2 (Node Reboot Required)",
            {"device": "0009:01:00", "xid": 154, "recovery_before": "None", "recovery": "Node Reboot Required"},
        ),
        (
            "oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=/,mems_allowed=0,oom_memcg=/docker/c1,"
            "task_memcg=/docker/c1,task=python3,pid=12345,uid=1000",
            {"cgroup": "/docker/c1", "process": "python3", "pid": 12345},
        ),
    ],
)
def test_a_line_carries_its_fields(line: str, fields: dict[str, object]) -> None:
    told = MATCHER.find(line, origin=Origin.KERNEL)
    assert told is not None
    assert {name: told.fields.get(name) for name in fields} == fields


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("NVRM: Xid (0000:03:00): 999, something new", "xid-999"),
        ("NVRM: Xid (PCI:0000:65:00): 79", "xid-79"),
        ("NVRM: Xid (PCI:0000:65:00): 13", None),  # cut: it may have been 136
        ("NVRM: Xid (PCI:0000:65:00): 7", None),
        ("NVRM: Xid (PCI:0000:01:00): 145, RLW_RXPIPE Nonfatal XC1 i0 Link 05", "xid-145-nonfatal"),
        ("NVRM: Xid (PCI:0000:01:00): 145, RLW_CTRL Fatal XC0 i0 Link 05", "xid-145"),
        ("NVRM: Xid (PCI:0000:01:00): 145, RLW_CT", "xid-145-unstated"),
        ("nvidia-nvswitch0: SXid (PCI:0000:a9:00.0): 77777, Fatal, Link 1 something new", "sxid-77777"),
        ("Memory cgroup out of memory: Killed process 12345 (python3) total-vm:1kB", "kernel-oom"),
        ("Out of memory: Killed process 77 (python3)", "oom-killed"),
        ("mce: [Hardware Error]: CPU 0: Machine Check: 0 Bank 8: 9c00004000010090", "machine-check-logged"),
        ("mce: [Hardware Error]: CPU 0: Machine Check: 0 Bank 4: f2000000", "machine-check-logged"),
        ("amdgpu 0000:01:00.0: amdgpu: no uncorrectable hardware errors detected in umc block", None),
        ("amdgpu 0000:01:00.0: amdgpu: 0 uncorrectable hardware errors detected in umc block", None),
        ("nfs: server 192.0.2.16 OK", "nfs-back"),
        ("python3 invoked oom-killer: gfp_mask=0x140dca, order=0", "oom-begun"),
        ("systemd[1]: Started Session 4 of User root.", None),
        ("loss nan explained Xid 79 in docs", None),
        ("loss nan", "not-a-number"),
        ("step 7 loss nan lr 3e-4", "not-a-number"),
        ("step 7 loss: nano-batch 4", None),
        ("loss: 1.0 info: fine", None),
        (" iteration 100/ 5000 | consumed samples: 3200 | lm loss: nan | grad norm: 1.0 |", "not-a-number"),
        ("2026-01-02 10:00:00,123 INFO trainer: step 7 | lr 3e-4 | loss: NaN", "not-a-number"),
        ("chapter 3 tells that loss: nan is bad", None),
        ("{'loss': nan, 'grad_norm': 1.0, 'epoch': 0.1}", "not-a-number"),
        ("{'epoch': 0.1, 'loss': 2.5, 'grad_norm': inf}", "not-a-number"),
        ("{'loss': 2.5, 'note': 'nan'}", None),
        ("Segmentation fault (core dumped)", "exit-139"),
        ("srun: error: node-12: task 3: Exited with exit code 1", "exit-1"),
        (
            "RuntimeError: NCCL error in: ../c10d/ProcessGroupNCCL.cpp:1691, remote process exited or there was a "
            "network error, NCCL version 2.19.3",
            "nccl-remote-error",
        ),
        ("NCCL error in: x.cpp:1, unhandled system error (run with NCCL_DEBUG=INFO for details)", "nccl-system-error"),
        ("gradient norm = inf, skipped", "not-a-number"),
        ("        Remapping Failure Occurred        : No", None),
        ("        Pending                           : No", None),
        ("            SRAM Uncorrectable            : 0", None),
        ("        HW Thermal Slowdown               : Not Active", None),
        ("expected 8 GPUs, found 8 of them idle", None),
        ("expected 8 GPUs, found 8", None),
        ("AssertionError: expected 8 GPUs but found 6", "gpu-missing"),
        ("rank 3 exited with code 0", "exit-0"),
        ("rank 3 exited with code 77", "exit-other"),
        ("rank 3 exited with code 1 of the two we know", None),
        ('"State":{"Status":"running","OOMKilled":false,"Dead":false,"Pid":7,"ExitCode":0}', None),
        ('"State":{"Status":"exited","OOMKilled":true,"Dead":false,"Pid":0,"ExitCode":137}', "oom"),
        ("NCCL INFO NET/IB : Using [0]mlx5_0:1/IB", None),
        ("pciehp: Slot(3): Link Up", None),
        ("EDAC MC0: Giving out device to module skx_edac", None),
        ("AER: enabled with IRQ 33", None),
        ("nvme nvme4: 64/0/0 default/read/poll queues", None),
        ("downloading 50%\rdownloading 99%\rRuntimeError: CUDA error: unknown error", "cuda-unknown"),
        ("\x1b[1;31mRuntimeError\x1b[0m: CUDA error: device-side \x1b[4massert triggered", "cuda-assert"),
        ("N\x00V\x00R\x00M\x00:\x00 \x00X\x00i\x00d\x00 \x00(\x00PCI:0000:05:00): 79, x", "xid-79"),
        ("", None),
    ],
)
def test_a_line_gives_its_code_and_a_near_miss_gives_none(line: str, code: str | None) -> None:
    told = MATCHER.find(line)
    assert (told.code if told else None) == code


def test_a_code_of_an_unknown_number_is_kept_and_harmless() -> None:
    unknown = TABLE.lookup("sxid-77777")
    assert (unknown.source, unknown.fault_class, unknown.action) == ("nvidia-sxid", FaultClass.UNKNOWN, Action.OBSERVE)


def test_a_table_refuses_what_contradicts_itself() -> None:
    good = row("a", FaultClass.UNKNOWN, Action.OBSERVE, Severity.INFO, "Means a.", "Do b.")
    moon = Repeat(times=2, window_s=1, place="moon", fault_class=good.fault_class, action=HOLD)
    for wrong, told in (
        ([good, good], "two rows"),
        ([replace(good, clears="z")], "no code"),
        ([replace(good, meaning="Means a")], "sentences"),
        ([replace(good, debounce_s=-1.0)], "debounce_s"),
        ([replace(good, repeat=moon)], "counted by"),
    ):
        with pytest.raises(ValueError, match=told):
            Table(wrong)


def test_a_code_that_is_switched_off_is_not_found() -> None:
    off = TABLE.changed([replace(TABLE["cuda-assert"], enabled=False)])
    assert Matcher(off).find("RuntimeError: CUDA error: device-side assert triggered") is None


def test_a_list_of_numbers_is_spread_into_single_ones() -> None:
    assert numbers("1 39..41 85") == [1, 39, 40, 41, 85]


def noted_by_services() -> set[str]:
    """Return the codes that services write themselves in calls of `note`."""
    calls = (
        node
        for path in SERVICES.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "note"
    )
    said = (word.value for call in calls for word in call.args[:2] if isinstance(word, ast.Constant))
    return {word for word in said if isinstance(word, str) and re.fullmatch("[a-z0-9-]+", word)}


def test_what_the_server_finds_itself_is_in_the_table() -> None:
    found = noted_by_services() | {f"order-{why}" for why in report_bodies.REFUSALS}
    assert {"node-lost", "loss-spike", "order-stale"} <= found
    assert found - set(TABLE) == set()
