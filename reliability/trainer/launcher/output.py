"""Where does the output of a rank go?

Through a pipe that the launcher empties into a log file. A rank that wrote to the file itself would fail in
`print` when the memory tier, where the log lies, is full; this way training does not notice.
"""

import contextlib
import fcntl
import os
from pathlib import Path

TAIL_BYTES = 4096
LOG_BYTES = 16 * 1024 * 1024
_PIPE_BYTES = 1024 * 1024
_READ_BYTES = 256 * 1024


class RankOutput:
    """The pipe of one rank, its log file, and the last bytes it printed."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._tail = b""
        self._logged = 0
        self.ended = False  # the rank and all its children closed their side
        self.read_end, self.write_end = os.pipe2(os.O_CLOEXEC)
        os.set_blocking(self.read_end, False)
        with contextlib.suppress(OSError):  # a user's limit on pipe memory; the usual 64 KiB do as well
            fcntl.fcntl(self.read_end, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
        self._write(b"", mode="wb")

    @property
    def tail(self) -> str:
        """The end of what was printed."""
        return self._tail.decode("utf-8", "replace")

    def started(self) -> None:
        """Close the rank's side in the launcher, once the rank has it."""
        os.close(self.write_end)

    def drain(self, *, whole: bool = False) -> None:
        """Take over what was printed: one piece, or all there is."""
        while not self.ended:
            try:
                data = os.read(self.read_end, _READ_BYTES)
            except BlockingIOError:
                return
            self.ended = not data
            self._tail = (self._tail + data)[-TAIL_BYTES:]
            self._keep(data)
            if not whole:
                return

    def note(self, text: str) -> None:
        """Add a line of the launcher's own."""
        data = f"{text}\n".encode()
        self._tail = (self._tail + data)[-TAIL_BYTES:]
        self._keep(data)

    def close(self) -> None:
        """Let go of the pipe."""
        os.close(self.read_end)

    def _keep(self, data: bytes) -> None:
        """Append to the log; keep one older part, so that a talkative rank cannot fill the memory tier."""
        if self._logged + len(data) > LOG_BYTES:
            with contextlib.suppress(OSError):
                self._path.replace(self._path.with_suffix(".old.log"))
            self._logged = 0
        self._write(data, mode="ab")
        self._logged += len(data)

    def _write(self, data: bytes, *, mode: str) -> None:
        """A full memory tier costs log lines, never the run."""
        with contextlib.suppress(OSError), self._path.open(mode, buffering=0) as log:
            log.write(data)
