"""What runs inside the containers of the tests? Images made on this machine, without any registry, kept in the store.

The tag of an image is a digest of all that went into it, so it is made again exactly when something of that changed.
"""

import hashlib
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from docker.errors import APIError, ImageNotFound

from tests.testbed.commands import TestbedError, run
from tests.testbed.host import Host
from tests.testbed.runs import DISK, REPOSITORY

MIRROR = os.environ.get("STEPKEEPER_DEBIAN_MIRROR", "")  # when empty, debootstrap's own
SUITE = "bookworm"
PYTHON = (3, 11)
PACKAGES = "python3,python3-venv,iproute2"
DROPPED = ("var/cache/apt", "var/lib/apt/lists", "usr/share/doc", "usr/share/man", "usr/share/locale")
RECIPE = f"1 {SUITE} {PACKAGES} {DROPPED}"
BuilderHost = Callable[[], AbstractContextManager[Host]]


@dataclass(frozen=True)
class Image:
    """An image of the store, by the reference under which an engine that has it knows it."""

    reference: str

    def is_on(self, host: Host) -> bool:
        """Whether a host's engine has it."""
        try:
            host.docker.images.get(self.reference)
        except ImageNotFound:
            return False
        return True

    def copy(self, source: Host, target: Host) -> None:
        """Save it on one engine and load it on another, as a stream."""
        target.docker.api.load_image(source.docker.api.get_image(self.reference))


def base(builder: BuilderHost) -> Image:
    """Return the base image: a small Debian with Python, and `python` as a name for it."""

    def make(host: Host, reference: str) -> None:
        with _scratch() as folder:
            archive = folder / "rootfs.tar"
            _root_file_system(folder / "rootfs", archive)
            repository, tag = reference.split(":")
            changes = ["ENV PYTHONUNBUFFERED=1"]
            host.docker.api.import_image(src=str(archive), repository=repository, tag=tag, changes=changes)

    return _kept(builder, "base", digest_of([RECIPE.encode()]), make)


def example(builder: BuilderHost, name: str, requirements: Iterable[str]) -> Image:
    """Return the image of `examples/<name>`, built from its Dockerfile without a network from wheels fetched before."""
    source, trainer = REPOSITORY / "examples" / name, REPOSITORY / "reliability" / "trainer"
    below = base(builder)
    wanted = [*requirements]
    key = digest_of([below.reference.encode(), *map(str.encode, wanted), *_contents(source), *_contents(trainer)])

    def make(host: Host, reference: str) -> None:
        with _scratch() as folder:
            context = folder / "context"
            shutil.copytree(source, context, ignore=shutil.ignore_patterns("__pycache__"))
            collect_wheels(context / "wheels", wanted, trainer, folder)
            build(host, context, reference, below.reference)

    return _kept(builder, name.replace("_", "-"), key, make)


def build(host: Host, context: Path, reference: str, below: str) -> None:
    """Build a Dockerfile on a host's engine, without a network."""
    said: list[str] = []
    lines = host.docker.api.build(
        path=str(context),
        tag=reference,
        buildargs={"BASE": below},
        network_mode="none",
        rm=True,
        forcerm=True,
        decode=True,
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


def _kept(builder: BuilderHost, name: str, key: str, make: Callable[[Host, str], None]) -> Image:
    """Return the kept image of this key; make it, and drop older ones of the name, when there is none."""
    image = Image(f"stepkeeper-testbed/{name}:{key}")
    with builder() as host:
        if not image.is_on(host):
            make(host, image.reference)
            for old in host.docker.images.list(name=f"stepkeeper-testbed/{name}"):
                if image.reference not in old.tags:
                    _drop(host, old.id)
    return image


def _drop(host: Host, identity: str) -> None:
    """Remove an image, which waits for another time when a newer one is built upon it."""
    with suppress(APIError):
        host.docker.images.remove(identity, force=True)


def _root_file_system(root: Path, archive: Path) -> None:
    # In a mount namespace of its own: whatever ends it, no mount of it stays below a folder that will be deleted.
    run(
        [
            "unshare",
            "--mount",
            "--kill-child",
            "--fork",
            "debootstrap",
            "--variant=minbase",
            f"--include={PACKAGES}",
            SUITE,
            str(root),
            *MIRROR.split(),
        ],
        limit_s=600,
    )
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
