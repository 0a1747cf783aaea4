"""Memory, ECC, temperatures and disks: what is read, what warns, what is a fault, and what is none."""

from pathlib import Path

import pytest

from reliability.agent.collectors.checks import disks, ecc, memory, temperatures
from tests.agent.looks import Looks, codes

MIB = 1024
MC = "devices/system/edac/mc/mc0"
DIMM = f"{MC}/dimm1"


def _meminfo(available_mib: int, *, damaged_kib: int = 0) -> str:
    return (
        f"MemTotal:       {16384 * MIB} kB\nMemFree:  12 kB\nMemAvailable:   {available_mib * MIB} kB\n"
        f"Active(anon):  77 kB\nHardwareCorrupted:     {damaged_kib} kB"
    )


def _pressure(full: float) -> str:
    return f"some avg10=0.00 avg60=99.00 avg300=1.00 total=5\nfull avg10=0.00 avg60={full:.2f} avg300=0.00 total=3"


def _memory(tmp_path: Path) -> Looks:
    looks = Looks(memory.look, memory.OPTIONS, tmp_path)
    looks.write({"meminfo": _meminfo(8192), "pressure/memory": _pressure(0), "pressure/io": _pressure(50)})
    return looks


def test_memory_that_stays_low_warns_and_a_short_dip_does_not(tmp_path: Path) -> None:
    looks = _memory(tmp_path)
    assert looks.look().ok
    looks.write({"meminfo": _meminfo(100)})
    assert looks.look().ok
    looks.write({"meminfo": _meminfo(8192)})
    assert looks.look(after_s=50).ok
    looks.write({"meminfo": _meminfo(100)})
    assert looks.look(after_s=50).ok
    low = looks.look(after_s=61)
    assert low.ok is False
    assert codes(low) == ["memory-low"]
    assert "0.6 %" in low.reason
    looks.write({"meminfo": _meminfo(8192)})
    assert codes(looks.look()) == ["memory-low-over"]


def test_all_that_waits_for_memory_for_long_warns_and_what_some_wait_for_does_not(tmp_path: Path) -> None:
    looks = _memory(tmp_path)
    looks.write({"pressure/memory": _pressure(45)})
    assert looks.look().measured["memory_full_share"] == 0.45
    held = looks.look(after_s=70)
    assert codes(held) == ["memory-pressure"]
    assert held.measured["codes"] == ["memory-pressure"]


def test_a_kernel_without_pressure_is_well_and_one_without_memory_is_unknown(tmp_path: Path) -> None:
    looks = Looks(memory.look, memory.OPTIONS, tmp_path)
    looks.write({"meminfo": _meminfo(8192)})
    assert looks.look().ok
    looks.write({"meminfo": "MemTotal:  12 kB\nMemAvail"})
    half = looks.look()
    assert half.ok is None
    assert half.reason


def test_pages_that_the_kernel_takes_out_of_use_are_told_each_time(tmp_path: Path) -> None:
    looks = _memory(tmp_path)
    looks.look()
    looks.write({"meminfo": _meminfo(8192, damaged_kib=8)})
    told = looks.look()
    assert codes(told) == ["memory-pages-lost"]
    assert "8 KiB" in told.findings[0].evidence
    assert codes(looks.look()) == []


def _ecc(tmp_path: Path) -> Looks:
    looks = Looks(ecc.look, ecc.OPTIONS, tmp_path)
    looks.write({f"{MC}/ue_count": 1, f"{MC}/ce_count": 9})
    looks.write({f"{DIMM}/dimm_ue_count": 1, f"{DIMM}/dimm_ce_count": 9, f"{DIMM}/dimm_label": "CPU0 DIMM_A1"})
    return looks


def test_an_uncorrected_memory_error_is_a_fault_of_its_module_and_counts_for_a_day(tmp_path: Path) -> None:
    looks = _ecc(tmp_path)
    first = looks.look()
    assert (first.ok, codes(first)) == (True, [])
    looks.write({f"{MC}/ue_count": 3, f"{DIMM}/dimm_ue_count": 3})
    fault = looks.look()
    assert fault.ok is False
    assert [(each.code, each.count) for each in fault.findings] == [("memory-uncorrected", 2)]
    assert fault.findings[0].fields == {"controller": "MC0", "module": "CPU0 DIMM_A1"}
    again = looks.look()
    assert (again.ok, codes(again)) == (False, [])
    assert looks.look(after_s=86_500).ok


def test_an_error_that_no_module_counts_is_the_controllers(tmp_path: Path) -> None:
    looks = _ecc(tmp_path)
    looks.look()
    looks.write({f"{MC}/ue_count": 2})
    fault = looks.look()
    assert [dict(each.fields) for each in fault.findings] == [{"controller": "MC0"}]


def test_corrected_errors_warn_when_a_module_makes_many_within_a_day(tmp_path: Path) -> None:
    looks = _ecc(tmp_path)
    looks.look()
    looks.write({f"{DIMM}/dimm_ce_count": 40, f"{MC}/ce_count": 40})
    assert looks.look().ok
    looks.write({f"{DIMM}/dimm_ce_count": 70, f"{MC}/ce_count": 70})
    many = looks.look(after_s=600)
    assert codes(many) == ["memory-corrected"]
    assert looks.look(after_s=90_000).ok


def test_errors_since_a_start_of_the_machine_are_new_and_an_unread_counter_is_none(tmp_path: Path) -> None:
    looks = _ecc(tmp_path)
    looks.look()
    looks.reboot()
    looks.write({f"{MC}/ue_count": 1, f"{MC}/ce_count": 0, f"{DIMM}/dimm_ue_count": 1, f"{DIMM}/dimm_ce_count": 0})
    assert codes(looks.look()) == ["memory-uncorrected"]
    looks.write({f"{MC}/ue_count": "", f"{MC}/ce_count": "garbage"})
    unread = looks.look()
    assert codes(unread) == []
    assert "MC0" in unread.reason


