"""What foreign monitors say, and what of it is new."""

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reliability.domain.faults import MATCHER, TABLE
from reliability.domain.monitors import Condition, advance, read_json, read_text
from reliability.domain.monitors.clock_times import instant
from reliability.domain.monitors.exposition import samples
from reliability.domain.monitors.metrics import RULES
from reliability.domain.monitors.naming import DETECTOR_REASONS, pci, slug
from reliability.domain.monitors.placing import Directory, Known
from reliability.domain.monitors.remembering import OLD_S
from reliability.errors import InvalidInput

GPU = 'gpu="0",UUID="GPU-1",pci_bus_id="00000000:4D:00.0",device="nvidia0",Hostname="n1"'
XID = "DCGM_FI_DEV_XID_ERRORS"
T = 1_700_000_000.0


def _text(metric: str, value: object, labels: str = GPU, told: str = "Some help.") -> str:
    return f"# HELP {metric} {told}\n# TYPE {metric} gauge\n{metric}{{{labels}}} {value}\n"


def _told(*bodies: str, every_s: float = 30.0) -> list[tuple[str, int]]:
    """Return (code, count) of what is new when a node's monitor says this, one after the other."""
    kept: Mapping[str, Any] = {}
    found: list[tuple[str, int]] = []
    for number, body in enumerate(bodies):
        step = advance(kept, read_text(body).items, now=T + number * every_s)
        kept = step.kept
        found += [(each.code, each.count) for each in step.found]
    return found


@pytest.mark.parametrize(
    ("values", "new"),
    [
        ([79], []),
        ([0, 79, 79, 79], [("xid-79", 1)]),
        ([79, 0, 79], [("xid-79", 1)]),
        ([0, 13, 31], [("xid-13", 1), ("xid-31", 1)]),
        ([0, 149], [("xid-149-unstated", 1)]),
        ([0, 4711], [("xid-4711", 1)]),
        ([0, "NaN", 2147483632, 9223372036854775794, 0], []),
    ],
)
def test_the_last_xid_of_a_gpu_is_news_only_when_it_changes(values: list[object], new: list[tuple[str, int]]) -> None:
    assert _told(*(_text(XID, value) for value in values)) == new


@pytest.mark.parametrize(
    ("values", "new"),
    [
        ([5], []),
        ([5, 5, 7, 7], [("dcgm-double-bit", 2)]),
        ([5, 1], [("dcgm-double-bit", 1)]),
        ([5, 0, 0, 2], [("dcgm-double-bit", 2)]),
    ],
)
def test_counters_count_by_their_rise_and_from_zero_after_a_restart(
    values: list[object], new: list[tuple[str, int]]
) -> None:
    assert _told(*(_text("DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", value) for value in values)) == new


def test_what_rose_while_nobody_looked_for_long_is_not_of_now() -> None:
    bodies = [_text(XID, 0), _text(XID, 79)]
    assert _told(*bodies, every_s=OLD_S + 1) == []
    assert _told(*bodies, every_s=OLD_S - 1) == [("xid-79", 1)]


def test_the_count_of_xids_in_a_window_names_each_and_is_not_counted_beside_the_last_one() -> None:
    def body(last: int, count: int) -> str:
        window = f'{GPU},window_size_in_ms="300000",xid="13"'
        return _text(XID, last) + _text("DCGM_EXP_XID_ERRORS_COUNT", count, window)

    assert _told(body(0, 0), body(13, 2), body(13, 2), body(13, 3), body(13, 0)) == [("xid-13", 2), ("xid-13", 1)]


def test_a_condition_in_a_metric_counts_when_it_begins() -> None:
    failed = "DCGM_FI_DEV_ROW_REMAP_FAILURE"
    bodies = [_text(failed, value) for value in (1, 1, 0, 1)]
    assert _told(*bodies) == [("gpu-remap-failed", 1)] * 2


