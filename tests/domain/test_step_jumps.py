"""A number far beyond the spacing of the steps before it is no step, unless the next one goes on from there."""

import pytest

from reliability.domain import step_jumps

SEALED = [(1000, True), (2000, True), (3000, True)]


@pytest.mark.parametrize(
    ("step", "seen", "others", "base", "jump"),
    [
        (4000, SEALED, set(), 0, False),
        (1_003_000, SEALED, set(), 0, False),
        (1_003_001, SEALED, set(), 0, True),
        (20_261_129, SEALED, set(), 0, True),
        (20_261_129, [], set(), 0, False),
        (20_261_129, [], {500}, 0, True),
        (20_261_129, [(500, True)], set(), 20_261_000, False),
        (20_261_129, [], {20_000_000}, 19_999_000, False),
        (10**12, [], set(), 0, False),
        (10**12 + 1, [], set(), 0, True),
        (10**12 + 2, [(10**12 + 1, False)], set(), 0, True),
        (20_261_130, [*SEALED, (20_261_129, False)], set(), 0, False),
        (20_261_130, [*SEALED, (20_261_129, False), (4000, True)], set(), 0, True),
        (20_261_130, [*SEALED, (20_261_129, False)], {4000}, 0, True),
        (20_261_130, [(20_261_129, False), *SEALED], set(), 0, True),
        (50_002, [(3, True), (50_001, False)], {1, 2}, 0, False),
        (50_002, [(3, True), (50_001, False)], {1, 2, 4}, 0, True),
        (0, [], set(), 0, False),
        (5, SEALED, set(), 0, False),
    ],
)
def test_a_step_is_doubted_by_the_spacing_of_those_below_it(
    step: int, seen: list[tuple[int, bool]], others: set[int], base: int, jump: bool
) -> None:
    assert step_jumps.is_jump(step, seen=seen, others=others, base=base) is jump