def test_a_machine_that_counts_no_memory_errors_is_well_and_says_so(tmp_path: Path) -> None:
    outcome = Looks(ecc.look, ecc.OPTIONS, tmp_path).look()
    assert outcome.ok
    assert outcome.reason.startswith("Nothing to look at")


def _sensor(tmp_path: Path, **values: object) -> Looks:
    looks = Looks(temperatures.look, temperatures.OPTIONS, tmp_path)
    looks.write({"class/hwmon/hwmon0/name": "coretemp"})
    looks.write({f"class/hwmon/hwmon0/temp1_{name}": value for name, value in values.items()})
    return looks


def test_a_part_at_its_critical_temperature_is_told_when_it_lasts(tmp_path: Path) -> None:
    looks = _sensor(tmp_path, input=104_000, crit=100_000, max=84_000, label="Package id 0")
    assert looks.look().ok
    hot = looks.look(after_s=40)
    assert codes(hot) == ["temperature-critical"]
    assert "coretemp Package id 0 has 104 °C" in hot.reason
    looks.write({"class/hwmon/hwmon0/temp1_input": 90_000})
    assert codes(looks.look(after_s=40)) == ["temperature-critical-over"]
    assert codes(looks.look(after_s=700)) == ["temperature-high"]


@pytest.mark.parametrize(
    "values",
    [
        {"input": 127_000, "crit": 100_000},
        {"input": 104_000, "crit": 0},
        {"input": 104_000, "crit": 65_261_850, "max": -273_150},
        {"input": 104_000, "crit": 100_000, "fault": 1},
        {"input": "n/a", "crit": 100_000},
        {"input": -128_000, "crit": 100_000},
    ],
    ids=["nothing connected", "no limit", "limits without sense", "faulty sensor", "no number", "far below zero"],
)
def test_a_sensor_that_makes_no_sense_is_no_heat(tmp_path: Path, values: dict[str, object]) -> None:
    looks = _sensor(tmp_path, **values)
    assert [looks.look(after_s=3000).ok for _ in range(3)] == [True] * 3


MOUNTS = "/dev/nvme0n1p2 / ext4 {},relatime 0 0\n/dev/sda1 /data\\040two xfs {},noatime 0 0\nproc /proc proc rw 0 0"


def _disks(tmp_path: Path) -> Looks:
    looks = Looks(disks.look, disks.OPTIONS, tmp_path)
    looks.write({"block/nvme0n1/ro": 0, "block/nvme0n1/device/state": "live", "block/loop0/ro": 1})
    looks.write({"block/sda/ro": 0, "block/sda/device/state": "running", "block/sda/device/ioerr_cnt": "0x5"})
    looks.write({"fs/ext4/nvme0n1p2/errors_count": 2, "self/mounts": MOUNTS.format("rw", "rw")})
    return looks


def test_a_disk_that_was_given_up_is_told_and_one_that_resets_only_when_it_lasts(tmp_path: Path) -> None:
    looks = _disks(tmp_path)
    assert looks.look().ok
    looks.write({"block/nvme0n1/device/state": "resetting"})
    assert looks.look().ok
    assert codes(looks.look(after_s=61)) == ["disk-slow"]
    looks.write({"block/nvme0n1/device/state": "dead"})
    lost = looks.look()
    assert codes(lost) == ["disk-lost", "disk-slow-over"]
    assert lost.findings[0].fields == {"device": "nvme0"}


def test_what_turns_read_only_is_told_and_what_always_was_is_not(tmp_path: Path) -> None:
    looks = _disks(tmp_path)
    looks.write({"self/mounts": MOUNTS.format("rw", "ro")})
    assert looks.look().ok
    assert looks.look().ok
    looks.write({"self/mounts": MOUNTS.format("ro", "ro"), "block/sda/ro": 1})
    turned = looks.look()
    assert sorted(codes(turned)) == ["disk-read-only", "filesystem-read-only"]
    assert {str(each.fields["device"]) for each in turned.findings} == {"sda", "nvme0n1p2"}


@pytest.mark.parametrize("word", ["emergency_ro", "shutdown"])
def test_a_file_system_that_stopped_after_an_error_is_read_only_though_it_is_mounted_rw(
    tmp_path: Path, word: str
) -> None:
    looks = _disks(tmp_path)
    looks.look()
    looks.look()
    looks.write({"self/mounts": MOUNTS.format(f"rw,{word}", "rw")})
    assert codes(looks.look()) == ["filesystem-read-only"]


def test_a_file_system_that_counts_errors_is_damaged_over_starts_of_the_machine_too(tmp_path: Path) -> None:
    looks = _disks(tmp_path)
    looks.look()
    looks.reboot()
    assert looks.look().ok
    looks.write({"fs/ext4/nvme0n1p2/errors_count": 5})
    damaged = looks.look()
    assert codes(damaged) == ["filesystem-damaged"]
    assert "3 new errors" in damaged.findings[0].evidence
    assert codes(looks.look()) == []


def test_many_errors_of_a_disk_within_an_hour_warn_and_an_array_that_lacks_one_does(tmp_path: Path) -> None:
    looks = _disks(tmp_path)
    looks.write({"block/md0/md/degraded": 0})
    looks.look()
    looks.write({"block/sda/device/ioerr_cnt": "0x25"})
    assert looks.look().ok
    looks.write({"block/sda/device/ioerr_cnt": "0x85", "block/md0/md/degraded": 1})
    assert sorted(codes(looks.look())) == ["disk-errors", "raid-degraded"]
