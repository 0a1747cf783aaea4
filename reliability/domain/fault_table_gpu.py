"""Which GPU driver codes (Xid) are known, and what does each call for?

Same rows as `fault_table`, but the first field lists the numbers that share the row ("8" or "39-41 70-72").
Numbers that no row names are treated as unknown and only observed.
"""

from reliability.domain.fault_table import Row

_RESTART = "Restarted in place; on one GPU again and again: run its diagnostics."
_RESET = "Reset the GPU or reboot the node; replace the GPU if the error is back."
_WATCH = "Nothing at once; look closer if it repeats."

XIDS: tuple[Row, ...] = (
    ("8", "software", "restart_in_place", "error", "A GPU channel stopped making progress.", _RESTART),
    ("11 25 32 80", "software", "restart_in_place", "error", "A broken command stream reached the GPU.", _RESTART),
    ("13", "application", "restart_in_place", "error", "A program's GPU kernel made an illegal access or instruction.", _RESTART),
    ("31", "application", "restart_in_place", "error", "A program touched an unmapped GPU address.", _RESTART),
    ("37 44 66-67 141 152-153 160-161", "software", "observe", "warning", "A driver or firmware complaint that passes.", _WATCH),
    ("38", "software", "observe", "warning", "The driver firmware's watchdog ran out.", _WATCH),
    ("39-41 70-72 75-77 85 126-135", "software", "restart_in_place", "error", "A GPU copy engine raised an exception.", _RESTART),
    ("43", "application", "observe", "warning", "A program's GPU channel was reset; the GPU stays usable.",
     "The program that owned it ends by itself and is restarted then."),
    ("45", "unknown", "observe", "warning", "GPU channels were torn down after something else failed.",
     "Look for the earlier code or the program's own end."),
    ("46", "hardware", "failover", "fatal", "The GPU stopped processing.", _RESET),
    ("48", "hardware", "failover", "fatal", "An uncorrectable GPU memory error.", _RESET),
    ("54", "hardware", "failover", "fatal", "The GPU lacks its auxiliary power.", "Check the power cable of the GPU."),
    ("60 68 82-84 86 88-89 96-105 139", "software", "restart_in_place", "error",
     "A video, image or security engine of the GPU raised an exception.", _RESTART),
    ("62", "hardware", "failover", "fatal", "A micro-controller inside the GPU halted.", _RESET),
    ("63", "hardware", "observe", "warning", "A bad memory row of the GPU is marked for replacement.",
     "Reset the GPU before the node serves as a standby again."),
    ("64", "hardware", "failover", "fatal", "A bad memory row of the GPU could not be replaced.", _RESET),
    ("69", "application", "restart_in_place", "error", "A program used a GPU engine wrongly.", _RESTART),
    ("74", "hardware", "failover", "fatal", "A link between GPUs failed.",
     "Several GPUs at once point to the switch; check the link mechanically, then reset."),
    ("78", "software", "hold", "error", "A virtual GPU did not start.", "Update driver and firmware."),
    ("79", "hardware", "failover", "fatal", "The GPU fell off the bus and cannot be reached.",
     "Reboot the machine; check PCIe, power and heat; replace the GPU if it is back."),
    ("92", "hardware", "observe", "warning", "Many GPU memory errors were corrected.", "Plan a replacement."),
    ("93", "hardware", "observe", "warning", "The GPU's information store is nearly worn out.", "Plan a replacement."),
    ("94", "hardware", "restart_in_place", "error", "A GPU memory error that only hit the named program.",
     "The node may go on; reset the GPU at a quiet moment."),
    ("95", "hardware", "failover", "fatal", "A GPU memory error that may have hit any program on the GPU.",
     "Distrust snapshots taken after it; reset the GPU."),
    ("106-107 154 162", "unknown", "observe", "info", "A note of the driver, no fault of its own.",
     "See the fault it belongs to."),
    ("109", "software", "restart_in_place", "error", "The GPU did not switch contexts in time.",
     "A second time on the same GPU: reset it."),
    ("110", "hardware", "failover", "fatal", "A security fault of the GPU.", _RESET),
    ("119", "software", "failover", "error", "The GPU's system processor did not answer.",
     "Only a GPU reset or reboot helps; then update driver and firmware."),
    ("120", "software", "failover", "error", "A task on the GPU's system processor crashed.",
     "Only a GPU reset or reboot helps."),
    ("121 137 147-148", "hardware", "observe", "warning", "A chip link error that was corrected or came from the far end.", _WATCH),
    ("136", "hardware", "failover", "fatal", "A GPU link could not be trained.", _RESET),
    ("140", "hardware", "failover", "fatal", "GPU memory errors that were not recovered.", _RESET),
    ("143", "hardware", "failover", "fatal", "The GPU did not initialise.", _RESET),
    ("144-146", "hardware", "failover", "fatal", "A fatal error of a GPU link unit.", _RESET),
    ("144-nonfatal 145-nonfatal 146-nonfatal", "hardware", "observe", "warning", "A passing error of a GPU link unit.", _WATCH),
    ("149", "network", "failover", "error", "A GPU link went down or has too many bit errors.",
     "Check cables and the peer; both ends report at once when one dies."),
    ("150 158 167-169", "hardware", "failover", "fatal", "A part of the GPU timed out for good.", _RESET),
    ("151 166 170", "software", "hold", "error", "Confidential computing is not set up rightly.", "Check the configuration."),
    ("155", "software", "failover", "error", "The GPU link software reports an error.", _RESET),
    ("156 163-165", "hardware", "observe", "warning", "The GPU lost some of its capacity or reserves.", "Plan a replacement."),
    ("157 159", "hardware", "observe", "error", "The GPU could not retire a broken part.", "Check the node at a quiet moment."),
    ("171-172", "hardware", "observe", "error", "Where an uncorrectable GPU memory error lay.", "Belongs to code xid-48."),
)


def numbers(text: str) -> tuple[str, ...]:
    """Return the single numbers (and suffixed ones) of a list such as '39-41 70 144-nonfatal'."""
    found: list[str] = []
    for part in text.split():
        first, _, last = part.partition("-")
        if last.isdigit():
            found += [str(number) for number in range(int(first), int(last) + 1)]
        else:
            found.append(part)
    return tuple(found)


def rows() -> tuple[Row, ...]:
    """Return one row for each Xid number, code 'xid-<number>'."""
    return tuple((f"xid-{number}", *rest) for listed, *rest in XIDS for number in numbers(listed))  # type: ignore[misc]
