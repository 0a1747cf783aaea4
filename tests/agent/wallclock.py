"""A wall clock that a test sets while the programs run that were started with it; other clocks stay as they are."""

import shutil
import struct
import subprocess
from pathlib import Path

import pytest

CLOCK = Path(__file__).with_name("wall_clock.c")


class Wall:
    """The wall clock of the processes that were started with it."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / "ahead"
        self.library = folder / "wall_clock.so"
        compiler = shutil.which("gcc") or shutil.which("cc")
        if compiler is None:
            pytest.skip("there is no C compiler")
        subprocess.run([compiler, "-shared", "-fPIC", "-o", str(self.library), str(CLOCK)], check=True, timeout=60)
        self.set_ahead(0)

    def set_ahead(self, seconds: int) -> None:
        """Have the clock be set, in all of them at once."""
        with self._file.open("r+b" if self._file.exists() else "wb", buffering=0) as file:
            file.write(struct.pack("<q", seconds))

    @property
    def environment(self) -> dict[str, str]:
        return {"LD_PRELOAD": str(self.library), "WALL_CLOCK_AHEAD": str(self._file)}
