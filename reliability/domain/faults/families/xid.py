"""NVIDIA Xid: what the GPU driver writes to the kernel log, by number. The lines are read in `xid_lines`."""

from collections.abc import Iterable

from reliability.domain.faults.families.rows import (
    APPLICATION,
    ERROR,
    FAILOVER,
    FATAL,
    FOLLOW_UP,
    HARDWARE,
    HOLD,
    INFO,
    NETWORK,
    OBSERVE,
    RESTART,
    SAME_GPU_AGAIN,
    SAME_GPU_OFTEN,
    SAME_UNIT_OFTEN,
    SOFTWARE,
    UNKNOWN,
    WARNING,
    family,
    numbered,
    row,
)
from reliability.domain.faults.words import FaultCode, Origin

_AGAIN = "Restarted in place; on one GPU again and again: run its diagnostics."
_RESET = "Reset the GPU or reboot the node; replace the GPU if the error is back."
_PASSES = "Nothing at once; look closer if it repeats."
_DEAD = (HARDWARE, FAILOVER, FATAL)
_CHANNEL = (SOFTWARE, RESTART, ERROR)
_COMPLAINT = (SOFTWARE, OBSERVE, WARNING)
_WORN = (HARDWARE, OBSERVE, WARNING)


def _of_links() -> Iterable[FaultCode]:
    """Link units of the newer GPUs: the words of the line, not the number, say whether the error is fatal."""
    units = {144: "SAW", 145: "RLW", 146: "TLW", 149: "network layer", 150: "watchdog"}
    for number, unit in units.items():
        kind = NETWORK if number == 149 else HARDWARE
        ends = " Both ends report at once when one dies: check cables and the peer." if number == 149 else ""
        fatal = f"A fatal error of the {unit} unit of a GPU link."
        yield row(f"xid-{number}", kind, FAILOVER, FATAL, fatal, _RESET + ends, repeat=None)
        passing = f"A passing error of the {unit} unit of a GPU link."
        yield row(f"xid-{number}-nonfatal", kind, OBSERVE, WARNING, passing, _PASSES)
        unsaid = f"An error of the {unit} unit of a GPU link; the line does not say whether it was fatal."
        yield row(f"xid-{number}-unstated", kind, OBSERVE, WARNING, unsaid, "Read the whole line in the kernel log.")


_PROGRAMS = (
    *numbered("xid", "8", *_CHANNEL, "A GPU channel stopped making progress.", _AGAIN, repeat=SAME_GPU_OFTEN),
    *numbered(
        "xid",
        "11 25 32 80",
        *_CHANNEL,
        "A broken command stream reached the GPU.",
        "Restarted in place; on one GPU again and again: check how it sits in its PCIe slot.",
        repeat=SAME_GPU_OFTEN,
    ),
    row(
        "xid-13",
        APPLICATION,
        RESTART,
        ERROR,
        "A program's GPU kernel made an illegal access or instruction.",
        "Correct the program; the same part of one GPU hit again and again means a sick GPU: run its diagnostics.",
        repeat=SAME_UNIT_OFTEN,
    ),
    row(
        "xid-31",
        APPLICATION,
        RESTART,
        ERROR,
        "A program touched an unmapped GPU address.",
        "Correct the program; the same part of one GPU hit again and again means a sick GPU: run its diagnostics.",
        repeat=SAME_UNIT_OFTEN,
    ),
    *numbered(
        "xid", "37 44 66..67 141 152..153 160..161", *_COMPLAINT, "A driver or firmware complaint that passes.", _PASSES
    ),
    row("xid-38", *_COMPLAINT, "The driver firmware's watchdog ran out.", _PASSES),
    *numbered(
        "xid",
        "39..41 70..72 75..77 85 126..135",
        *_CHANNEL,
        "A GPU copy engine raised an exception.",
        _AGAIN,
        repeat=SAME_GPU_OFTEN,
    ),
    row(
        "xid-43",
        APPLICATION,
        OBSERVE,
        WARNING,
        "A program's GPU channel was reset; the GPU stays usable.",
        "The program that owned it ends by itself and is restarted then.",
    ),
    row(
        "xid-45",
        SOFTWARE,
        OBSERVE,
        WARNING,
        "GPU channels were torn down after something else failed.",
        "Look for the earlier code or the program's own end.",
        weight=FOLLOW_UP,
    ),
    *numbered(
        "xid",
        "60 68 82..84 86 88..89 96..105 139",
        *_CHANNEL,
        "A video, image or security engine of the GPU raised an exception.",
        _AGAIN,
        repeat=SAME_GPU_OFTEN,
    ),
    row("xid-69", APPLICATION, RESTART, ERROR, "A program used a GPU engine wrongly.", _AGAIN, repeat=SAME_GPU_OFTEN),
    row(
        "xid-109",
        *_CHANNEL,
        "The GPU did not switch contexts in time.",
        "Restarted in place; a second time on the same GPU only a reset of it helps.",
        repeat=SAME_GPU_AGAIN,
    ),
)

