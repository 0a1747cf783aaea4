"""Is what is read from a shard exactly what was written, and is everything else refused?"""

import math
import struct
import tempfile
from collections import Counter, OrderedDict, defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from reliability.trainer import CorruptSnapshot, UnsupportedState, codec

SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.integers(min_value=-(2**200), max_value=2**200),
    st.floats(),
    st.complex_numbers(),
    st.text(),
    st.binary(max_size=50),
    st.text(alphabet=st.characters(min_codepoint=0xD700, max_codepoint=0xE000), max_size=3),
)
KEYS = st.one_of(
    st.integers(), st.text(), st.booleans(), st.none(), st.binary(max_size=9), st.tuples(st.integers(), st.text())
)
DTYPES = st.one_of(
    hnp.boolean_dtypes(),
    hnp.integer_dtypes(endianness="?"),
    hnp.floating_dtypes(endianness="?"),
    hnp.complex_number_dtypes(endianness="?"),
    hnp.datetime64_dtypes(endianness="?"),
    hnp.timedelta64_dtypes(endianness="?"),
    hnp.byte_string_dtypes(endianness="?"),
    hnp.unicode_string_dtypes(endianness="?"),
    hnp.nested_dtypes(),
)
ARRAYS = hnp.arrays(DTYPES, hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=4))
STATES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4), st.lists(inner, max_size=3).map(tuple), st.dictionaries(KEYS, inner, max_size=4)
    ),
    max_leaves=15,
)
RELAXED = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def round_trip(state: Any) -> Any:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "shard"
        size, digest = codec.write(path, state)
        assert size == path.stat().st_size
        return codec.read(path, digest=digest, size=size)


def exactly(value: Any) -> Any:
    """A form in which equal means: same types, same bits, same order."""
    if isinstance(value, float):
        return "float", struct.pack("<d", value)
    if isinstance(value, complex):
        return "complex", struct.pack("<dd", value.real, value.imag)
    if isinstance(value, list | tuple):
        return type(value), [exactly(item) for item in value]
    if isinstance(value, dict):
        return type(value), [(exactly(key), exactly(item)) for key, item in value.items()]
    if isinstance(value, np.ndarray):
        return "array", value.dtype, value.shape, value.tobytes()
    return type(value), value


@RELAXED
@given(STATES)
def test_every_plain_value_comes_back_as_the_same_type_with_the_same_bits(state: Any):
    assert exactly(round_trip(state)) == exactly(state)


@RELAXED
@given(ARRAYS)
def test_every_array_comes_back_with_its_type_shape_and_bits(array: np.ndarray):
    assert exactly(round_trip(array)) == exactly(array)


def test_numbers_of_any_size_come_back():
    state = [10**5000, -(2**53), 2**53 - 1, -0.0, 5e-324, math.inf, -math.inf, math.nan, True, 1, 1.0]
    assert exactly(round_trip(state)) == exactly(state)


@pytest.mark.parametrize(
    "view",
    [
        lambda a: a[:, ::2],
        lambda a: a[::-1],
        lambda a: a.T,
        lambda a: a.transpose(1, 0, 2),
        lambda a: np.asfortranarray(a),
        lambda a: np.broadcast_to(a[:1], (3, *a.shape[1:])),
        lambda a: a[1, 2, 3, ...].reshape(()),
    ],
)
def test_views_are_stored_by_value(view: Any):
    array = view(np.arange(60, dtype=np.float32).reshape(3, 4, 5)[:, :, :].copy())
    assert exactly(round_trip(array)) == exactly(array)


def test_the_memory_layout_comes_back_because_sums_depend_on_it():
    array = np.asfortranarray(np.random.default_rng(1).standard_normal((7, 5)))
    found = round_trip(array)
    assert found.flags.f_contiguous
    assert found.strides == array.strides


def test_arrays_come_back_writable_aligned_and_apart_from_each_other():
    state = round_trip([np.zeros(3), np.zeros(3)])
    state[0][:] = 1
    assert state[1].tolist() == [0, 0, 0]
    assert all(array.ctypes.data % 64 == 0 for array in state)


def test_numpy_scalars_and_generator_states_come_back():
    generator = np.random.default_rng(5)
    legacy = np.random.RandomState(3).get_state(legacy=True)
    state = {"scalar": np.float32(0.1), "when": np.datetime64("2020-01-01"), "bits": generator.bit_generator.state}
    found = round_trip({**state, "legacy": legacy})
    assert type(found["scalar"]) is np.float32
    assert found["when"] == state["when"]
    assert found["bits"] == state["bits"]
    assert exactly(found["legacy"]) == exactly(legacy)


def test_ordered_dicts_keep_their_type_and_the_module_versions_torch_hangs_on_them():
    state: Any = OrderedDict(a=1, b=2)
    state._metadata = OrderedDict({"": {"version": 2}})
    found = round_trip({"model": state, "milestones": Counter({30: 1, 60: 2})})
    assert type(found["model"]) is OrderedDict
    assert found["model"]._metadata == state._metadata
    assert sorted(found["milestones"].elements()) == [30, 60, 60]


class Custom:
    pass


@pytest.mark.parametrize(
    ("state", "place"),
    [
        ({"a": [1, Custom()]}, r"state\['a'\]\[1\] is a .*Custom"),
        ({Custom: 1}, "the key"),
        ({"a": {1, 2}}, r"state\['a'\] is a builtins.set"),
        ({"a": defaultdict(int)}, "defaultdict"),
        ([np.array([Custom()], dtype=object)], r"state\[0\] has the data type object"),
        (np.ma.masked_array([1]), "MaskedArray"),
        (np.array(["a"], dtype=np.dtypes.StringDType()), "StringDType"),
    ],
)
def test_a_value_that_would_change_is_refused_with_its_place(state: Any, place: str, tmp_path: Path):
    with pytest.raises(UnsupportedState, match=place):
        codec.write(tmp_path / "shard", state)
    assert not (tmp_path / "shard").exists()


def test_a_state_that_contains_itself_is_refused(tmp_path: Path):
    loop: list[Any] = []
    loop.append(loop)
    with pytest.raises(UnsupportedState, match="contains itself"):
        codec.write(tmp_path / "shard", loop)


@pytest.fixture
def shard(tmp_path: Path) -> tuple[Path, str]:
    path = tmp_path / "shard"
    _size, digest = codec.write(path, {"w": np.arange(40, dtype=np.float64), "n": 3, "rest": b"x" * 70})
    return path, digest


def test_a_file_cut_at_any_byte_is_refused(shard: tuple[Path, str]):
    path, _digest = shard
    whole = path.read_bytes()
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        with pytest.raises(CorruptSnapshot, match=str(path)):
            codec.read(path)


def test_a_flip_of_any_byte_is_refused_by_the_digest(shard: tuple[Path, str]):
    path, digest = shard
    whole = path.read_bytes()
    for place in range(len(whole)):
        flipped = bytearray(whole)
        flipped[place] ^= 0x10
        path.write_bytes(flipped)
        with pytest.raises(CorruptSnapshot):
            codec.read(path, digest=digest, size=len(whole))


def test_a_file_that_grew_and_an_empty_one_are_refused(shard: tuple[Path, str]):
    path, digest = shard
    whole = path.read_bytes()
    path.write_bytes(whole + b"\0")
    with pytest.raises(CorruptSnapshot, match="bytes long"):
        codec.read(path)
    with pytest.raises(CorruptSnapshot, match="commit record"):
        codec.read(path, digest=digest, size=len(whole))
    path.write_bytes(b"")
    with pytest.raises(CorruptSnapshot, match="ends at byte 0"):
        codec.read(path)
