"""How far is a long copy? One line that is written over on a terminal, and nothing where there is none."""

import time
from typing import TextIO

from reliability.domain.sizes import spoken

WIDTH = 30
EVERY_S = 0.1


class Bar:
    """A bar for `total` bytes. Use it as a context manager and call `add` with the bytes that came."""

    def __init__(self, stream: TextIO, label: str, total: int) -> None:
        self._stream = stream
        self._label = label
        self._total = total
        self._done = 0
        self._began = time.monotonic()
        self._drawn_at = 0.0
        self._shown = stream.isatty()

    def __enter__(self) -> "Bar":
        return self

    def __exit__(self, *_error: object) -> None:
        if self._shown:
            self._stream.write("\r\x1b[K")
            self._stream.flush()

    def add(self, count: int) -> None:
        """Take note of more bytes; draw at most ten times a second."""
        self._done += count
        now = time.monotonic()
        if self._shown and now - self._drawn_at >= EVERY_S:
            self._drawn_at = now
            self._stream.write(f"\r\x1b[K{self.line(now - self._began)}")
            self._stream.flush()

    def line(self, elapsed_s: float) -> str:
        """Return what is shown after so many seconds."""
        share = min(self._done / self._total, 1.0) if self._total else 1.0
        filled = int(share * WIDTH)
        per_s = self._done / elapsed_s if elapsed_s > 0 else 0.0
        left = f", {(self._total - self._done) / per_s:.0f} s left" if per_s and share < 1 else ""
        bar = "#" * filled + "." * (WIDTH - filled)
        speed = f"{spoken(self._done)} of {spoken(self._total)}, {spoken(per_s)}/s{left}"
        return f"{self._label} [{bar}] {share:4.0%} {speed}"
