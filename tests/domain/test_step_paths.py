"""Links of a step: where they really end, whatever their words say."""

import os
import random
from pathlib import Path

import pytest

from reliability.domain import step_paths


@pytest.mark.parametrize(
    ("path", "target", "links", "stays"),
    [
        ("a/l", "../w", {}, True),
        ("l", ".", {}, True),
        ("l", "..", {}, False),
        ("l", "/w", {}, False),
        ("l", "a/../../a", {}, False),
        ("p", "q/..", {"q": "."}, False),
        ("p", "q/..", {"q": "a/b"}, True),
        ("p", "q/../..", {"q": "a/b"}, True),
        ("p", "q/../../..", {"q": "a/b"}, False),
        ("p2", "p/..", {"q": "a", "p": "q/.."}, False),
        ("p", "q/x", {"q": "/etc"}, False),
        ("p", "p", {"p": "p"}, False),
        ("p", "a//./b", {"a": "c"}, True),
        ("d/p", "x/../..", {"d/x": "../e/f"}, True),
        ("d/p", "x/../../..", {"d/x": "../e/f"}, False),
    ],
)
def test_a_link_is_followed_through_the_other_links(
    path: str, target: str, links: dict[str, str], *, stays: bool
) -> None:
    assert step_paths.stays(path, target, {path: target, **links}) is stays


def test_no_tangle_of_links_that_is_said_to_stay_ever_leads_outside(tmp_path: Path) -> None:
    chance, kept = random.Random(7), 0
    words = ["..", ".", "a", "b", "p", "q", "r", "a/p", "a/q"]
    for number in range(400):
        root = tmp_path / str(number) / "step"
        (root / "a" / "b").mkdir(parents=True)
        paths = chance.sample(["p", "q", "r", "a/p", "a/q"], 4)
        links = {path: "/".join(chance.choices(words, k=chance.randint(1, 4))) for path in paths}
        for path, target in links.items():
            (root / path).symlink_to(target)
        for path, target in links.items():
            if step_paths.stays(path, target, links):
                kept += 1
                end = os.path.realpath(root / path)
                assert end == str(root) or end.startswith(f"{root}/"), (links, path)
    assert kept > 100


@pytest.mark.parametrize(
    "path", ["", ".", "..", "/a", "a/../b", "a//b", "a/", "./a", "a\0b", "a/" + "x" * 256, "\ud800"]
)
def test_a_path_that_names_no_place_below_or_cannot_be_made_is_none(path: str) -> None:
    assert not step_paths.is_below(path)
    assert step_paths.is_below("a/b c/\udcff")


def test_a_target_that_no_link_can_have_is_none() -> None:
    assert [step_paths.is_target(text) for text in ("", "a\0", "\ud800", "a")] == [False, False, False, True]
