"""Are all GPUs of this machine there, and well by what their driver says?

Asked through pynvml, where NVIDIA's driver is loaded: count, ECC errors, rows and pages of memory taken out of use, why
clocks are slowed, links between GPUs. What a GPU does not support is left out. Kernel lines (Xid) say more and decide
more; what is found here stands beside them. Not measured on a machine with GPUs yet.
"""

import importlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from reliability.agent.collectors.checking import Option, Outcome
from reliability.agent.collectors.checks.asked import Asked
from reliability.agent.collectors.checks.sheet import Sheet, Trouble
from reliability.agent.collectors.checks.tree import clean

DAY_S = 86_400.0
OPTIONS: dict[str, Option] = {"driver": "/proc/driver/nvidia", "count": 0.0, "slowed_s": 60.0}


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU. `device` as the kernel's lines name it. What it does not tell is None."""

    device: str
    uuid: str
    uncorrected: int | None
    uncorrected_ever: int | None
    remapped: tuple[int, ...] | None
    pages_pending: bool
    reasons: int
    links: tuple[bool | None, ...]

    @property
    def fields(self) -> dict[str, str | int]:
        return {"device": self.device}


class Lost(Exception):
    """A GPU no longer answers its driver."""


def look(asked: Asked) -> Outcome:
    """Return how it stands with the GPUs of this machine."""
    wanted = asked.tree("driver").there() or asked.limit("count") > 0
    if not wanted and asked.past.highest("gpus", None) is None:
        return Sheet(asked.past).outcome("Nothing to look at: no driver of NVIDIA is loaded.")
    try:
        library = importlib.import_module("pynvml")
    except ImportError:
        sheet = Sheet(asked.past)
        _unasked(sheet, "the Python package nvidia-ml-py is not installed")
        return sheet.outcome("")
    return survey(asked, library)


def survey(asked: Asked, library: Any) -> Outcome:
    """Return how it stands with the GPUs that `library`, pynvml, tells of."""
    sheet = Sheet(asked.past)
    try:
        library.nvmlInit()
    except library.NVMLError as error:
        _unasked(sheet, str(error))
        return sheet.outcome("")
    try:
        _survey(asked, sheet, library)
    except library.NVMLError as error:
        _unasked(sheet, str(error))
    finally:
        library.nvmlShutdown()
    return sheet.outcome(f"{sheet.measured.get('gpus', 0)} GPUs are there and well.")


def _unasked(sheet: Sheet, reason: str) -> None:
    """A driver that was replaced under running programs says so too: they go on, so nothing follows from it."""
    text = f"The GPUs cannot be asked: {reason}."
    sheet.stands(Trouble(code="gpu-unqueried", place="gpus", evidence=text))


def _survey(asked: Asked, sheet: Sheet, library: Any) -> None:
    count = int(library.nvmlDeviceGetCount())
    seen = asked.past.highest("gpus", count) or 0
    expected = int(asked.limit("count") or seen)
    sheet.measured |= {"gpus": count, "expected": max(count, expected)}
    if asked.past.held_s("missing", count < expected) > 0:
        text = f"expected {expected} GPUs, found {count}"
        fields: dict[str, str | int] = {"expected": expected, "found": count}
        sheet.stands(Trouble(code="gpu-missing", place="gpus", evidence=text, fields=fields))
    answering = [gpu for gpu in (_asked(sheet, library, index) for index in range(count)) if gpu is not None]
    for gpu in answering:
        _memory(asked, sheet, gpu)
        _slowed(asked, sheet, gpu, library)
        _links(asked, sheet, gpu)
    sheet.measured |= {
        "answering": len(answering),
        "uncorrected": sum(gpu.uncorrected or 0 for gpu in answering),
        "remapped_rows": sum(sum(gpu.remapped[:2]) for gpu in answering if gpu.remapped),
    }


def _asked(sheet: Sheet, library: Any, index: int) -> Gpu | None:
    try:
        gpu = _gpu(library, index)
    except Lost:
        text = f"GPU {index} is lost: it no longer answers its driver."
        fields: dict[str, str | int] = {"device": f"gpu-{index}"}
        sheet.stands(Trouble(code="gpu-lost", place=f"gpu {index}", evidence=text, fields=fields))
        return None
    if gpu is None:
        sheet.unknown(f"GPU {index} may not be asked.")
    return gpu


def _ask(library: Any, name: str, *parts: Any) -> Any:
    """Return what the library says, None for what this GPU or this version does not tell. Raises Lost."""
    function = getattr(library, name, None)
    if function is None:
        return None
    try:
        return function(*parts)
    except library.NVMLError as error:
        if getattr(error, "value", None) == library.NVML_ERROR_GPU_IS_LOST:
            raise Lost from error
        return None


