"""Lines nobody should write: random, cut, binary, endless and forged ones. STEPKEEPER_LINES=1000000 tries so many."""

import os
import random
import time
import tracemalloc
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reliability.domain.faults import MATCHER, TABLE, FaultClass, Origin
from reliability.domain.faults.phrases import Phrase
from reliability.domain.faults.streams import LONGEST, Lines
from reliability.domain.faults.text import JUDGED
from reliability.errors import InvalidInput

pytestmark = pytest.mark.slow

MANY = int(os.environ.get("STEPKEEPER_LINES", "5000"))
EXAMPLES = [(code, example) for code, row in TABLE.items() for example in row.examples]
LITERALS = sorted({literal for row in TABLE.values() for line in row.lines for literal in line.literals})
SENTENCE = (
    "as the docs say, ",
    "user wrote: '",
    "I once saw ",
    '{"text": "',
    "prompt=",
    "# ",
    "// see ",
    "Q: what is ",
)


def of_code(code: str, cut: str) -> bool:
    """Whether a cut line may still be told as this code: as its own, or as a milder form of the same."""
    told = MATCHER.find(cut)
    if told is None or cut.split()[-1].isdecimal():  # an exit code that lost digits looks like any other
        return True
    row, whole = TABLE.lookup(told.code), TABLE[code]
    return told.code == code or row.fault_class in (whole.fault_class, FaultClass.UNKNOWN)


@pytest.mark.parametrize(("code", "example"), EXAMPLES, ids=lambda value: value[:40])
def test_a_line_that_is_cut_anywhere_never_becomes_a_fault_of_another_class(code: str, example: str) -> None:
    for length in range(len(example)):
        assert of_code(code, example[:length]), example[:length]


def hostile(chance: random.Random) -> bytes:
    """Return one line of many kinds; none of them is a line of the kernel."""
    _, example = chance.choice(EXAMPLES)
    at, raw = chance.randrange(len(example)), example.encode()
    return chance.choice(
        (
            lambda: chance.randbytes(chance.randrange(200)).replace(b"\n", b""),
            lambda: chance.choice(SENTENCE).encode() + raw,
            lambda: " ".join(chance.choices(LITERALS, k=6)).encode(),
            lambda: raw[:at] + chr(chance.randrange(32, 0x2FFF)).encode() + raw[at + 1 :],
            lambda: b"\x1b[3%dm" % chance.randrange(8) + raw + b"\x1b[0m",
            lambda: raw[:at] + b"\xff\xfe\x00",
            lambda: raw * chance.randrange(1, 40),
            lambda: "".join(chance.choices("ab{}[]():,.= 0123456789Xid%\t", k=300)).encode(),
        )
    )()


