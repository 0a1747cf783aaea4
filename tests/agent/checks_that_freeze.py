"""A host of checks of which one stands still in a way that no kill ends, until it is let go.

It asks a file system whose server takes the question and never answers (FUSE). The kernel then waits as it does for a
driver that hangs: a kill works once the server is gone. No kind of control group does that on every machine.
"""

import contextlib
import ctypes
import os
import select
import struct
import threading
from pathlib import Path
from types import TracebackType

from reliability.agent.collectors import check_host, checks
from reliability.agent.collectors.attending import attend
from reliability.agent.collectors.checking import Check, Inputs, Outcome

LIBC = ctypes.CDLL(None, use_errno=True)
MNT_DETACH = 2
DEVICE = os.makedev(10, 229)
# linux/fuse.h: heads of a question and of an answer, and the answer to the first question (version 7.31)
QUESTION = struct.Struct("=IIQQIIII")
ANSWER = struct.Struct("=IiQ")
GREETING = struct.Struct("=IIIIHHIIHHI28x")
INIT, INTERRUPT = 26, 36
LARGEST = 1 << 20


class SilentServer:
    """A mounted file system, and who asked it something. As soon as this process is gone, nobody waits for it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "asked"
        self.asked: set[int] = set()
        self._device = folder / "fuse"
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._take)
        self._handle = -1

    def let_go(self) -> None:
        """End the server: who waits for it gets an error."""
        self._ends.set()
        self._thread.join()
        if self._handle >= 0:
            os.close(self._handle)
            self._handle = -1

    def __enter__(self) -> "SilentServer":
        self.folder.mkdir()
        os.mknod(self._device, 0o600 | 0o020000, DEVICE)
        self._handle = os.open(self._device, os.O_RDWR | os.O_CLOEXEC)
        options = f"fd={self._handle},rootmode=40000,user_id=0,group_id=0".encode()
        if LIBC.mount(b"silent", os.fsencode(self.folder), b"fuse", 0, options) != 0:
            os.close(self._handle)
            raise OSError(ctypes.get_errno(), "a file system in user space cannot be mounted")
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.let_go()
        LIBC.umount2(os.fsencode(self.folder), MNT_DETACH)

    def _take(self) -> None:
        while not self._ends.is_set():
            if not select.select([self._handle], [], [], 0.1)[0]:
                continue
            with contextlib.suppress(FileNotFoundError):  # the question was taken back
                _, sort, number, _, _, _, pid, _ = QUESTION.unpack_from(os.read(self._handle, LARGEST + 4096))
                if sort == INIT:
                    greeting = GREETING.pack(7, 31, 0, 0, 0, 0, LARGEST, 1, 0, 0, 0)
                    os.write(self._handle, ANSWER.pack(ANSWER.size + len(greeting), 0, number) + greeting)
                elif sort != INTERRUPT:
                    self.asked.add(pid)


def _asking(inputs: Inputs) -> Outcome:
    with contextlib.suppress(OSError):
        os.listdir(inputs.facts["silent"])  # noqa: PTH208
    return Outcome(ok=True)


def _counting(inputs: Inputs) -> Outcome:
    runs = int(inputs.state.get("runs", 0)) + 1
    return Outcome(ok=True, measured={"runs": runs}, state={"runs": runs})


CHECKS = (
    Check(name="asking", run=_asking, period_s=0.2, limit_s=1.0),
    Check(name="counting", run=_counting, period_s=0.2, limit_s=30.0),
)

if __name__ == "__main__":
    checks.CHECKS = CHECKS
    attend(check_host.serve)
