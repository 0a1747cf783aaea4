"""What the checks of a node find by looking, without a line of a log (docs/checks.md).

What lasts has a second code, with `-over`, that is told when it is over; so have the codes of other families that
checks find as well.
"""

from collections.abc import Iterator

from reliability.domain.faults.families.rows import (
    APPLICATION,
    ERROR,
    FAILOVER,
    HARDWARE,
    INFO,
    NETWORK,
    OBSERVE,
    SOFTWARE,
    STORAGE,
    THERMAL,
    UNKNOWN,
    WARNING,
    family,
    row,
)
from reliability.domain.faults.words import FaultClass, FaultCode, Origin

_LINK_WAIT_S = 30.0
_NOTED = (OBSERVE, WARNING)

_MACHINE = (
    row(
        "memory-low",
        SOFTWARE,
        *_NOTED,
        "The machine has hardly any memory left.",
        "See what takes it, the memory tier of snapshots too, before the kernel ends a process.",
    ),
    row(
        "memory-pressure",
        SOFTWARE,
        *_NOTED,
        "Programs of the machine wait for memory instead of computing.",
        "Use less memory, or look for what else runs there.",
    ),
    row(
        "io-pressure",
        STORAGE,
        *_NOTED,
        "Programs of the machine wait for disks instead of computing.",
        "Look for a slow disk or file server, and for what else reads and writes.",
    ),
    row(
        "shared-memory-full",
        APPLICATION,
        *_NOTED,
        "Shared memory is full: the next that wants some is ended by a bus error.",
        "Raise the job's shm_bytes, or clear segments that were left behind on the node.",
    ),
    row(
        "temperature-critical",
        THERMAL,
        OBSERVE,
        ERROR,
        "A part of the machine is at the temperature that its maker calls critical.",
        "Check cooling now; take the node out after a snapshot if it lasts.",
    ),
    row(
        "temperature-high",
        THERMAL,
        *_NOTED,
        "A part of the machine has been above its high mark for long.",
        "Check cooling.",
    ),
    row(
        "clock-skew",
        SOFTWARE,
        *_NOTED,
        "The node's clock differs from the server's.",
        "Check its time service. Nothing is decided by it, but times in its own logs are wrong.",
    ),
)

_LINKS = (
    row(
        "net-link-down",
        NETWORK,
        OBSERVE,
        ERROR,
        "A network link that was up is down.",
        "If training stops meanwhile, this node is left. Check cable and switch port.",
        debounce_s=_LINK_WAIT_S,
        standing_action=FAILOVER,
    ),
    row(
        "net-link-slow",
        NETWORK,
        *_NOTED,
        "A network link is slower than it was.",
        "Check cable and switch port: the whole job waits for its slowest link.",
    ),
    row(
        "ib-port-down",
        NETWORK,
        OBSERVE,
        ERROR,
        "An InfiniBand port that was active is not.",
        "If training stops meanwhile, this node is left. Check cable and switch port.",
        debounce_s=_LINK_WAIT_S,
        standing_action=FAILOVER,
    ),
    row(
        "ib-port-slow",
        NETWORK,
        *_NOTED,
        "An InfiniBand port is slower than it was.",
        "Check its cable: the whole job waits for its slowest link.",
    ),
    row(
        "ib-port-errors",
        NETWORK,
        *_NOTED,
        "An InfiniBand port counts many errors.",
        "Clean or replace its cable at a quiet moment.",
    ),
    row(
        "nvlink-down",
        HARDWARE,
        OBSERVE,
        ERROR,
        "A link between GPUs that was active is down.",
        "If training stops meanwhile, this node is left. Reset the GPUs, or replace what the link runs over.",
        debounce_s=_LINK_WAIT_S,
        standing_action=FAILOVER,
    ),
)

