"""Is everything that is no sealed order refused as such, whatever it is made of?"""

import pytest

from reliability.domain.orders import derive_key, unseal
from reliability.errors import OrderRefused


@pytest.mark.parametrize(
    "envelope",
    [
        {"order": "\ud800", "sig": "00"},
        {"order": "{}", "sig": "\udfff"},
        {"order": "{}", "sig": "é"},
        {"order": 1, "sig": "00"},
        {},
    ],
)
def test_an_envelope_that_nobody_sealed_is_refused_as_forged(envelope: dict[str, object]) -> None:
    with pytest.raises(OrderRefused) as refusal:
        unseal(envelope, key=derive_key("secret", "node-a", "1"), node="node-a", now=0.0, seen_nonces=())
    assert refusal.value.reason == "forged"