_DEVICES = (
    row("xid-46", *_DEAD, "The GPU stopped processing.", _RESET),
    row("xid-48", *_DEAD, "An uncorrectable GPU memory error.", _RESET),
    row("xid-54", *_DEAD, "The GPU lacks its auxiliary power.", "Check the power cable of the GPU."),
    row("xid-62", *_DEAD, "A micro-controller inside the GPU halted.", _RESET),
    row(
        "xid-63",
        *_WORN,
        "A bad memory row of the GPU is marked for replacement.",
        "Reset the GPU before the node serves as a standby again.",
    ),
    row("xid-64", *_DEAD, "A bad memory row of the GPU could not be replaced.", _RESET),
    row(
        "xid-74",
        *_DEAD,
        "A link between GPUs failed.",
        "Several GPUs at once point to the switch; check the link mechanically, then reset.",
    ),
    row(
        "xid-79",
        *_DEAD,
        "The GPU fell off the bus and cannot be reached.",
        "Reboot the machine; check PCIe, power and heat; replace the GPU if it is back.",
    ),
    row("xid-92", *_WORN, "Many GPU memory errors were corrected.", "Plan a replacement; the job may go on."),
    row("xid-93", *_WORN, "The GPU's information store is nearly worn out.", "Plan a replacement."),
    row(
        "xid-94",
        HARDWARE,
        RESTART,
        ERROR,
        "A GPU memory error that only hit the named program.",
        "The node may go on; reset the GPU at a quiet moment.",
    ),
    row(
        "xid-95",
        *_DEAD,
        "A GPU memory error that may have hit any program on the GPU.",
        "Distrust snapshots taken after it; reset the GPU.",
    ),
    row("xid-110", *_DEAD, "A security fault of the GPU.", _RESET),
    row("xid-136", *_DEAD, "A GPU link could not be trained.", _RESET),
    row("xid-140", *_DEAD, "GPU memory errors that were not recovered.", _RESET),
    row("xid-143", *_DEAD, "The GPU did not initialise.", _RESET),
    *numbered("xid", "158 167 169", *_DEAD, "A part of the GPU or its bus stopped answering.", _RESET),
    row(
        "xid-168",
        HARDWARE,
        FAILOVER,
        ERROR,
        "Part of the GPU memory can no longer be used.",
        "Have the GPU checked; it offers less memory than before.",
    ),
    row(
        "xid-119",
        SOFTWARE,
        FAILOVER,
        ERROR,
        "The GPU's system processor did not answer.",
        "Only a GPU reset or reboot helps; then update driver and firmware. The named process only asked.",
    ),
    row("xid-120", SOFTWARE, FAILOVER, ERROR, "A task on the GPU's system processor crashed.", "Reset or reboot."),
    row("xid-155", SOFTWARE, FAILOVER, ERROR, "The GPU link software reports an error.", _RESET),
)

_NOTES = (
    row("xid-78", SOFTWARE, HOLD, ERROR, "A virtual GPU did not start.", "Update driver and firmware."),
    *numbered("xid", "106..107", UNKNOWN, OBSERVE, INFO, "A test message of the management bus.", "Nothing to do."),
    *numbered("xid", "121 147..148", *_WORN, "A chip link error that was corrected.", _PASSES),
    row(
        "xid-137",
        *_COMPLAINT,
        "A link access was refused, most often because the far end failed first.",
        "Look for the first code on the peer GPU.",
    ),
    *numbered(
        "xid",
        "151 166 170",
        SOFTWARE,
        HOLD,
        ERROR,
        "Confidential computing is not set up rightly.",
        "Check the configuration; after a change of keys restart the virtual machine.",
    ),
    row(
        "xid-154",
        UNKNOWN,
        OBSERVE,
        INFO,
        "The driver names the recovery that the code before it needs.",
        "It raises the action of that code; alone it means nothing.",
    ),
    row("xid-156", *_WORN, "The GPU retired a part and offers less than before.", "Reset it at a quiet moment."),
    row("xid-157", HARDWARE, OBSERVE, ERROR, "The GPU could not retire a broken part.", "Have the GPU checked."),
    row(
        "xid-159",
        HARDWARE,
        OBSERVE,
        ERROR,
        "An error between processor and GPU memory.",
        "Check the memory of the node at a quiet moment.",
    ),
    row(
        "xid-162",
        UNKNOWN,
        OBSERVE,
        INFO,
        "Power smoothing is back: the report before it is settled.",
        "Nothing to do.",
        clears="xid-163",
    ),
    row("xid-163", *_WORN, "Power smoothing switched itself off.", "Reset the GPU unless it comes back by itself."),
    *numbered("xid", "164..165", *_WORN, "Power smoothing of the GPU wears out.", "Plan a replacement."),
    *numbered(
        "xid",
        "171..172",
        HARDWARE,
        OBSERVE,
        ERROR,
        "Tells where an uncorrectable GPU memory error lay.",
        "Belongs to code xid-48.",
    ),
    *numbered(
        "xid",
        "1..7 9 10 12 14..24 26..30 33..36 42 47 49..53 55..59 61 65 73 81 87 90 91 108 111..118 122..125 138 142",
        UNKNOWN,
        OBSERVE,
        WARNING,
        "A number that today's data-centre GPUs do not use.",
        "Nothing is done because of it; look it up in the driver's documentation.",
    ),
)

ROWS = family("nvidia-xid", Origin.KERNEL, *_PROGRAMS, *_DEVICES, *_of_links(), *_NOTES)
