"""Which processes belong to a host, and how is the whole host frozen? One control group for each host.

Works on both versions of control groups: with version 1 the freezer hierarchy, with version 2 the only one.
"""

from collections.abc import Iterator
from pathlib import Path

from tests.testbed.commands import wait_until

ROOT = Path("/sys/fs/cgroup")
VERSION_2 = (ROOT / "cgroup.controllers").exists()
HIERARCHY = ROOT if VERSION_2 else ROOT / "freezer"


class HostGroup:
    """The control group of one host: its own processes in `host`, those of its containers in `containers`."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.path = HIERARCHY / name

    @property
    def join_file(self) -> Path:
        """The file a new process of the host writes itself into."""
        return self.path / "host" / "cgroup.procs"

    @property
    def containers(self) -> str:
        """The parent the engine puts its containers below."""
        return f"/{self.name}/containers"

    def make(self) -> None:
        """Create the group."""
        self.join_file.parent.mkdir(parents=True, exist_ok=True)

    def freeze(self, below: str = "") -> None:
        """Stop every process where it stands; nothing reaches them, and with version 1 not even a kill."""
        self._set(below, frozen=True)

    def thaw(self, below: str = "") -> None:
        """Let them run on."""
        if (self.path / below).exists():
            self._set(below, frozen=False)

    def pids(self) -> Iterator[int]:
        """Return the processes of the host and of its containers, as ids of this machine."""
        for file in sorted(self.path.rglob("cgroup.procs")):
            try:
                yield from map(int, file.read_text().split())
            except OSError:
                continue

    def remove(self) -> None:
        """Remove the group from every hierarchy; its processes must have ended."""
        for folder in [ROOT / self.name, *ROOT.glob(f"*/{self.name}")]:
            for child in sorted((path for path in folder.rglob("*") if path.is_dir()), reverse=True):
                _remove_group(child)
            _remove_group(folder)

    def _set(self, below: str, *, frozen: bool) -> None:
        folder = self.path / below
        if VERSION_2:
            (folder / "cgroup.freeze").write_text("1" if frozen else "0")
            wanted, file = f"frozen {int(frozen)}", folder / "cgroup.events"
            wait_until(lambda: wanted in file.read_text(), limit_s=5, what=f"{folder}: {wanted}")
        else:
            wanted = "FROZEN" if frozen else "THAWED"
            file = folder / "freezer.state"
            file.write_text(wanted)
            wait_until(lambda: file.read_text().strip() == wanted, limit_s=5, what=f"{folder}: {wanted}")


def _remove_group(folder: Path) -> None:
    try:
        folder.rmdir()
    except OSError:
        return
