"""What machine is this? Hardware ids tell a machine again under another name; facts are shown to people."""

import importlib
import logging
import os
import platform
import re
from pathlib import Path
from typing import Any

_MACHINE_ID = Path("/etc/machine-id")
_BOARD_SERIAL = Path("/sys/class/dmi/id/board_serial")
_NETWORK = Path("/sys/class/net")
_CPUINFO = Path("/proc/cpuinfo")
_DRIVER = Path("/proc/driver/nvidia")
_UUID = re.compile(r"^GPU UUID:\s*(GPU-[0-9a-f-]{8,64})\s*$", re.MULTILINE)

log = logging.getLogger("stepkeeper.agent")


def hardware_ids() -> dict[str, Any]:
    """Return what identifies this machine; a source that cannot be read is left out."""
    found = {
        "machine_id": _text(_MACHINE_ID),
        "board_serial": _text(_BOARD_SERIAL),
        "gpu_uuids": _gpu_uuids(),
        "macs": _macs(),
        "cpu_model": cpu_model(),
    }
    return {key: value for key, value in found.items() if value}


def host_facts() -> dict[str, Any]:
    """Return CPU count and model, memory and kernel."""
    return {
        "cpus": os.cpu_count() or 1,
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "cpu_model": cpu_model(),
        "kernel": platform.release(),
    }


def cpu_model() -> str:
    """Return the processor's name as the kernel gives it."""
    for line in _text(_CPUINFO).splitlines():
        key, _, value = line.partition(":")
        if key.strip() in {"model name", "Hardware", "cpu model"}:
            return value.strip()
    return platform.processor() or platform.machine()


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace").strip()
    except OSError:
        return ""


def _macs() -> list[str]:
    """Return addresses of real network devices: virtual ones have no device of their own and change at will."""
    if not _NETWORK.is_dir():
        return []
    devices = [entry for entry in _NETWORK.iterdir() if (entry / "device").exists()]
    return sorted(filter(None, (_text(entry / "address") for entry in devices)))


def _gpu_uuids() -> list[str]:
    """Return the ids of the GPUs. Where NVML does not answer, as while a driver is loaded anew, its files tell them."""
    try:
        nvml = importlib.import_module("pynvml")
    except ImportError:
        return _told_by_driver()
    try:
        nvml.nvmlInit()
    except nvml.NVMLError as error:
        if _DRIVER.exists():
            log.warning("NVML does not answer, GPU ids are taken from %s: %s", _DRIVER, error)
        return _told_by_driver()
    try:
        handles = [nvml.nvmlDeviceGetHandleByIndex(index) for index in range(nvml.nvmlDeviceGetCount())]
        return sorted(str(nvml.nvmlDeviceGetUUID(handle)) for handle in handles)
    except nvml.NVMLError:
        return _told_by_driver()
    finally:
        nvml.nvmlShutdown()


def _told_by_driver() -> list[str]:
    found = (_UUID.search(_text(path)) for path in _DRIVER.glob("gpus/*/information"))
    return sorted(each[1] for each in found if each is not None)
