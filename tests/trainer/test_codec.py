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

from reliability.trainer import CorruptSnapshot, UnsupportedState
from tests.trainer import shards

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
        return shards.read(shards.write(Path(folder), state))


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
        shards.write(tmp_path, state)
    assert list((tmp_path / "mem").iterdir()) == []


def test_a_state_that_contains_itself_is_refused(tmp_path: Path):
    loop: list[Any] = []
    loop.append(loop)
    with pytest.raises(UnsupportedState, match="contains itself"):
        shards.write(tmp_path, loop)


@pytest.fixture
def record(tmp_path: Path) -> Path:
    return shards.write(tmp_path, {"w": np.arange(40, dtype=np.float64), "n": 3, "rest": b"x" * 70})


def test_a_file_cut_at_any_place_is_refused(record: Path):
    path = record.with_suffix(".snap")
    whole = path.read_bytes()
    for length in [*range(0, len(whole), 13), len(whole) - 1]:
        path.write_bytes(whole[:length])
        with pytest.raises(CorruptSnapshot, match=str(path)):
            shards.read(record)


def test_a_flip_of_any_byte_of_shard_and_record_is_refused(record: Path):
    for path in (record.with_suffix(".snap"), record):
        whole = path.read_bytes()
        written = len(whole.rstrip(b"\0")) + 64  # beyond lie zeros only: some of them will do
        for place in [*range(min(written, len(whole))), *range(written, len(whole), 97)]:
            flipped = bytearray(whole)
            flipped[place] ^= 0x10
            path.write_bytes(flipped)
            with pytest.raises(CorruptSnapshot):
                shards.read(record)
        path.write_bytes(whole)
    assert shards.read(record)["n"] == 3


def test_a_file_that_grew_and_an_empty_one_are_refused(record: Path):
    path = record.with_suffix(".snap")
    whole = path.read_bytes()
    for content in (whole + bytes(4096), b"", bytes(len(whole))):
        path.write_bytes(content)
        with pytest.raises(CorruptSnapshot):
            shards.read(record)


def test_arrays_that_fit_are_filled_in_place_and_the_others_come_back_new(tmp_path: Path):
    saved = {"a": np.arange(6.0).reshape(2, 3), "b": np.arange(5), "c": [np.ones(3, np.float32)], "n": 1}
    record = shards.write(tmp_path, saved)
    live = {"a": np.zeros((2, 3)), "b": np.zeros(4, int), "c": [np.zeros(3, np.float32)[::-1]], "n": 0}
    found = shards.read(record, live)
    assert found["a"] is live["a"]
    assert found["b"] is not live["b"]
    assert exactly(found) == exactly(saved)


def test_what_was_saved_apart_is_not_filled_into_one_memory(tmp_path: Path):
    record = shards.write(tmp_path, {"a": np.zeros(9), "b": np.ones(9)})
    one = np.full(9, 7.0)
    found = shards.read(record, {"a": one, "b": one})
    assert found["a"].tolist() == [0.0] * 9
    assert found["b"].tolist() == [1.0] * 9


def test_tied_arrays_are_stored_once_and_come_back_tied(tmp_path: Path):
    tied = np.ones(20_000)
    record = shards.write(tmp_path, {"in": tied, "out": tied})
    assert record.with_suffix(".snap").stat().st_size < 1.5 * tied.nbytes
    found = shards.read(record)
    found["in"][0] = 5
    assert found["out"][0] == 5


@pytest.mark.parametrize("what", ["zeros", "ones", "swapped halves"])
def test_a_stretch_of_any_constant_changes_the_sums(tmp_path: Path, what: str):
    values = np.full(300_000, {"zeros": 0.0, "ones": 1.0, "swapped halves": 2.0}[what])
    record = shards.write(tmp_path, values)
    path = record.with_suffix(".snap")
    whole = path.read_bytes()
    middle = len(whole) // 2 & ~4095
    for damaged in (bytes(65536), b"\xff" * 65536, whole[middle - 4 : middle + 65532]):
        path.write_bytes(whole[:middle] + damaged + whole[middle + 65536 :])
        if path.read_bytes() != whole:
            with pytest.raises(CorruptSnapshot, match="damaged between"):
                shards.read(record)
