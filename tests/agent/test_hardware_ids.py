"""The ids by which a machine is known again are told also while NVML does not answer."""

from pathlib import Path

import pytest

from reliability.agent.collectors import host
from tests.agent import nvml

INFORMATION = "Model: \t\t NVIDIA H100\nIRQ:   \t\t 120\nGPU UUID: \t {}\nVideo BIOS: \t 96.00\n"
UUIDS = ["GPU-11111111-2222-3333-4444-555555555555", "GPU-aaaaaaaa-2222-3333-4444-555555555555"]


@pytest.fixture
def driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for number, uuid in enumerate(UUIDS):
        folder = tmp_path / "gpus" / f"0000:{number:02x}:00.0"
        folder.mkdir(parents=True)
        (folder / "information").write_text(INFORMATION.format(uuid))
    monkeypatch.setattr(host, "_DRIVER", tmp_path)
    return tmp_path


@pytest.mark.usefixtures("driver")
def test_where_nvml_does_not_answer_the_files_of_the_driver_tell(monkeypatch: pytest.MonkeyPatch) -> None:
    library = nvml.Nvml()
    library.start_error = 18
    monkeypatch.setattr(host.importlib, "import_module", lambda _name: library)
    assert host.hardware_ids()["gpu_uuids"] == UUIDS


@pytest.mark.usefixtures("driver")
def test_without_the_library_too_and_a_file_that_is_odd_is_passed_over(driver: Path) -> None:
    (driver / "gpus" / "0000:01:00.0" / "information").write_text("GPU UUID: ????\n")
    assert host._told_by_driver() == UUIDS[:1]


def test_a_machine_without_gpus_tells_of_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "_DRIVER", tmp_path / "none")
    assert "gpu_uuids" not in host.hardware_ids()