@pytest.mark.parametrize(
    ("told", "rise", "new"),
    [
        ("Throttling duration due to thermal constraints (in us).", 3e6, ["dcgm-hot"]),
        ("Throttling duration due to thermal constraints (in us).", 1e6, []),
        ("Throttling duration due to thermal constraints (in ns).", 3e6, []),
        ("No unit is named.", 3e12, []),
    ],
)
def test_throttling_is_news_by_its_share_of_the_time_in_the_unit_that_is_named(
    told: str, rise: float, new: list[str]
) -> None:
    bodies = [_text("DCGM_FI_DEV_THERMAL_VIOLATION", value, told=told) for value in (7e6, 7e6 + rise)]
    assert [code for code, _ in _told(*bodies)] == new


def test_the_same_gpu_again_for_each_of_its_instances_is_one_gpu() -> None:
    def body(value: int) -> str:
        parts = (f'{GPU},GPU_I_ID="{part}"' for part in range(3))
        return "".join(_text(XID, value, labels) for labels in parts)

    assert _told(body(0), body(31)) == [("xid-31", 1)]


def test_every_code_that_a_metric_or_reason_stands_for_is_in_the_table() -> None:
    codes = {rule.code for rule in RULES.values()} - {"xid"} | set(DETECTOR_REASONS.values())
    assert sorted(codes - set(TABLE)) == []


def test_the_evidence_of_a_metric_is_a_line_of_its_code() -> None:
    for metric, rule in RULES.items():
        if not rule.code.startswith("dcgm"):
            continue
        bodies = [_text(metric, value, told="Time (in s).") for value in (1, 1000)]
        first = advance({}, read_text(bodies[0]).items, now=T)
        found = advance(first.kept, read_text(bodies[1]).items, now=T + 30).found[0]
        told = MATCHER.find(found.evidence)
        assert told is not None, metric
        assert (told.code, told.fields["device"]) == (found.code, found.fields["device"]), metric


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ("a 1\nb{ 2", "line 2"),
        ('a{x="1"', "line 1"),
        ("a{x=1} 3", "line 1"),
        ('a{x="1",x="2"} 3', "line 1"),
        ("a one", "line 1"),
        ("a 1_0", "line 1"),
        ("\n\n9a 1", "line 3"),
        ("a" * 20_000, "line 1"),
        ("<html>", "line 1"),
    ],
)
def test_a_bad_line_is_named_and_what_would_be_right(text: str, field: str) -> None:
    with pytest.raises(InvalidInput) as told:
        list(samples(text))
    assert told.value.field == field
    assert told.value.hint


def test_the_forms_that_exporters_write_are_read() -> None:
    text = (
        '# comment\n#\n# EOF\nplain 1\nspaced  \t 2.5e3  1700000000000\ninf{a="b",} +Inf\n'
        'odd{ a = "x\\"y\\\\z\\n}" , b="{c=1}" } -1 # {trace_id="t"} 0.5\r\n'
    )
    read = list(samples(text))
    assert [sample.name for sample in read] == ["plain", "spaced", "inf", "odd"]
    assert read[3].labels == {"a": 'x"y\\z\n}', "b": "{c=1}"}
    assert read[1].value == 2500


@given(st.text(alphabet=st.sampled_from('aA_0:{}=",\\ \t\n#.+-eN\u20ac'), max_size=200))
@settings(max_examples=300, deadline=None)
def test_whatever_comes_as_text_is_read_or_named_as_wrong(text: str) -> None:
    try:
        read_text(text)
    except InvalidInput as error:
        wrong = error.field
    else:
        return
    assert wrong.startswith("line ")


_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=12),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(
        st.sampled_from(["component", "states", "events", "info", "time", "health", "name", "type", "status", "reason",
                         "conditions", "timestamp", "message", "node", "extra_info", "severity"]), inner, max_size=5),
    max_leaves=12,
)  # fmt: skip


