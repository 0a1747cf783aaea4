"""flip.py PID ADDRESS: change one bit in the memory of another process, as a failing memory cell would."""

import ctypes
import sys

LIBC = ctypes.CDLL(None, use_errno=True)


class Span(ctypes.Structure):
    """A piece of memory, as the kernel's `struct iovec`."""

    _fields_ = (("base", ctypes.c_void_p), ("length", ctypes.c_size_t))


def main() -> None:
    """Read the byte, flip its lowest bit, write it back."""
    pid, address = int(sys.argv[1]), int(sys.argv[2])
    byte = (ctypes.c_ubyte * 1)()
    here, there = Span(ctypes.addressof(byte), 1), Span(address, 1)
    for call in (LIBC.process_vm_readv, LIBC.process_vm_writev):
        if call is LIBC.process_vm_writev:
            byte[0] ^= 1
        if call(pid, ctypes.byref(here), 1, ctypes.byref(there), 1, 0) != 1:
            sys.exit(f"process {pid}: error {ctypes.get_errno()}")


if __name__ == "__main__":
    main()
