"""Run a program as it is, and break its rank for real when a file beside this one asks for it: once for each file."""

import ctypes
import mmap
import os
import runpy
import sys
import threading
import time
import traceback
from pathlib import Path


def segfault() -> None:
    """Read where there is nothing."""
    ctypes.string_at(0)


def bus_error() -> None:
    """Touch more of the shared memory than there is."""
    there = os.statvfs("/dev/shm")
    size = 4 * there.f_blocks * there.f_frsize
    with Path("/dev/shm/too-large").open("w+b") as file:
        file.truncate(size)
        view = mmap.mmap(file.fileno(), size)
        for place in range(0, size, mmap.PAGESIZE):
            view[place] = 1


def memory() -> None:
    """Take memory until the kernel refuses by force."""
    taken = []
    while True:
        taken.append(bytearray(os.urandom(1) * (16 * 2**20)))


def write() -> None:
    """Write to a disk until it takes no more, and end as a program does that did not expect it."""
    try:
        with Path("/disk/filler").open("wb", buffering=0) as file:
            while True:
                file.write(bytes(2**20))
    except OSError:
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(1)


BREAKS = {"segfault": segfault, "bus-error": bus_error, "memory": memory, "write": write}


def watch(asked: Path) -> None:
    """Wait for the wish, take it away so that the next attempt is well, and break."""
    while not asked.exists():
        time.sleep(0.02)
    how = asked.read_text()
    asked.unlink()
    BREAKS[how]()


if __name__ == "__main__":
    wish = Path(__file__).with_name(f"break-{os.environ['RANK']}")
    threading.Thread(target=watch, args=(wish,), daemon=True).start()
    sys.argv = sys.argv[1:]
    sys.path.insert(0, str(Path(sys.argv[0]).parent))
    runpy.run_path(sys.argv[0], run_name="__main__")
