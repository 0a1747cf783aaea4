"""A library with the functions of pynvml that the check asks, their names, parameters and errors as in the real one.

No GPU is at hand: `test_checks_gpus.py` compares the parameters with the real library where it is installed.
"""

from dataclasses import dataclass, field
from typing import Any


class NVMLError(Exception):
    """An error of the library; `value` is its number."""

    def __init__(self, value: int) -> None:
        self.value = value
        super().__init__({15: "GPU is lost", 18: "Driver/library version mismatch"}.get(value, f"Error {value}"))


@dataclass
class Card:
    """What one GPU tells."""

    bus: str = "00000000:3B:00.0"
    uuid: str = "GPU-1"
    volatile: int = 0
    aggregate: int = 0
    remapped: tuple[int, int, int, int] = (0, 0, 0, 0)
    reasons: int = 0
    links: list[int] = field(default_factory=lambda: [1, 1])
    error: int = 0


@dataclass
class Pci:
    """Where a GPU is."""

    busId: bytes


class Nvml:
    """The library, over the cards of a test."""

    NVMLError = NVMLError
    NVML_ERROR_GPU_IS_LOST = 15
    NVML_MEMORY_ERROR_TYPE_UNCORRECTED = 1
    NVML_VOLATILE_ECC, NVML_AGGREGATE_ECC = 0, 1
    NVML_NVLINK_MAX_LINKS = 36
    nvmlClocksThrottleReasonHwSlowdown = 0x8
    nvmlClocksThrottleReasonSwThermalSlowdown = 0x20
    nvmlClocksThrottleReasonHwThermalSlowdown = 0x40
    nvmlClocksThrottleReasonHwPowerBrakeSlowdown = 0x80

    def __init__(self, *cards: Card) -> None:
        self.cards = list(cards)
        self.start_error = 0
        self.open = 0

    def nvmlInit(self) -> None:
        if self.start_error:
            raise NVMLError(self.start_error)
        self.open += 1

    def nvmlShutdown(self) -> None:
        self.open -= 1

    def nvmlDeviceGetCount(self) -> int:
        return len(self.cards)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> Card:
        return self._well(self.cards[index])

    def nvmlDeviceGetPciInfo(self, handle: Card) -> Pci:
        return Pci(self._well(handle).bus.encode())

    def nvmlDeviceGetUUID(self, handle: Card) -> str:
        return self._well(handle).uuid

    def nvmlDeviceGetTotalEccErrors(self, handle: Card, errorType: int, counterType: int) -> int:
        assert errorType == self.NVML_MEMORY_ERROR_TYPE_UNCORRECTED
        return self._well(handle).volatile if counterType == self.NVML_VOLATILE_ECC else handle.aggregate

    def nvmlDeviceGetRemappedRows(self, device: Card) -> tuple[int, int, int, int]:
        return self._well(device).remapped

    def nvmlDeviceGetRetiredPagesPendingStatus(self, device: Card) -> int:
        raise NVMLError(3)

    def nvmlDeviceGetCurrentClocksEventReasons(self, handle: Card) -> int:
        return self._well(handle).reasons

    def nvmlDeviceGetNvLinkState(self, device: Card, link: int) -> int:
        if link >= len(self._well(device).links):
            raise NVMLError(2)
        return device.links[link]

    def _well(self, card: Card) -> Card:
        if card.error:
            raise NVMLError(card.error)
        return card


FUNCTIONS: tuple[str, ...] = tuple(
    name for name in vars(Nvml) if name.startswith("nvml") and callable(vars(Nvml)[name])
)


def parameters(function: Any) -> list[str]:
    """Return the names of a function's parameters, without self."""
    code = function.__code__
    return [name for name in code.co_varnames[: code.co_argcount] if name != "self"]
