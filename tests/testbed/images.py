"""What runs inside the containers of the tests? Images made on this machine, without any image registry, and kept as files.

A file is named by a digest of everything that went into it, so it is made again exactly when something of that changed.
"""

import fcntl
import hashlib
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from docker.errors import ImageNotFound

from tests.testbed.commands import TestbedError, run
from tests.testbed.host import Host
from tests.testbed.runs import DISK, REPOSITORY

CACHE = REPOSITORY / "build" / "testbed"
MIRROR = os.environ.get("STEPKEEPER_DEBIAN_MIRROR", "http://deb.debian.org/debian")
SUITE = "bookworm"
PYTHON = (3, 11)
PACKAGES = "python3,python3-venv,iproute2"
DROPPED = ("var/cache/apt", "var/lib/apt/lists", "usr/share/doc", "usr/share/man", "usr/share/locale")
RECIPE = f"1 {SUITE} {PACKAGES} {DROPPED}"
BuilderHost = Callable[[], Host]


@dataclass(frozen=True)
class Image:
    """An image as a file, and the reference by which an engine that has loaded it knows it."""

    reference: str
    file: Path

    def is_on(self, host: Host) -> bool:
        """Whether a host's engine has it."""
        try:
            host.docker.images.get(self.reference)
        except ImageNotFound:
            return False
        return True

    def load_into(self, host: Host) -> None:
        """Load it into an engine unless it is there."""
        if not self.is_on(host):
            with self.file.open("rb") as content:
                host.docker.images.load(content)


def base(builder: BuilderHost) -> Image:
    """Return the base image: a small Debian with Python, and `python` as a name for it."""

    def make(reference: str) -> Host:
        host = builder()
        with _scratch() as folder:
            archive = folder / "rootfs.tar"
            _root_file_system(folder / "rootfs", archive)
            repository, tag = reference.split(":")
            changes = ["ENV PYTHONUNBUFFERED=1"]
            host.docker.api.import_image(src=str(archive), repository=repository, tag=tag, changes=changes)
        return host

    return _kept("base", digest_of([RECIPE.encode()]), make)


def example(builder: BuilderHost, name: str, requirements: Iterable[str]) -> Image:
    """Return the image of `examples/<name>`, built from its own Dockerfile without a network from wheels fetched before."""
    source, trainer = REPOSITORY / "examples" / name, REPOSITORY / "reliability" / "trainer"
    below = base(builder)
    wanted = [*requirements]
    key = digest_of([below.reference.encode(), *map(str.encode, wanted), *_contents(source), *_contents(trainer)])

    def make(reference: str) -> Host:
        host = builder()
        below.load_into(host)
        with _scratch() as folder:
            context = folder / "context"
            shutil.copytree(source, context, ignore=shutil.ignore_patterns("__pycache__"))
            collect_wheels(context / "wheels", wanted, trainer, folder)
            build(host, context, reference, below.reference)
        return host

    return _kept(name.replace("_", "-"), key, make)


def build(host: Host, context: Path, reference: str, below: str) -> None:
    """Build a Dockerfile on a host's engine, without a network."""
    said: list[str] = []
    lines = host.docker.api.build(
        path=str(context), tag=reference, buildargs={"BASE": below}, network_mode="none", rm=True, forcerm=True, decode=True
    )
    for line in lines:
        said.append(str(line.get("stream", "")))
        if "error" in line:
            raise TestbedError(f"{reference} cannot be built: {line['error']}\n{''.join(said)[-4000:]}")


def collect_wheels(target: Path, requirements: Iterable[str], trainer: Path, scratch: Path) -> None:
    """Fetch the wheels of what the image's Python needs, and build that of the trainer client."""
    target.mkdir()
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "-q"]
    other = [] if sys.version_info[:2] == PYTHON else ["--python-version", ".".join(map(str, PYTHON))]
    wanted = [*requirements]
    if wanted:
        run([*pip, "download", "--only-binary=:all:", *other, "-d", str(target), *wanted], limit_s=600)
    copy = scratch / "trainer"
    shutil.copytree(trainer, copy, ignore=shutil.ignore_patterns("__pycache__", "build", "*.egg-info"))
    run([*pip, "wheel", "--no-deps", "-w", str(target), str(copy)], limit_s=180)


def digest_of(parts: Iterable[bytes]) -> str:
    """Return a short digest of several parts."""
    total = hashlib.blake2b(digest_size=8)
    for part in parts:
        total.update(len(part).to_bytes(8, "little") + part)
    return total.hexdigest()


def _contents(folder: Path) -> Iterator[bytes]:
    for path in sorted(folder.rglob("*")):
        hidden = {"__pycache__", "build"} & set(path.parts[len(folder.parts) :])
        if path.is_file() and not hidden and ".egg-info" not in str(path):
            yield str(path.relative_to(folder)).encode()
            yield path.read_bytes()


def _kept(name: str, key: str, make: Callable[[str], Host]) -> Image:
    """Return the kept image of this key; make it, and drop older ones of the name, when there is none."""
    image = Image(f"stepkeeper-testbed/{name}:{key}", CACHE / f"{name}-{key}.tar")
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / f".{name}.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if image.file.exists():
            return image
        host = make(image.reference)
        part = image.file.with_suffix(".part")
        with part.open("wb") as file:
            for chunk in host.docker.api.get_image(image.reference):
                file.write(chunk)
        for old in CACHE.glob(f"{name}-{'?' * len(key)}.tar"):
            old.unlink()
        part.rename(image.file)
    return image


def _root_file_system(root: Path, archive: Path) -> None:
    run(["debootstrap", "--variant=minbase", f"--include={PACKAGES}", SUITE, str(root), MIRROR], limit_s=600)
    for path in DROPPED:
        shutil.rmtree(root / path, ignore_errors=True)
    for folder in ("var/cache/apt/archives/partial", "var/lib/apt/lists/partial"):
        (root / folder).mkdir(parents=True)
    (root / "usr/bin/python").symlink_to("python3")
    run(["tar", "-C", str(root), "--numeric-owner", "-cf", str(archive), "."], limit_s=120)


@contextmanager
def _scratch() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="stepkeeper-testbed-build-", dir=DISK) as folder:
        yield Path(folder)
