"""Which ids tell a machine again, and which name many machines or none."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reliability.domain.health import hardware

PLACEHOLDERS = [
    "", " ", "0", "00000000", "None", "none ", "N/A", "To be filled by O.E.M.",
    "To Be Filled By O.E.M", "Default string",
    "Not Specified", "System Serial Number", "xxxxxxxx", "........", "123456789", "0123456789",
    "INVALID", "uninitialized",
    "00000000-0000-0000-0000-000000000000", "ffffffff-ffff-ffff-ffff-ffffffffffff",
    "03000200-0400-0500-0006-000700080009", "GPU-00000000-0000-0000-0000-000000000000", "Base Board Serial Number",
]  # fmt: skip


@pytest.mark.parametrize("text", PLACEHOLDERS)
def test_what_firmware_and_images_say_where_nobody_filled_anything_in_names_no_machine(text: str) -> None:
    assert hardware.is_placeholder(text)
    told = {"board_serial": text, "machine_id": text, "product_uuid": text, "gpu_uuids": [text, text]}
    assert hardware.identities(told) == frozenset()


@pytest.mark.parametrize(
    "text", ["GPU-8f6d2f3e-0a51-7c1b-9a7e-2f4b9c0d1e2f", "PF2K9ABC", "9f2c41d07be1", "HM19S004417"]
)
def test_a_serial_number_is_no_placeholder(text: str) -> None:
    assert not hardware.is_placeholder(text)


def test_addresses_and_processor_models_tell_no_machine_again_and_writing_does_not_matter() -> None:
    told = {
        "macs": ["aa:bb:cc:dd:ee:ff"],
        "cpu_model": "EPYC 9654",
        "board_serial": " PF2K9ABC ",
        "gpu_uuids": ["GPU-AB12", 7, None],
        "machine_id": 12,
    }
    assert hardware.identities(told) == {"board:pf2k9abc", "gpu:gpu-ab12"}
    assert hardware.spoken("board:pf2k9abc") == "board serial pf2k9abc"


def test_ids_that_other_live_nodes_have_too_do_not_count() -> None:
    ids = {"machine:copied", "board:pf2k9abc"}
    assert hardware.own(ids, [{"machine:copied"}, {"board:other"}]) == {"board:pf2k9abc"}
    assert hardware.own(ids, []) == ids


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=12),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.sampled_from([*hardware.KINDS, "macs"]), anything, max_size=5))
def test_whatever_a_node_tells_is_read_without_an_error(told: dict[str, Any]) -> None:
    for identity in hardware.identities(told):
        assert hardware.spoken(identity)
        assert not hardware.is_placeholder(identity.partition(":")[2])
