"""Do the disks of this machine answer, and can what is mounted still be written to?

Read: block/*/{ro,device/state,device/ioerr_cnt,md/degraded} and fs/ext4/*/errors_count below /sys, self/mounts below
/proc. What was read-only when it was first seen is meant to be so: only what turns read-only counts.
"""

import re

from reliability.agent.collectors.checking import Option, Outcome
from reliability.agent.collectors.checks.asked import Asked
from reliability.agent.collectors.checks.mounted import mounts
from reliability.agent.collectors.checks.sheet import Sheet, Trouble
from reliability.agent.collectors.checks.tree import Tree

HOUR_S = 3600.0
OPTIONS: dict[str, Option] = {
    "root": "/sys",
    "proc": "/proc",
    "stuck_s": 60.0,
    "io_errors_per_hour": 60.0,
}
_LOST = frozenset({"offline", "transport-offline", "dead"})
_STUCK = frozenset({"blocked", "resetting", "connecting"})
_NAMESPACE = re.compile(r"(nvme[0-9]{1,4})n[0-9]{1,4}")


def look(asked: Asked) -> Outcome:
    """Return how it stands with disks and file systems."""
    tree, sheet = asked.tree(), Sheet(asked.past)
    blocks = tree.below("block")
    disks = [name for name in blocks.names() if blocks.there(name, "device")]
    for name in disks:
        _disk(asked, sheet, blocks.below(name), name)
    arrays = [name for name in blocks.names() if blocks.there(name, "md")]
    for name in arrays:
        _array(sheet, blocks.below(name, "md"), name)
    for name in tree.names("fs", "ext4"):
        _damaged(asked, sheet, tree.number("fs", "ext4", name, "errors_count"), name)
    sheet.measured |= {"disks": len(disks), "arrays": len(arrays)}
    _mounts(asked, sheet)
    answer = "1 disk answers" if len(disks) == 1 else f"{len(disks)} disks answer"
    return sheet.outcome(f"{answer}; nothing turned read-only.")


def _disk(asked: Asked, sheet: Sheet, tree: Tree, name: str) -> None:
    namespace = _NAMESPACE.fullmatch(name)
    device = namespace[1] if namespace else name
    fields = {"device": device}
    state = tree.text("device", "state") or ""
    if state in _LOST:
        text = f"The kernel has given disk {device} up (state {state})."
        sheet.stands(Trouble(code="disk-lost", place=device, evidence=text, fields=fields))
    stuck_s = asked.past.held_s(f"{device} stuck", state in _STUCK)
    if state in _STUCK and stuck_s >= asked.limit("stuck_s"):
        text = f"Disk {device} has not answered for {stuck_s:.0f} s (state {state})."
        sheet.stands(Trouble(code="disk-slow", place=device, evidence=text, fields=fields))
    read_only = tree.number("ro")
    was_writable = asked.past.highest(f"{name} writable", 1 if read_only == 0 else None)
    if read_only == 1 and was_writable:
        text = f"Disk {name} turned read-only."
        sheet.stands(Trouble(code="disk-read-only", place=name, evidence=text, fields={"device": name}))
    _errors(asked, sheet, tree, name)


def _errors(asked: Asked, sheet: Sheet, tree: Tree, name: str) -> None:
    """The count of a SCSI disk holds harmless refusals too: only many in a short time say something."""
    risen = asked.past.rise(f"{name} errors", tree.number("device", "ioerr_cnt"))
    lately = asked.past.within(f"{name} errors", risen, HOUR_S)
    if lately > asked.limit("io_errors_per_hour"):
        text = f"Disk {name} counted {lately} errors in the last hour."
        sheet.stands(Trouble(code="disk-errors", place=name, evidence=text, fields={"device": name}))


def _array(sheet: Sheet, tree: Tree, name: str) -> None:
    missing = tree.number("degraded")
    if missing is not None and missing > 0:
        text = f"Array {name} lacks {missing} of its disks."
        sheet.stands(Trouble(code="raid-degraded", place=name, evidence=text, fields={"device": name}))


def _damaged(asked: Asked, sheet: Sheet, errors: int | None, name: str) -> None:
    """The count lies in the file system itself and goes on over starts of the machine."""
    risen = asked.past.rise(f"{name} ext4", errors, lasting=True)
    fields = {"device": name}
    if risen:
        text = f"The file system on {name} counted {risen} new errors, {errors} in all."
        sheet.happened(Trouble(code="filesystem-damaged", place=name, evidence=text, fields=fields))
    lately = asked.past.within(f"{name} ext4", risen, 24 * HOUR_S)
    if lately:
        text = f"The file system on {name} counted {lately} errors within a day."
        sheet.stands(Trouble(code="filesystem-damaged", place=name, evidence=text, silent=True, fields=fields))


def _mounts(asked: Asked, sheet: Sheet) -> None:
    found = mounts(asked.tree("proc"))
    if found is None:
        sheet.unknown("What is mounted cannot be read.")
        return
    on_disks = [mount for mount in found if mount.source.startswith("/dev/")]
    for mount in on_disks:
        key = f"{mount.source} on {mount.folder}"
        was_writable = asked.past.highest(f"{key} writable", 1 if mount.writable else None)
        if not mount.writable and was_writable:
            text = f"The file system {key} turned read-only."
            fields = {"device": mount.source.removeprefix("/dev/"), "folder": mount.folder}
            sheet.stands(Trouble(code="filesystem-read-only", place=key, evidence=text, fields=fields))
    sheet.measured |= {"mounts": len(on_disks), "read_only": sum(1 for mount in on_disks if not mount.writable)}
