"""The fault-code table on its way to the nodes."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reliability.domain import fault_tables
from reliability.domain.fault_tables import SentTable, seal_table, unseal_table, usable
from reliability.domain.faults import TABLE, Matcher
from reliability.domain.faults.changing import changed_row
from reliability.domain.orders import derive_key, seal, unseal
from reliability.errors import InvalidInput, OrderRefused

KEY = derive_key("secret", "n1", "1")
ADDED = {
    "fault_class": "hardware", "action": "observe", "severity": "warning", "meaning": "A fan failed.",
    "advice": "Replace it.", "origin": "kernel", "phrase": "fan {device} stopped", "enabled": True,
}  # fmt: skip
SENT = SentTable(changes_to=7, issued_at=1000.0, changes={"fan-failed": ADDED, "xid-79": {"enabled": False}})


def test_what_is_sealed_for_a_node_is_read_there_and_nowhere_else() -> None:
    envelope = seal_table(SENT, node="n1", key=KEY)
    assert unseal_table(envelope, node="n1", key=KEY) == SENT
    with pytest.raises(OrderRefused):
        unseal_table(envelope, node="n2", key=derive_key("secret", "n2", "1"))
    with pytest.raises(OrderRefused, match="is for node n1"):
        unseal_table(envelope, node="n2", key=KEY)


@given(st.data())
def test_a_table_that_was_touched_is_refused(data: st.DataObject) -> None:
    envelope = seal_table(SENT, node="n1", key=KEY)
    field = data.draw(st.sampled_from(["table", "sig"]))
    at = data.draw(st.integers(0, len(envelope[field]) - 1))
    other = data.draw(st.characters().filter(lambda each: each != envelope[field][at]))
    touched = {**envelope, field: envelope[field][:at] + other + envelope[field][at + 1 :]}
    with pytest.raises(OrderRefused):
        unseal_table(touched, node="n1", key=KEY)


def test_an_order_is_never_taken_for_a_table_nor_a_table_for_an_order() -> None:
    from reliability.domain.orders import Order, OrderKind

    order = Order(id="a", kind=OrderKind.STOP, node="n1", nonce="n", issued_at=1, expires_at=9e9)
    sealed = seal(order, key=KEY)
    with pytest.raises(OrderRefused):
        unseal_table({"table": sealed["order"], "sig": sealed["sig"]}, node="n1", key=KEY)
    table = seal_table(SENT, node="n1", key=KEY)
    with pytest.raises(OrderRefused):
        unseal({"order": table["table"], "sig": table["sig"]}, key=KEY, node="n1", now=1, seen_nonces=())


_HEAD = '{"node": "n1", "changes_to": 1, "issued_at": 1'


@pytest.mark.parametrize(
    "raw", ["[]", "{}", '{"node": "n1"}', _HEAD + ', "changes": 5}', _HEAD + ', "changes": {"x": 1}}', "{"]
)
def test_a_genuine_text_that_is_no_table_is_named_as_such(raw: str) -> None:
    envelope = {"table": raw, "sig": fault_tables._signature(KEY, raw)}
    with pytest.raises((InvalidInput, OrderRefused)):
        unseal_table(envelope, node="n1", key=KEY)


def test_a_table_that_is_too_long_is_not_even_compared() -> None:
    with pytest.raises(InvalidInput, match="characters"):
        unseal_table({"table": "x" * (fault_tables.MOST_BYTES + 1), "sig": ""}, node="n1", key=KEY)


def test_a_code_that_is_off_stands_for_no_line_and_one_that_was_added_for_its_own() -> None:
    good, bad = usable(SENT.changes)
    assert bad == []
    matcher = Matcher(TABLE.changed(changed_row(TABLE, code, values) for code, values in good.items()))
    assert matcher.find("NVRM: Xid (PCI:0000:4d:00): 79, GPU has fallen off the bus.") is None
    told = matcher.find("fan fan3 stopped")
    assert told is not None
    assert (told.code, told.fields) == ("fan-failed", {"device": "fan3"})


@pytest.mark.parametrize("values", [{}, {"action": "explode"}, {"phrase": "{"}, {"debounce_s": "x"}, {"origin": []}])
def test_a_change_that_does_not_fit_is_left_out_and_named(values: dict[str, Any]) -> None:
    good, bad = usable({"no-such-code": values, "xid-31": {"action": "observe"}})
    assert (list(good), bad) == (["xid-31"], ["no-such-code"])


def test_as_many_changes_as_may_be_made_fit_into_what_is_taken() -> None:
    longest = {**ADDED, "meaning": "\u20ac" * 299 + ".", "advice": "\U0001f600" * 299 + ".", "phrase": "x" * 200}
    sent = SentTable(
        changes_to=1, issued_at=1.0, changes={f"code-{n:059d}": longest for n in range(fault_tables.MOST_CHANGED)}
    )
    assert unseal_table(seal_table(sent, node="n1", key=KEY), node="n1", key=KEY) == sent
    json.dumps(sent.changes)
