"""What the agent says to a collector arrives, also while the collector begins."""

import json

from hypothesis import given
from hypothesis import strategies as st

from reliability.agent.collectors.attending import _with_news
from reliability.agent.collectors.saying import Hearing


@given(st.lists(st.dictionaries(st.sampled_from("abc"), st.integers()), min_size=1, max_size=6), st.integers(1, 40))
def test_whatever_comes_together_with_the_first_wish_is_part_of_it(said: list[dict[str, int]], size: int) -> None:
    data = b"".join(json.dumps(each).encode() + b"\n" for each in said)
    hearing, heard = Hearing(), list[dict[str, int]]()
    for start in range(0, len(data), size):
        heard += hearing.feed(data[start : start + size])
    assert heard == said
    hearing = Hearing()
    wanted = _with_news(next(iter(hearing.feed(data))), hearing)
    together: dict[str, int] = {}
    for each in said:
        together |= each
    assert wanted == together
