"""How does a host get a small disk of its own that can be full, or turn read-only as the kernel does it?"""

from pathlib import Path

from tests.testbed.fleet import Fleet

MIB = 2**20


class Disk:
    """An ext4 file system in an image file, mounted in a folder of one host. It is gone with the host's power."""

    def __init__(self, fleet: Fleet, host: str, folder: Path, image: Path, *, size: int) -> None:
        self._fleet = fleet
        self._host = host
        self.folder = folder
        with image.open("wb") as file:
            file.truncate(size)
        folder.mkdir(parents=True, exist_ok=True)
        self._run("mkfs.ext4", "-q", "-m", "0", str(image))
        self._run("mount", "-o", "loop,errors=remount-ro", str(image), str(folder))
        self._run("chmod", "1777", str(folder))

    def fill(self) -> None:
        """Take all the room that is left."""
        filler = self.folder / "filler"
        self._run(
            "sh", "-c", f"dd if=/dev/zero of={filler} bs=1M 2>/dev/null; dd if=/dev/zero of={filler}2 bs=4k; true"
        )

    def free(self) -> None:
        """Give that room back."""
        self._run("rm", "-f", str(self.folder / "filler"), str(self.folder / "filler2"))

    def fail(self) -> None:
        """Have the file system find an error in itself: it turns read-only, and the kernel says so."""
        self._run("sh", "-c", f"mount -o remount,abort {self.folder} || true")

    def repair(self) -> None:
        """Have it written to again: it is mounted anew, as after a repair."""
        device = self._run("findmnt", "-n", "-o", "SOURCE", str(self.folder)).strip()
        self._run("umount", str(self.folder))
        self._run("mount", "-o", "loop", device, str(self.folder))

    def remove(self) -> None:
        """Take it away; what lay in the folder before is seen again."""
        self._run("umount", "-l", str(self.folder))

    def _run(self, *argv: str) -> str:
        return self._fleet.run(self._host, argv, limit_s=60)
