"""The one place that writes the files of steps into a folder: whatever shards say, nothing lies outside of it."""

from pathlib import Path

import pytest

from reliability.tiers.step_folder import StepFolder, UnfitStep


@pytest.fixture
def into(tmp_path: Path) -> StepFolder:
    (tmp_path / "node" / "step").mkdir(parents=True)
    return StepFolder(tmp_path / "node" / "step")


@pytest.mark.parametrize("path", ["../x", "/x", "a/../../x", "", "a/./b", "a\0b", "x" * 300])
def test_no_path_leads_out(into: StepFolder, path: str) -> None:
    for write in (into.folder, lambda path: into.file(path, [b"x"]), lambda path: into.link(path, "w")):
        with pytest.raises(UnfitStep):
            write(path)
    assert [each.name for each in into.root.parent.rglob("*")] == ["step"]


def test_nothing_is_written_through_a_link_that_lies_there(into: StepFolder) -> None:
    (into.root / "up").symlink_to("..")
    (into.root / "w").symlink_to("../w")
    for write in (lambda: into.folder("up/x"), lambda: into.file("up/x", [b"x"]), lambda: into.file("w", [b"x"])):
        with pytest.raises(UnfitStep, match="another content"):
            write()
    into.link("up/l", "w")
    with pytest.raises(UnfitStep):
        into.finish()
    assert sorted(each.name for each in into.root.parent.iterdir()) == ["step"]


def test_links_that_lead_outside_only_together_are_refused_and_none_is_made(into: StepFolder) -> None:
    for path, target in {"q": ".", "p": "q/.."}.items():
        into.link(path, target)
    into.file("p4/evil", [b"x"])
    with pytest.raises(UnfitStep, match="leads outside"):
        into.finish()
    assert [each.name for each in into.root.iterdir()] == ["p4"]


@pytest.mark.parametrize("order", [("file", "link"), ("link", "file"), ("folder", "link"), ("link", "folder")])
def test_where_one_shard_has_a_link_another_has_nothing_else(into: StepFolder, order: tuple[str, ...]) -> None:
    make = {
        "file": lambda: into.file("x", [b"x"]),
        "folder": lambda: into.folder("x/y"),
        "link": lambda: into.link("x", "w"),
    }
    make["finish"] = into.finish

    def all_of_them() -> None:
        for kind in (*order, "finish"):
            make[kind]()

    with pytest.raises(UnfitStep, match="x lies in"):
        all_of_them()


def test_the_same_file_folder_and_link_of_another_shard_are_one(into: StepFolder) -> None:
    for _shard in range(2):
        into.folder("a")
        assert into.file("a/w", [b"12", b"345"], mode=0o640)
        assert into.file("DONE", [])
        into.link("l", "a/w")
    into.finish()
    into.finish()
    assert (into.root / "l").read_bytes() == b"12345"
    assert (into.root / "a" / "w").stat().st_mode & 0o777 == 0o640


@pytest.mark.parametrize("other", [b"", b"1234", b"12346", b"123456"])
def test_another_content_of_a_file_is_told_after_all_of_it_was_taken(into: StepFolder, other: bytes) -> None:
    assert into.file("w", [b"12345"])
    pieces = iter([other, b"more"])
    assert not into.file("w", pieces)
    assert list(pieces) == []
    assert (into.root / "w").read_bytes() == b"12345"
    into.link("l", "a")
    with pytest.raises(UnfitStep, match="another content"):
        into.link("l", "b")
