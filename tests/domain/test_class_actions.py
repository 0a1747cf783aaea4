"""A policy by class as people write it in job files: whatever its shape, what is wrong is named."""

from typing import Any

import pytest

from reliability.domain import class_actions
from reliability.errors import InvalidInput


@pytest.mark.parametrize(
    ("value", "field"),
    [
        ({"network": ["hold"]}, "x.network"),
        ({"network": {"a": 1}}, "x.network"),
        ({"network": None}, "x.network"),
        ({"network": 3}, "x.network"),
        ({"network": True}, "x.network"),
        ({"network": "h" * 100_000}, "x.network"),
        ({"a": 1}, "x.a"),
        ([["network", "hold"]], "x"),
        ("network", "x"),
    ],
)
def test_a_policy_of_another_shape_is_refused_by_the_field_that_is_wrong(value: Any, field: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        class_actions.read(value, "x")
    assert refused.value.field == field
    assert refused.value.hint
    assert len(refused.value.message) < 200
