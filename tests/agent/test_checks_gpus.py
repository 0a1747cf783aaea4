"""GPUs by what pynvml tells of them: missing, lost, memory errors, slowed, links. Not measured on a GPU."""

from pathlib import Path

import pytest

from reliability.agent.collectors.checking import Outcome
from reliability.agent.collectors.checks import gpus
from reliability.agent.collectors.checks.asked import Asked
from tests.agent.looks import Looks, codes
from tests.agent.nvml import FUNCTIONS, Card, Nvml, parameters

BUS = "0000:3b:00"


def _machine(tmp_path: Path, *cards: Card) -> tuple[Nvml, Looks]:
    library = Nvml(*cards)

    def look(asked: Asked) -> Outcome:
        return gpus.survey(asked, library)

    return library, Looks(look, gpus.OPTIONS, tmp_path)


def test_the_functions_that_are_asked_have_the_parameters_of_the_real_library() -> None:
    real = pytest.importorskip("pynvml")
    for name in FUNCTIONS:
        function = getattr(real, name)
        function = getattr(function, "__wrapped__", function)
        assert parameters(function) == parameters(vars(Nvml)[name]), name
    for name in (name for name in vars(Nvml) if name.startswith(("nvmlClocks", "NVML_"))):
        assert getattr(real, name) == getattr(Nvml, name), name


def test_a_machine_without_a_driver_has_nothing_to_look_at(tmp_path: Path) -> None:
    outcome = Looks(gpus.look, gpus.OPTIONS, tmp_path / "none").look()
    assert outcome.ok
    assert outcome.reason.startswith("Nothing to look at")


def test_where_the_driver_does_not_answer_the_real_library_says_why_and_nothing_is_moved(tmp_path: Path) -> None:
    pytest.importorskip("pynvml")
    if Path("/proc/driver/nvidia").exists():
        pytest.skip("this machine has a driver")
    outcome = Looks(gpus.look, gpus.OPTIONS, tmp_path).look()
    assert codes(outcome) == ["gpu-unqueried"]
    assert "NVML" in outcome.reason


def test_gpus_that_are_well_are_well_and_the_library_is_closed_each_time(tmp_path: Path) -> None:
    library, looks = _machine(tmp_path, Card(), Card(uuid="GPU-2", links=[]))
    outcome = looks.look()
    assert outcome.ok, outcome.reason
    totals = {"uncorrected": 0, "remapped_rows": 0}
    assert outcome.measured == {"gpus": 2, "expected": 2, "answering": 2, **totals}
    assert library.open == 0


def test_fewer_gpus_than_there_were_are_missing_when_the_next_look_agrees(tmp_path: Path) -> None:
    library, looks = _machine(tmp_path, Card(), Card(uuid="GPU-2"))
    looks.look()
    looks.look()
    gone = library.cards.pop()
    assert codes(looks.look()) == []
    missing = looks.look()
    assert codes(missing) == ["gpu-missing"]
    assert missing.findings[0].fields == {"expected": 2, "found": 1}
    library.cards.append(gone)
    assert codes(looks.look()) == ["gpu-missing-over"]


def test_as_many_gpus_as_an_operator_says_must_be_there(tmp_path: Path) -> None:
    _, looks = _machine(tmp_path, Card())
    looks.options = {**looks.options, "count": 2.0}
    looks.look()
    assert codes(looks.look()) == ["gpu-missing"]
    looks.options = {**looks.options, "count": 1.0}
    assert codes(looks.look()) == ["gpu-missing-over"]


def test_a_gpu_that_is_lost_is_told_and_the_others_are_asked_all_the_same(tmp_path: Path) -> None:
    library, looks = _machine(tmp_path, Card(error=15), Card(uuid="GPU-2", volatile=1))
    looks.look()
    library.cards[1].volatile = 4
    outcome = looks.look()
    assert codes(outcome) == ["gpu-ecc-uncorrected"]
    assert outcome.measured["codes"] == ["gpu-lost", "gpu-ecc-uncorrected"]
    assert outcome.measured["answering"] == 1


def test_a_gpu_that_may_not_be_asked_is_unknown_and_no_fault(tmp_path: Path) -> None:
    _, looks = _machine(tmp_path, Card(error=4))
    outcome = looks.look()
    assert (outcome.ok, codes(outcome)) == (None, [])


def test_a_driver_that_was_replaced_meanwhile_moves_nothing(tmp_path: Path) -> None:
    library, looks = _machine(tmp_path, Card())
    looks.look()
    library.start_error = 18
    outcome = looks.look()
    assert codes(outcome) == ["gpu-unqueried"]
    assert "version mismatch" in outcome.reason


def test_uncorrectable_errors_are_told_each_time_and_stand_for_a_day(tmp_path: Path) -> None:
    library, looks = _machine(tmp_path, Card(volatile=2, aggregate=9))
    assert looks.look().ok
    library.cards[0].volatile = 3
    first = looks.look()
    assert [(each.code, each.count, each.fields) for each in first.findings] == [
        ("gpu-ecc-uncorrected", 1, {"device": BUS})
    ]
    assert looks.look().ok is False
    assert looks.look(after_s=90_000).ok


def test_a_row_that_could_not_be_replaced_moves_a_job_only_when_that_is_new(tmp_path: Path) -> None:
    library, looks = _machine(tmp_path, Card(remapped=(0, 1, 0, 1)))
    old = looks.look()
    assert (old.ok, codes(old), old.measured["codes"]) == (False, [], ["gpu-remap-failed"])
    library, looks = _machine(tmp_path, Card())
    looks.look()
    looks.look()
    library.cards[0].remapped = (0, 1, 1, 1)
    assert codes(looks.look()) == ["gpu-remap-failed", "gpu-remap-pending"]


@pytest.mark.parametrize(
    ("bits", "code"),
    [(0x48, "gpu-hot"), (0x20, "gpu-hot"), (0x88, "gpu-power-brake"), (0x8, "gpu-slowed"), (0x5, None)],
    ids=["heat by hardware", "heat by the driver", "power", "hardware alone", "idle or at its power limit"],
)
def test_a_gpu_that_is_slowed_for_long_is_told_with_the_reason(tmp_path: Path, bits: int, code: str | None) -> None:
    _, looks = _machine(tmp_path, Card(reasons=bits))
    assert looks.look().ok
    assert codes(looks.look(after_s=61)) == ([code] if code else [])


def test_a_link_between_gpus_that_was_active_and_is_not_is_told(tmp_path: Path) -> None:
    library, looks = _machine(tmp_path, Card(links=[1, 0]))
    looks.look()
    assert looks.look().ok
    library.cards[0].links = [0, 0]
    down = looks.look()
    assert [(each.code, each.fields) for each in down.findings] == [("nvlink-down", {"device": BUS, "link": 0})]
