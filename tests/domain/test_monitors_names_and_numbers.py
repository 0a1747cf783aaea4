"""Numbers and names in what foreign monitors say: no other script's digits, and nobody's name for another."""

from itertools import permutations
from typing import Any

import pytest

from reliability.domain.faults import MATCHER
from reliability.domain.monitors import advance, read_json, read_text
from reliability.domain.monitors.naming import told_by, xid_number
from reliability.domain.monitors.placing import Directory, Known

T = 1_700_000_000.0
NO_XID = ("\u0663", "\u0667\u0669", "9" * 6000, "100000", "3.7", "-3", "0", "", " 79", "79 ", "\u00b3", "0x4f", "1e1")


def _codes(metric: str, before: object, after: object, labels: str = "") -> list[str]:
    bodies = [f'{metric}{{gpu="0",Hostname="n1"{labels}}} {value}\n' for value in (before, after)]
    kept = advance({}, read_text(bodies[0]).items, now=T).kept
    return [each.code for each in advance(kept, read_text(bodies[1]).items, now=T + 30).found]


@pytest.mark.parametrize("text", NO_XID)
def test_what_is_no_whole_ascii_number_within_bounds_is_no_xid(text: str) -> None:
    assert xid_number(text) is None
    assert _codes("DCGM_EXP_XID_ERRORS_COUNT", 0, 2, f',xid="{text}"') == ["xid-unnamed"]
    event: dict[str, Any] = {"time": T, "name": "error_xid", "type": "Fatal", "extra_info": {"data": text}}
    said = read_json([{"component": "accelerator-nvidia-error-xid", "events": [event]}], MATCHER)
    assert [each.code for each in advance({}, said.items, now=T + 1).found] == ["gpud-error-xid"]


@pytest.mark.parametrize(("text", "number"), [("79", 79), ("00079", 79), ("20034", 20034), ("99999", 99999)])
def test_what_is_one_is_read(text: str, number: int) -> None:
    assert xid_number(text) == number
    assert _codes("DCGM_EXP_XID_ERRORS_COUNT", 0, 2, f',xid="{text}"') == [f"xid-{number}"]


@pytest.mark.parametrize(
    "words",
    ["Xid: \u0663\u0664", "Xid 3.7 seen", "Xid 0", "Xid: \u0663 79", "\u017fxid 79", "Xid 100000", "Xid 79\u0663"]
    + [f"NVRM: Xid (PCI:0000:37:00): {number}, pid=1, x" for number in ("\u0667\u0669", "\u0667", "7\u0669", "9" * 99)],
)
def test_words_that_only_look_like_an_xid_name_none(words: str) -> None:
    assert told_by(words, MATCHER) is None


@pytest.mark.parametrize(
    "words", ["Xid 79", "XID: 79.", "GPU xid 79, gone", "NVRM: Xid (PCI:0000:37:00): 79, pid=1, x"]
)
def test_words_that_name_one_are_read(words: str) -> None:
    found = told_by(words, MATCHER)
    assert found is not None
    assert found[0] == "xid-79"


@pytest.mark.parametrize("value", ["3.7", "100000", "1e9", "-1", "+Inf", "9" * 30])
def test_a_metric_that_tells_the_last_xid_by_what_is_none_tells_nothing(value: str) -> None:
    assert _codes("DCGM_FI_DEV_XID_ERRORS", 0, value) == []


def test_nodes_whose_names_differ_only_in_case_are_two_and_found_by_the_exact_name() -> None:
    names = ("gpu-01", "GPU-01", "Gpu-02")
    for order in permutations(names):
        known = Directory([Known(name=name, address="", hardware_ids={}) for name in order])
        for name in names:
            for named in (name, f"{name}:9400", f"{name}.rack7.example.com", f" {name} "):
                assert known.find(named) == name, (order, named)
        assert known.find("gPu-01") is None, "what two nodes share names neither"
        assert known.find("gPu-01.rack7:9400") is None
        assert known.find("GPU-02.rack7") == "Gpu-02"


def test_a_third_node_of_the_same_name_but_for_case_makes_it_nobodys_still() -> None:
    known = Directory([Known(name=name, address="", hardware_ids={}) for name in ("n1", "N1", "nN1", "Nn1", "NN1")])
    assert known.find("nn1") is None
    assert known.find("n1") == "n1"
