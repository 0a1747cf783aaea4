"""A log as it arrives: chunks of bytes in, blocks of whole lines out, with bounded memory whatever comes."""

LONGEST = 65_536
"""Bytes that are kept of a line. What is judged lies at its beginning, or behind its last carriage returns."""
_HEAD = LONGEST // 2
_CUT = b" ... "


class Lines:
    """Cuts a stream of bytes into blocks of whole lines."""

    def __init__(self) -> None:
        self._open = b""

    def feed(self, chunk: bytes) -> bytes:
        """Take the next bytes; return all lines that are complete now, b"" when there is none."""
        end = chunk.rfind(b"\n") + 1
        if not end:
            self._open = _shortened(self._open + chunk)
            return b""
        block, self._open = self._open + chunk[:end], _shortened(chunk[end:])
        return block

    def rest(self) -> bytes:
        """Return the last line when the stream ended without a line end, b"" otherwise."""
        left, self._open = self._open, b""
        return left


def _shortened(line: bytes) -> bytes:
    """Return an open line without its middle: its beginning, and what follows its last carriage return."""
    if len(line) <= LONGEST:
        return line
    last = line.rfind(b"\r", _HEAD)
    tail = line[last:][:_HEAD] if last >= 0 else b""
    return line[:_HEAD] + _CUT + tail