@pytest.mark.timeout(max(120, MANY // 500))
def test_hostile_lines_raise_nothing_and_never_become_hardware_in_the_output_of_a_program() -> None:
    chance = random.Random(5)
    shown = {code for code, row in TABLE.items() if row.origin is not Origin.KERNEL or row.source == "exit-code"}
    for _ in range(MANY):
        line = hostile(chance)
        told = MATCHER.find(line, origin=Origin.OUTPUT)
        assert told is None or told.code in shown or told.code.startswith("exit-"), line
        MATCHER.find(line)


def test_a_block_is_judged_as_its_lines_are_alone() -> None:
    chance = random.Random(6)
    lines = [hostile(chance) for _ in range(500)]
    block = b"\n".join(lines)
    alone = [(number, told) for number, line in enumerate(lines) if (told := MATCHER.find(line)) is not None]
    assert list(MATCHER.scan(block)) == alone
    assert list(MATCHER.scan(block + b"\n")) == alone


@given(st.binary(max_size=400))
def test_any_bytes_are_judged_without_an_error(line: bytes) -> None:
    MATCHER.find(line)
    list(MATCHER.scan(line))


@given(st.lists(st.binary(max_size=60), max_size=12), st.data())
def test_lines_come_out_whole_however_they_come_in(pieces: list[bytes], data: st.DataObject) -> None:
    stream = b"\n".join(pieces)
    lines, out, left = Lines(), b"", stream
    while left:
        size = data.draw(st.integers(1, len(left)))
        block = lines.feed(left[:size])
        assert not block or block.endswith(b"\n")
        out, left = out + block, left[size:]
    assert out + lines.rest() == stream


def endless(megabytes: int) -> Iterator[bytes]:
    for _ in range(megabytes):
        yield b"Xid (" * (1 << 17) + b"x" * (1 << 16)


def test_a_line_of_many_megabytes_takes_little_memory_and_little_time() -> None:
    lines, began = Lines(), time.process_time()
    tracemalloc.start()
    for chunk in endless(40):
        assert lines.feed(chunk) == b""
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 16 << 20
    assert len(lines.rest()) <= LONGEST + 16
    assert time.process_time() - began < 10


def test_an_error_behind_megabytes_of_progress_bars_is_still_found() -> None:
    lines = Lines()
    for number in range(300):
        assert lines.feed(b"\r%d%% " % number + b"#" * 10_000) == b""
    block = lines.feed(b"\rRuntimeError: CUDA error: device-side assert triggered\n")
    assert [told.code for _, told in MATCHER.scan(block)] == ["cuda-assert"]


@pytest.mark.parametrize("literal", LITERALS)
def test_text_made_to_be_slow_is_judged_in_linear_time(literal: str) -> None:
    line = (literal * (JUDGED // len(literal) + 1))[:JUDGED].encode()
    longer = line + b" " + line * 15
    began = time.process_time()
    for text in (line, longer, b"[1.0] " + line, b"RuntimeError: " + longer):
        MATCHER.find(text)
    assert time.process_time() - began < 0.5, literal


def test_a_forged_line_of_the_kernel_in_the_output_of_a_program_is_nothing() -> None:
    forged = "NVRM: Xid (PCI:0000:05:00): 79, pid=1, GPU has fallen off the bus."
    assert MATCHER.find(forged, origin=Origin.OUTPUT) is None
    assert MATCHER.find(f"[ 12.5] {forged}", origin=Origin.OUTPUT) is None
    assert MATCHER.find(f"kernel: {forged}", origin=Origin.TOOL) is None
    assert MATCHER.find("RuntimeError: CUDA error: unknown error", origin=Origin.KERNEL) is None


@pytest.mark.parametrize(
    ("phrase", "line", "fields"),
    [
        ("GPU {device} lost * after {seconds} s", "GPU 3 lost its way after 12 s", {"device": "3", "seconds": "12"}),
        ("fan {fan} failed", "node-1: fan 4 failed", {"fan": "4"}),
        ("fan failed at {at}", "fan failed at 12:00 today", {"at": "12:00"}),
        ("fan failed", "the fan failed again", {}),
        ("fan {fan} failed", "fan of the front failed", None),
        ("fan {fan} failed", "fan  failed", None),
        ("fan * failed {code}", "fan x failed", None),
    ],
)
def test_a_phrase_of_a_person_finds_its_lines(phrase: str, line: str, fields: dict[str, str] | None) -> None:
    found = Phrase(phrase).fields(line)
    assert (found if found is None else {name: str(value) for name, value in found.items()}) == fields


@pytest.mark.parametrize("phrase", ["", "   ", "* {a} *", "ab {Bad} defghij", "x" * 301, "fan { failed badly"])
def test_a_phrase_that_is_too_vague_or_misspelt_is_refused_with_its_name(phrase: str) -> None:
    with pytest.raises(InvalidInput, match="phrase"):
        Phrase(phrase)


@given(st.text(max_size=40), st.text(max_size=200))
def test_any_phrase_is_refused_or_searched_without_an_error(phrase: str, line: str) -> None:
    try:
        made = Phrase(phrase)
    except InvalidInput:
        return
    made.fields(line)
