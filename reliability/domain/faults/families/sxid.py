"""NVIDIA SXid: what the driver of NVLink switches writes to the kernel log. The lines are read in `xid_lines`."""

from collections.abc import Iterable

from reliability.domain.faults.families.rows import (
    ERROR,
    FAILOVER,
    FATAL,
    HARDWARE,
    HOLD,
    INFO,
    NETWORK,
    OBSERVE,
    SOFTWARE,
    THERMAL,
    UNKNOWN,
    WARNING,
    family,
    numbered,
    numbers,
    row,
)
from reliability.domain.faults.words import FaultClass, FaultCode, Origin

_REBOOT = "Reboot the node and look at the switch; replace it if the error is back."


def _fatal(listed: str, kind: FaultClass, meaning: str, advice: str) -> Iterable[FaultCode]:
    """Yield rows of codes that are fatal unless their line says that they are not."""
    for number in numbers(listed):
        yield row(f"sxid-{number}", kind, FAILOVER, FATAL, meaning, advice)
        passing = f"{meaning.rstrip('.')}, and the line says it was not fatal."
        yield row(f"sxid-{number}-nonfatal", kind, OBSERVE, WARNING, passing, "Nothing at once; watch its rate.")


_SMALL = (
    *numbered(
        "sxid",
        "11012 11021..11023 12021 12023 15008 15011 19049 19055 19057 19059 19062 19065 19068 19071 24001..24003",
        HARDWARE,
        OBSERVE,
        INFO,
        "A memory error of a GPU switch was corrected.",
        "Counted; nothing to do.",
    ),
    row(
        "sxid-11004",
        SOFTWARE,
        HOLD,
        ERROR,
        "A GPU switch refused traffic: its partitions are set up wrongly.",
        "Correct the partitions of the fabric manager, then start the job again.",
    ),
    row("sxid-12028", SOFTWARE, OBSERVE, WARNING, "A GPU switch refused an access.", "Restart the node if it stays."),
    row("sxid-20001", NETWORK, OBSERVE, WARNING, "A switch link had to send again.", "A high rate: a weak link."),
    row("sxid-20009", NETWORK, OBSERVE, WARNING, "A switch link has bit errors.", "A high rate: a weak link."),
    row("sxid-22013", HARDWARE, OBSERVE, WARNING, "A passing message of a switch link.", "Nothing to do."),
    *numbered(
        "sxid", "10001..10002", HARDWARE, OBSERVE, WARNING, "A passing host error of a GPU switch.", "Watch its rate."
    ),
    row(
        "sxid-10004",
        THERMAL,
        OBSERVE,
        ERROR,
        "A GPU switch is too hot.",
        "Check cooling; take the node out if it lasts.",
    ),
    row("sxid-10005", THERMAL, OBSERVE, INFO, "A GPU switch is cool again.", "Nothing to do.", clears="sxid-10004"),
    row(
        "sxid-data",
        UNKNOWN,
        OBSERVE,
        INFO,
        "The second line of a switch error, with its registers.",
        "Belongs to the line before it with the same number.",
    ),
)

_LARGE = (
    *_fatal(
        "11001 11009 12001 12002 12025..12027 12030..12032 14017",
        HARDWARE,
        "A port of a GPU switch failed on routing, credits or parity.",
        _REBOOT,
    ),
    *_fatal(
        "11013 11018..11020 12022 12024 15009 15010 15012 15013 19047 19048 19054 19056 19058 19060 19061 19063 19064 "
        "19066 19067 19069 19070 24004..24006",
        HARDWARE,
        "An uncorrectable memory error of a GPU switch.",
        _REBOOT,
    ),
    *_fatal("15001 15006 24007", HARDWARE, "Buffers or time limits of a GPU switch were overrun.", _REBOOT),
    *_fatal(
        "12020 22003 22011 23001..23017",
        HARDWARE,
        "The whole GPU fabric of the node failed.",
        "Every GPU of the node is hit: restart the host.",
    ),
    *_fatal("10003", HARDWARE, "A GPU switch raised an interrupt nobody handles.", "Reset all GPUs and switches."),
    *_fatal("19084", HARDWARE, "A heartbeat inside a GPU switch stopped.", "Reset all GPUs and switches together."),
    *_fatal("22012", HARDWARE, "A link controller of a GPU switch failed.", _REBOOT),
    *_fatal(
        "20012",
        NETWORK,
        "A GPU link is broken or its ends disagree.",
        "Check the connection; reset GPUs and switches together, never one alone.",
    ),
    *_fatal("20034", NETWORK, "A GPU link could not be trained; the GPU at its end reports xid-74 too.", _REBOOT),
)

ROWS = family("nvidia-sxid", Origin.KERNEL, *_SMALL, *_LARGE)