@given(_json)
@settings(max_examples=300, deadline=None)
def test_whatever_comes_as_json_is_read_or_named_as_wrong(body: Any) -> None:
    try:
        said = read_json(body, MATCHER)
    except InvalidInput as error:
        wrong = error
    else:
        advance({}, said.items, now=T)
        return
    assert wrong.field.startswith("body")
    assert wrong.hint


def _at(seconds: float) -> float:
    return T + seconds


def test_an_event_of_gpud_counts_once_and_one_of_long_ago_not_at_all() -> None:
    line = "NVRM: Xid (PCI:0000:4d:00): 79, pid=1, name=x, GPU has fallen off the bus."
    events = [
        {"time": _at(0), "name": "error_xid", "type": "Fatal", "message": line},
        {"time": _at(1), "name": "error_xid", "type": "Warning",
         "extra_info": {"data": "31", "device_uuid": "PCI:0000:51:00"}},
        {"time": _at(2), "name": "boot", "type": "Info", "message": "up"},
        {"time": _at(-OLD_S - 5), "name": "error_xid", "type": "Fatal", "message": line},
        {"time": _at(3), "name": "memory_oom", "type": "Critical", "message": "no line that is known"},
    ]  # fmt: skip
    said = read_json([{"component": "accelerator-nvidia-error-xid", "events": events}], MATCHER)
    first = advance({}, said.items, now=_at(10))
    assert [(each.code, each.fields.get("device")) for each in first.found] == [
        ("xid-79", "0000:4d:00"),
        ("xid-31", "0000:51:00"),
        ("gpud-memory-oom", None),
    ]
    assert said.ignored["event of type Info"] == 1
    assert first.no_news["an event of long ago"] == 1
    assert advance(first.kept, said.items, now=_at(40)).found == ()


def test_a_state_of_gpud_stands_until_it_is_healthy_and_does_not_count_an_xid_again() -> None:
    def states(health: str) -> list[dict[str, Any]]:
        return [
            {
                "component": "accelerator-nvidia-xid",
                "states": [{"name": "xid", "health": health, "reason": "XID 79 detected"}],
            }
        ]

    first = advance({}, read_json(states("Unhealthy"), MATCHER).items, now=T)
    assert [each.code for each in first.found] == ["gpud-accelerator-nvidia-xid"]
    again = advance(first.kept, read_json(states("Degraded"), MATCHER).items, now=T + 30)
    assert (again.found, again.standing) == ((), ("gpud-accelerator-nvidia-xid",))
    over = advance(again.kept, read_json(states("Healthy"), MATCHER).items, now=T + 60)
    assert (over.found, over.standing, over.over) == ((), (), ("gpud-accelerator-nvidia-xid",))
    assert read_json(states("Initializing"), MATCHER).items == []


def test_the_problem_detectors_status_gives_events_once_and_conditions_while_they_stand() -> None:
    status = {
        "source": "kernel-monitor",
        "events": [
            {"severity": "warn", "timestamp": "2023-11-14T22:13:20.123456789Z", "reason": "TaskHung",
             "message": "task python3:4711 blocked for more than 120 seconds."},
            {"severity": "info", "timestamp": "2023-11-14T22:13:20Z", "reason": "Started", "message": "x"},
        ],
        "conditions": [
            {"type": "ReadonlyFilesystem", "status": "True", "transition": "2023-11-14T22:00:00Z",
             "reason": "FilesystemIsReadOnly", "message": "made read-only"},
            {"type": "KernelDeadlock", "status": "False", "transition": "2023-11-14T22:00:00Z",
             "reason": "KernelHasNoDeadlock"},
            {"type": "Ready", "status": "True"},
            {"type": "OddThing", "status": "True", "reason": "SomethingOddHappened"},
        ],
    }  # fmt: skip
    said = read_json(status, MATCHER)
    first = advance({}, said.items, now=T + 1)
    assert [each.code for each in first.found] == ["task-blocked", "filesystem-read-only", "npd-something-odd-happened"]
    assert advance(first.kept, said.items, now=T + 31).found == ()
    assert first.standing == ("filesystem-read-only", "npd-something-odd-happened")
    assert TABLE.lookup("npd-something-odd-happened").action == "observe"


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ("x", "body"),
        ([1], "body.0"),
        ({"metadata": {}}, "body"),
        ([{"component": "x", "events": [{"name": "y"}]}], "body.0.events.0.time"),
        ({"component": "x", "states": {}}, "body.states"),
        ({"source": "k", "events": [{"timestamp": "soon", "reason": "r"}]}, "body.events.0.timestamp"),
        ({"source": "k", "conditions": [{"type": "T", "status": "yes"}]}, "body.conditions.0.status"),
    ],
)
def test_json_that_is_wrong_names_the_field(body: Any, field: str) -> None:
    with pytest.raises(InvalidInput) as told:
        read_json(body, MATCHER)
    assert told.value.field == field
    assert told.value.hint


