"""The kernel's own log, /dev/kmsg: one record a read, `priority,sequence,microseconds,flags;message`.

The place is the sequence number within one start of the machine. In another start of the machine the log is read from
its beginning: all of it was written since the agent ran last. Records that were overwritten before they were read are
counted by their missing sequence numbers. A line that a program wrote has another facility than the kernel's own (0);
only root can write one.
"""

import errno
import os
import re
import time
from pathlib import Path

from reliability.agent.collectors.sources import MOST_LINES, OLD_S, Look, Place, SourceLost

DEVICE = Path("/dev/kmsg")
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
RECORD_BYTES = 16384
_HEAD = re.compile(rb"(?P<priority>\d+),(?P<seq>\d+),(?P<at_us>\d+),[^;]*;(?P<message>[^\n]*)")
_ESCAPED = re.compile(rb"\\x([0-9a-f]{2})")
_KERNEL = 0
PASS_S = 5.0


class Kmsg:
    """The log behind a device file. `programs`: whether lines count that a program wrote."""

    def __init__(self, place: Place | None, *, path: Path = DEVICE, programs: bool = True) -> None:
        self._programs = programs
        self._boot = boot_id()
        try:
            self._device = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            os.lseek(self._device, 0, os.SEEK_SET)
        except OSError as error:
            raise SourceLost(f"{path} cannot be read: {error.strerror}.") from error
        self._caught_up = False
        self._seq: int | None = None
        if place is None:
            self._pass_over()
        elif place.get("boot") == self._boot:
            self._seq = int(place["seq"])

    @property
    def place(self) -> Place:
        """Start of the machine, and sequence number of the last record that was read (-1: none yet)."""
        return {"boot": self._boot, "seq": -1 if self._seq is None else self._seq}

    def handle(self) -> int | None:
        """Return the device."""
        return self._device

    def look(self) -> Look:
        """Return the records that are there now."""
        look = Look()
        for _ in range(MOST_LINES):
            record = self._record()
            if record is None:
                self._caught_up = True
                return look
            self._take(record, look)
        look.more = True
        return look

    def close(self) -> None:
        """Close the device."""
        os.close(self._device)

    def _pass_over(self) -> None:
        """Pass over what was written before the first start, at most for PASS_S."""
        end = time.monotonic() + PASS_S
        while not self._caught_up and time.monotonic() < end:
            self.look()
        self._caught_up = True

    def _record(self) -> bytes | None:
        while True:
            try:
                return os.read(self._device, RECORD_BYTES)
            except BlockingIOError:
                return None
            except OSError as error:
                if error.errno != errno.EPIPE:  # overwritten meanwhile: the next read gives the oldest there is
                    raise SourceLost(f"The kernel's log cannot be read: {error.strerror}.") from error

    def _take(self, record: bytes, look: Look) -> None:
        """Add a record to a look."""
        found = _HEAD.match(record)
        if found is None:
            return
        seq = int(found["seq"])
        if self._seq is not None and seq <= self._seq:
            return
        if self._seq is not None and self._seq >= 0 and seq > self._seq + 1:
            look.lost += seq - self._seq - 1
        self._seq = seq
        if not self._programs and int(found["priority"]) >> 3 != _KERNEL:
            return
        old = not self._caught_up and time.monotonic() - int(found["at_us"]) / 1e6 > OLD_S
        (look.old_lines if old else look.lines).append(_unescaped(found["message"]))


def boot_id() -> str:
    """Return what tells one start of this machine from the next."""
    try:
        return BOOT_ID.read_text().strip()
    except OSError:
        return ""


def _unescaped(message: bytes) -> bytes:
    if b"\\x" not in message:
        return message
    return _ESCAPED.sub(lambda found: bytes([int(found[1], 16)]), message).replace(b"\n", b" ")
