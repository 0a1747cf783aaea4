"""Snapshot folders of programs: which step a name means, and what a rule may say."""

import time

import pytest

from reliability.domain import program_folders
from reliability.domain.program_folders import FolderRule, SealedBy, Whose
from reliability.errors import InvalidInput


@pytest.mark.parametrize(
    ("name", "step"),
    [
        ("step-100", 100),
        ("step_100", 100),
        ("step=100", 100),
        ("step100", 100),
        ("checkpoint-100", 100),
        ("ckpt-7", 7),
        ("epoch=1-step=100.ckpt", 100),
        ("run-epoch=1-step=100.ckpt", 100),
        ("global_step100", 100),
        ("iter_0000100", 100),
        ("model_step_12.pt", 12),
        ("100", 100),
        ("0", 0),
        ("checkpoint-best", None),
        ("last.ckpt", None),
        ("runs", None),
        ("step-", None),
        ("step--3", None),
        ("100x", None),
        ("epoch=3.ckpt", None),
        ("step-" + "9" * 19, None),
        ("step-١٢", 12),
        ("", None),
    ],
)
def test_a_name_means_a_step_or_none(name: str, step: int | None) -> None:
    assert FolderRule().step_of(name) == step


def test_a_pattern_of_the_job_alone_decides() -> None:
    rule = FolderRule(pattern=r"model\.(?P<step>\d+)")
    assert rule.step_of("model.12") == 12
    assert rule.step_of("step-12") is None
    assert FolderRule(pattern=r"m(?P<step>.*)").step_of("mx") is None
    assert FolderRule(pattern=r"m(?P<step>\d+)?").step_of("m") is None


@pytest.mark.parametrize("name", [".step-1", "tmp-step-1", "step-1.tmp", "step-1.part", "step-1-tmp", "a.incomplete"])
def test_names_of_what_is_not_whole_yet_are_known(name: str) -> None:
    assert FolderRule().is_unfinished(name)
    assert not FolderRule().is_unfinished("step-1")


def test_the_rule_is_said_in_words() -> None:
    assert "changed for 10 s while its ranks live" in FolderRule().sentence()
    for whose in Whose:
        for sealed_by in SealedBy:
            assert FolderRule(of=whose, sealed_by=sealed_by).sentence().endswith(".")


def test_what_a_job_says_comes_back_whole_and_nothing_means_no_folder() -> None:
    named = {"of": "rank", "sealed_by": "marker", "marker": "DONE", "pattern": r"x(?P<step>\d+)"}
    given = {**named, "quiet_s": 2, "aside_bytes": 5}
    read = program_folders.read(given, "snapshot_folder")
    assert read == {**given, "quiet_s": 2.0}
    rule = program_folders.rule_of(read)
    assert rule == FolderRule(
        of=Whose.RANK, sealed_by=SealedBy.MARKER, quiet_s=2.0, marker="DONE", pattern=named["pattern"], aside_bytes=5
    )
    assert program_folders.rule_of(program_folders.read({}, "snapshot_folder")) == FolderRule()
    assert program_folders.read(None, "snapshot_folder") is None
    assert program_folders.rule_of(None) is None


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ([], "snapshot_folder"),
        ({"whose": "rank"}, "snapshot_folder.whose"),
        ({"of": "everybody"}, "snapshot_folder.of"),
        ({"sealed_by": 3}, "snapshot_folder.sealed_by"),
        ({"quiet_s": 0}, "snapshot_folder.quiet_s"),
        ({"quiet_s": True}, "snapshot_folder.quiet_s"),
        ({"marker": "a/b"}, "snapshot_folder.marker"),
        ({"marker": ""}, "snapshot_folder.marker"),
        ({"pattern": "("}, "snapshot_folder.pattern"),
        ({"pattern": r"step-(\d+)"}, "snapshot_folder.pattern"),
        ({"aside_bytes": -1}, "snapshot_folder.aside_bytes"),
        ({"aside_bytes": 0.5}, "snapshot_folder.aside_bytes"),
    ],
)
def test_what_is_wrong_in_a_rule_is_told_with_its_field(given: object, field: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        program_folders.read(given, "snapshot_folder")
    assert caught.value.field == field
    assert caught.value.hint


@pytest.mark.parametrize(
    "body",
    [
        r"(a+)+", r"(?:a*)*", r"(a|aa)+", r"(?:a?){1000000000}", r"(?:){1000000000}", r"(?:a?b?)*", r"(?:-\d+)*",
        r".*.*.*.*", r"(?>a+)*", r"(?=(a+)+b)", "a?" * 60, "(?:a|aa)" * 30, r"(?:.*a){30}", r"(?:(?:a+)?)+",
        r"(x)?(?(1)(a+)+|b)",
    ],
)  # fmt: skip
def test_a_pattern_that_might_try_for_hours_is_refused_with_what_would_be_right(body: str) -> None:
    with pytest.raises(InvalidInput, match="for hours") as caught:
        program_folders.read({"pattern": f"{body}(?P<step>1)"}, "snapshot_folder")
    assert "at most three" in caught.value.hint


@pytest.mark.parametrize(
    "pattern",
    [
        r"model-(?P<step>\d+)",
        r".*_.*_(?P<step>\d{1,9})\.(?:pt|bin)",
        r"(?i:Step)[-_]?(?P<step>[0-9]+)(?:\.pt)?",
        r"(?P<step>(?:\d{3})+)",
        r"(?!best)(?:run-(?:a|b)-)?(?P<step>\d+)",
    ],
)
def test_patterns_as_people_write_them_are_taken_and_no_name_holds_them_up(pattern: str) -> None:
    rule = program_folders.rule_of(program_folders.read({"pattern": pattern}, "snapshot_folder"))
    assert rule is not None
    began = time.perf_counter()
    for name in ("_" * 255, "1" * 255, "_" * 200 + "1" * 55, "run-a-" + "9" * 200, "123" * 80 + "x"):
        rule.step_of(name)
    assert time.perf_counter() - began < 5
