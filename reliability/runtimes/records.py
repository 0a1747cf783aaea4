"""What does the process runtime remember of its containers? One folder each, so that a new agent finds them."""

import json
import os
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from reliability.runtimes.process_table import ProcessKey

EXIT_WHEN_SHIM_WAS_KILLED = 137


@dataclass(frozen=True, kw_only=True)
class Record:
    """One container: its instance, the shim that watches it, and its main process."""

    name: str
    instance: str
    labels: Mapping[str, str]
    shim: ProcessKey
    main: ProcessKey

    @property
    def running(self) -> bool:
        """The shim ends last of all, so it tells whether anything of the container still runs."""
        return self.shim.alive


class Records:
    """The records below one folder: `<name>/record.json`, `exit.json` and `output.log`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def folder_of(self, name: str) -> Path:
        """Return the folder of a container."""
        return self.folder / name

    def log_of(self, name: str) -> Path:
        """Return the file that takes the output of a container."""
        return self.folder / name / "output.log"

    def exit_of(self, name: str) -> Path:
        """Return the file in which the shim leaves the exit code."""
        return self.folder / name / "exit.json"

    def prepare(self, name: str) -> None:
        """Make an empty folder for a new container."""
        self.remove(name)
        folder = self.folder_of(name)
        folder.mkdir()
        self.exit_of(name).touch()
        self.log_of(name).touch()

    def write(self, record: Record) -> None:
        """Keep a record; a reader sees all of it or nothing."""
        target = self.folder_of(record.name) / "record.json"
        temporary = target.with_suffix(".part")
        temporary.write_text(json.dumps(asdict(record)))
        temporary.rename(target)

    def read(self, name: str) -> Record | None:
        """Return the record of a container, None when there is none that can be read."""
        try:
            raw = json.loads((self.folder_of(name) / "record.json").read_text())
        except (OSError, ValueError):
            return None
        shim, main = ProcessKey(**raw.pop("shim")), ProcessKey(**raw.pop("main"))
        return Record(shim=shim, main=main, **raw)

    def __iter__(self) -> Iterator[Record]:
        for path in sorted(self.folder.glob("*/record.json")):
            record = self.read(path.parent.name)
            if record:
                yield record

    def remove(self, name: str) -> None:
        """Forget a container."""
        shutil.rmtree(self.folder_of(name), ignore_errors=True)

    def exit_code(self, name: str) -> int:
        """Return the exit code of a container that has ended."""
        try:
            descriptor = os.open(self.exit_of(name), os.O_RDONLY)
        except OSError:
            return EXIT_WHEN_SHIM_WAS_KILLED
        try:
            return read_exit_code(descriptor)
        finally:
            os.close(descriptor)


def read_exit_code(descriptor: int) -> int:
    """Return the exit code from an open exit file, also when its name is gone; empty: the shim was killed."""
    content = os.pread(descriptor, 4096, 0)
    return int(json.loads(content)["exit_code"]) if content else EXIT_WHEN_SHIM_WAS_KILLED