def _gpu(library: Any, index: int) -> Gpu | None:
    """Return a GPU, None when it may not be asked. Raises Lost."""
    handle = _ask(library, "nvmlDeviceGetHandleByIndex", index)
    if handle is None:
        return None
    uncorrected, volatile = library.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, library.NVML_VOLATILE_ECC
    reasons = _ask(library, "nvmlDeviceGetCurrentClocksEventReasons", handle)
    if reasons is None:  # the name before drivers of 2023
        reasons = _ask(library, "nvmlDeviceGetCurrentClocksThrottleReasons", handle)
    return Gpu(
        device=_device(_ask(library, "nvmlDeviceGetPciInfo", handle)) or f"gpu-{index}",
        uuid=_text(_ask(library, "nvmlDeviceGetUUID", handle)) or f"gpu-{index}",
        uncorrected=_ask(library, "nvmlDeviceGetTotalEccErrors", handle, uncorrected, volatile),
        uncorrected_ever=_ask(library, "nvmlDeviceGetTotalEccErrors", handle, uncorrected, library.NVML_AGGREGATE_ECC),
        remapped=_ask(library, "nvmlDeviceGetRemappedRows", handle),
        pages_pending=bool(_ask(library, "nvmlDeviceGetRetiredPagesPendingStatus", handle)),
        reasons=int(reasons or 0),
        links=tuple(_link_states(library, handle)),
    )


def _link_states(library: Any, handle: Any) -> Iterator[bool | None]:
    for link in range(library.NVML_NVLINK_MAX_LINKS):
        state = _ask(library, "nvmlDeviceGetNvLinkState", handle, link)
        if state is None and link == 0:
            return
        yield None if state is None else bool(state)


def _text(value: Any) -> str:
    text = value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value or "")
    return clean(text)


def _device(pci: Any) -> str:
    """Return 0000:3b:00 for 00000000:3B:00.0, as the kernel's Xid lines name it."""
    parts = _text(getattr(pci, "busId", "")).lower().removesuffix(".0").split(":")
    return ":".join([parts[0][-4:], *parts[1:]]) if len(parts) == 3 else ""


def _memory(asked: Asked, sheet: Sheet, gpu: Gpu) -> None:
    risen = asked.past.rise(f"{gpu.uuid} ecc", gpu.uncorrected, from_zero=True)
    if risen:
        text = f"GPU {gpu.device} counted {risen} uncorrectable memory errors, {gpu.uncorrected_ever} over its life."
        sheet.happened(
            Trouble(code="gpu-ecc-uncorrected", place=gpu.uuid, evidence=text, count=risen, fields=gpu.fields)
        )
    today = asked.past.within(f"{gpu.uuid} ecc", risen, DAY_S)
    if today:
        text = f"GPU {gpu.device} counted {today} uncorrectable memory errors within a day."
        sheet.stands(Trouble(code="gpu-ecc-uncorrected", place=gpu.uuid, evidence=text, silent=True, fields=gpu.fields))
    rows = gpu.remapped if gpu.remapped is not None and len(gpu.remapped) == 4 else (0, 0, 0, 0)
    was_well = asked.past.highest(f"{gpu.uuid} remapped", None if rows[3] else 1)
    if rows[3]:  # one that was so when it was first seen has been in use like that: it is shown, and nothing is moved
        text = f"GPU {gpu.device} could not replace a bad row of its memory."
        failed = Trouble(code="gpu-remap-failed", place=gpu.uuid, evidence=text, silent=not was_well, fields=gpu.fields)
        sheet.stands(failed)
    if rows[2] or gpu.pages_pending:
        text = f"GPU {gpu.device} goes on using a bad part of its memory until it is reset."
        sheet.stands(Trouble(code="gpu-remap-pending", place=gpu.uuid, evidence=text, fields=gpu.fields))


def _slowed(asked: Asked, sheet: Sheet, gpu: Gpu, library: Any) -> None:
    """The bit for hardware slowdown is set with those for heat and power too: alone it is told as what it is."""
    hot = library.nvmlClocksThrottleReasonHwThermalSlowdown | library.nvmlClocksThrottleReasonSwThermalSlowdown
    brake = library.nvmlClocksThrottleReasonHwPowerBrakeSlowdown
    other = 0 if gpu.reasons & (hot | brake) else library.nvmlClocksThrottleReasonHwSlowdown
    for code, bits, why in (
        ("gpu-hot", hot, "heat"),
        ("gpu-power-brake", brake, "a signal of the power supply"),
        ("gpu-slowed", other, "a reason its hardware does not tell"),
    ):
        stands = bool(gpu.reasons & bits)
        held_s = asked.past.held_s(f"{gpu.uuid} {code}", stands)
        if stands and held_s >= asked.limit("slowed_s"):
            text = f"GPU {gpu.device} has been slowed for {why} for {held_s:.0f} s."
            sheet.stands(Trouble(code=code, place=gpu.uuid, evidence=text, fields=gpu.fields))


def _links(asked: Asked, sheet: Sheet, gpu: Gpu) -> None:
    for link, active in enumerate(gpu.links):
        was_active = asked.past.highest(f"{gpu.uuid} link {link}", 1 if active else None)
        if active is False and was_active:
            text = f"Link {link} of GPU {gpu.device} is down; it was active before."
            fields = {**gpu.fields, "link": link}
            sheet.stands(Trouble(code="nvlink-down", place=f"{gpu.uuid} link {link}", evidence=text, fields=fields))