_STORES = (
    row(
        "disk-read-only",
        STORAGE,
        OBSERVE,
        ERROR,
        "A disk turned read-only.",
        "Other tiers go on; look for the kernel's lines of that minute and replace the disk.",
    ),
    row(
        "disk-errors",
        STORAGE,
        *_NOTED,
        "A disk counts many errors.",
        "Snapshots on it are verified before use; replace the disk if it goes on.",
    ),
    row(
        "raid-degraded",
        STORAGE,
        *_NOTED,
        "An array of disks lacks some of them.",
        "Replace the disk and rebuild the array.",
    ),
    row(
        "tier-unwritable",
        STORAGE,
        OBSERVE,
        ERROR,
        "A snapshot tier takes no files.",
        "Other tiers go on. Read the reason beside it, and check the folder and its rights.",
    ),
    row(
        "tier-low",
        STORAGE,
        *_NOTED,
        "A snapshot tier has hardly any room left.",
        "Free space or keep fewer snapshots.",
    ),
    row(
        "tier-slow",
        STORAGE,
        *_NOTED,
        "A snapshot tier takes seconds for a small file.",
        "Look at its disk or file server: snapshots arrive there late.",
    ),
    row(
        "mount-failed",
        STORAGE,
        OBSERVE,
        ERROR,
        "A mount of a file server cannot be read.",
        "Check the server and mount it again; no node is at fault when several report it.",
    ),
    row(
        "mount-slow",
        STORAGE,
        *_NOTED,
        "A file server takes seconds to answer.",
        "Check the server and the way to it.",
    ),
)

_GPUS = (
    row(
        "gpu-unqueried",
        SOFTWARE,
        *_NOTED,
        "The GPUs of the node cannot be asked how they are.",
        "Often the driver was replaced while programs run: they go on. Reboot at a quiet moment.",
    ),
    row(
        "gpu-slowed",
        HARDWARE,
        *_NOTED,
        "A GPU is slowed by its hardware and does not say why.",
        "Check power and cooling; the whole job waits for it.",
    ),
)

_EVENTS = (
    row(
        "memory-pages-lost",
        HARDWARE,
        *_NOTED,
        "The kernel took damaged pages of memory out of use.",
        "Plan to replace the memory module if it goes on.",
    ),
    row(
        "gpu-ecc-uncorrected",
        HARDWARE,
        OBSERVE,
        ERROR,
        "A GPU counts uncorrectable memory errors.",
        "The kernel's Xid lines of that minute say what it hit and decide; reset the GPU before it is a standby.",
    ),
)

_OF_OTHERS: dict[str, FaultClass] = {
    "ib-flapping": NETWORK,
    "ib-ports-missing": NETWORK,
    "disk-lost": STORAGE,
    "disk-slow": STORAGE,
    "disk-full": STORAGE,
    "quota-full": STORAGE,
    "filesystem-read-only": STORAGE,
    "tier-read-only": STORAGE,
    "tier-io-error": STORAGE,
    "gpu-lost": HARDWARE,
    "gpu-missing": HARDWARE,
    "gpu-hot": THERMAL,
    "gpu-power-brake": HARDWARE,
    "gpu-remap-pending": HARDWARE,
    "gpu-remap-failed": HARDWARE,
    "probe-hang": UNKNOWN,
}
"""Codes of other families that last and that checks find, without those whose lines come in floods: findings that begin
or end something are kept in their order, one by one."""


def _over() -> Iterator[FaultCode]:
    lasting = {each.code: each.fault_class for each in (*_MACHINE, *_LINKS, *_STORES, *_GPUS)}
    for code, fault_class in (lasting | _OF_OTHERS).items():
        told = f"What {code} stands for is over."
        yield row(f"{code}-over", fault_class, OBSERVE, INFO, told, "Nothing to do.", clears=code)


ROWS = family("stepkeeper", Origin.TOOL, *_MACHINE, *_LINKS, *_STORES, *_GPUS, *_EVENTS, *_over())
