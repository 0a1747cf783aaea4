"""Whatever a node answers to an order, what is kept of it has the types that are relied on, and what is right stays."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reliability.domain.answers import ANSWERS, readable
from reliability.domain.orders import OrderKind

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)
entries = st.fixed_dictionaries(
    {},
    optional=dict.fromkeys(("rank", "tier", "path", "code", "message", "from", "skipped", "bytes_per_s"), values),
)
NAMED = sorted({name for known in ANSWERS.values() for name in known})
answers = values | st.fixed_dictionaries({}, optional={name: values | st.lists(entries, max_size=3) for name in NAMED})


@given(st.sampled_from(OrderKind), answers)
def test_whatever_is_answered_can_be_relied_on_afterwards(kind: OrderKind, told: Any) -> None:
    found = readable(kind, json.loads(json.dumps(told)))
    assert isinstance(found, dict)
    for name in ("ranks", "bad", "read", "unread"):
        for entry in found.get(name, ()) if name in ANSWERS.get(kind, {}) else ():
            for each in (entry, *entry.get("skipped", ())):
                assert each.get("rank") is None or type(each["rank"]) is int
                assert all(isinstance(each.get(word) or "", str) for word in ("tier", "path", "code", "message"))
                lender = each.get("from")
                assert lender is None or (isinstance(lender["node"], str) and isinstance(lender.get("rank") or 0, int))
    assert readable(kind, found) == found, "read once or twice is the same"


@pytest.mark.parametrize(
    ("kind", "told"),
    [
        (
            OrderKind.RESTORE,
            {
                "ranks": [
                    {
                        "rank": 0,
                        "tier": "ssd",
                        "skipped": [{"tier": "memory", "code": "corrupt", "message": "x", "hint": ""}],
                        "from": {"node": "n2", "rank": 3},
                    }
                ],
                "bad": [{"code": "tier_full", "message": "No room.", "hint": "Free some."}],
                "seconds": 1.5,
            },
        ),
        (OrderKind.TRIAL_RESTORE, {"read": [{"rank": 0, "tier": "storage", "path": "/x", "size_bytes": 3}], "bad": []}),
        (OrderKind.PROBE_MEASURE, {"pairs": [{"node": "n2", "bytes_per_s": [1e9, 2e9]}]}),
        (OrderKind.PROBE_SDC, {"digests": ["ab", "cd"]}),
        (OrderKind.PEER_SERVE, {"port": 4000, "more": {"a": [1]}}),
        (OrderKind.STOP, {"anything": [1, {}]}),
    ],
)
def test_a_right_answer_is_kept_as_it_was_told(kind: OrderKind, told: dict[str, Any]) -> None:
    assert readable(kind, told) == told


def test_an_entry_that_makes_no_sense_is_left_out_and_the_others_stay() -> None:
    good = {"rank": 1, "tier": "storage", "code": "corrupt"}
    told = {"bad": [{"rank": "x"}, {"tier": {}}, {"rank": 1, "from": 7}, {"rank": 1, "from": {"rank": 2}}, 5, good]}
    assert readable(OrderKind.RESTORE, told) == {"bad": [good]}
    assert readable(OrderKind.RESTORE, {"ranks": 7, "bad": None}) == {"ranks": [], "bad": []}
    assert readable(OrderKind.PROBE_SERVE, {"port": "22"}) == {}