@pytest.mark.parametrize(
    ("told", "seconds"),
    [
        ("1970-01-01T00:00:00Z", 0.0),
        ("2023-11-14T22:13:20.5Z", T + 0.5),
        ("2023-11-14T22:13:20.123456789+00:00", T + 0.123456789),
        ("2023-11-15 00:13:20+02:00", T),
        ("2023-11-14T17:13:20-0500", T),
        (1_700_000_000, T),
    ],
)
def test_a_time_is_read_as_monitors_write_it(told: object, seconds: float) -> None:
    assert instant(told, "at") == pytest.approx(seconds, abs=1e-6)


@pytest.mark.parametrize(
    "told",
    [
        *("", "soon", "2023-02-30T00:00:00Z", "2023-13-01T00:00:00Z", "0000-01-01T00:00:00Z", "2023-11-14"),
        *("2023-11-14T25:00:00Z", "x" * 10_000, True, None, [], 1e300),
    ],
)
def test_what_is_no_time_is_named(told: object) -> None:
    with pytest.raises(InvalidInput):
        instant(told, "at")


def test_a_node_is_found_by_what_monitors_call_it() -> None:
    known = Directory(
        [
            Known(name="gpu-01", address="10.0.0.1", hardware_ids={"gpu_uuids": ["GPU-aa", "GPU-shared"]}),
            Known(name="gpu-02", address="10.0.0.2", hardware_ids={"gpu_uuids": ["GPU-bb", "GPU-shared"]}),
        ]
    )
    for named in ("gpu-01", "GPU-01.rack7.example.com", "gpu-01:9400", "10.0.0.1:9400", "gpu-01.local:9400"):
        assert known.find(named) == "gpu-01", named
    assert known.find("", "GPU-bb") == "gpu-02"
    assert known.find("10.0.0.9", "GPU-bb") == "gpu-02"
    assert known.find("10") is None
    assert known.find("", "GPU-shared") is None
    assert known.find("") is None


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("00000000:4D:00.0", "0000:4d:00"),
        ("PCI:0000:4d:00", "0000:4d:00"),
        ("0000:4d:00.0", "0000:4d:00"),
        ("GPU-1", ""),
    ],
)
def test_a_pci_address_is_written_as_the_kernel_does(text: str, address: str) -> None:
    assert pci(text) == address


@given(st.text(max_size=200))
def test_words_of_a_monitor_make_a_code_that_can_be_kept(words: str) -> None:
    code = slug("gpud", words)
    assert len(code) <= 64
    assert code.startswith("gpud-")
    assert not code.endswith("-")


def test_what_is_kept_of_a_node_is_bounded() -> None:
    items = [
        Condition(where="x", source="gpud", name=str(number), stands=True, code=f"gpud-{number}", evidence="")
        for number in range(2000)
    ]
    assert len(advance({}, items, now=T).kept["conditions"]) == 512
