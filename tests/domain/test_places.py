"""Every name of a place tells two things apart, for all who count, keep or end findings."""

import pytest

from reliability.agent.collectors.checking import Found
from reliability.agent.collectors.debouncing import key_of
from reliability.domain.faults import TABLE, Finding
from reliability.domain.faults.conditions import cleared_by, flaps
from reliability.domain.faults.merging import sameness
from reliability.domain.faults.places import PLACES

each_name = pytest.mark.parametrize("name", PLACES)
LASTING = [row for row in TABLE.values() if row.clears]


def seen(code: str, order: int, **fields: str | int) -> Finding:
    return Finding(code=code, node="n1", at=100.0 + order, order=order, fields=fields)


@each_name
def test_what_ends_at_one_place_ends_nothing_at_another(name: str) -> None:
    for row in LASTING:
        here, there = seen(row.clears, 1, **{name: 3}), seen(row.clears, 2, **{name: 5})
        over = seen(row.code, 3, **{name: 5})
        found = (here, there, over)
        assert (cleared_by(here, found, TABLE), cleared_by(there, found, TABLE)) == (None, over), row.code
        assert flaps(here, found, until=200.0) == 1, row.code


@each_name
def test_findings_of_two_places_are_told_and_kept_as_two(name: str) -> None:
    one, other = ({"device": "d", name: place} for place in ("a", "b"))
    body = {"code": "nvlink-down", "evidence": "Seen."}
    assert sameness("job", 1, body, one) != sameness("job", 1, body, other)
    assert key_of(Found(code="x", evidence="", fields=one)) != key_of(Found(code="x", evidence="", fields=other))


def test_what_does_not_tell_a_name_can_be_of_that_place() -> None:
    down, up = seen("link-down", 1, device="9f", interface="eth0"), seen("link-up", 2, device="9f")
    assert cleared_by(down, (down, up), TABLE) == up
