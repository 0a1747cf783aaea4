"""Where are images kept between runs, and how do hosts get them? In one engine's data folder, whose layers all share.

Committed layers are never written again, so a host adopts them as hard links: in a second, and disk and page cache hold
them once, however many hosts there are. A lock keeps two runs from using the folder at the same time.
"""

import fcntl
import hashlib
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.testbed.commands import attempt, run
from tests.testbed.runs import REPOSITORY

FOLDER = REPOSITORY / "build" / "testbed"
ENGINE = FOLDER / "engine"
LAYERS = "overlay2"
IMAGES = Path("image") / LAYERS
NAMES = IMAGES / "repositories.json"


@contextmanager
def locked() -> Iterator[Path]:
    """Hold the store; yields its engine folder."""
    ENGINE.mkdir(parents=True, exist_ok=True)
    with (FOLDER / ".lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield ENGINE


def holds(store: Path, reference: str) -> bool:
    """Whether the store has an image in the form this module knows; other engines keep them otherwise."""
    return (store / LAYERS).exists() and bool(_identity(store, reference))


def adopt(store: Path, reference: str, engine: Path) -> None:
    """Add one image of the store to the folder of an engine that does not run."""
    identity = _identity(store, reference)
    content = IMAGES / "imagedb" / "content" / "sha256" / identity.removeprefix("sha256:")
    _copy(store, engine, content, linked=False)
    for chain in chains(json.loads((store / content).read_text())["rootfs"]["diff_ids"]):
        record = IMAGES / "layerdb" / "sha256" / chain.removeprefix("sha256:")
        layer = Path(LAYERS) / (store / record / "cache-id").read_text()
        _copy(store, engine, record, linked=False)
        _copy(store, engine, layer, linked=True)
        _copy(store, engine, Path(LAYERS) / "l" / (store / layer / "link").read_text(), linked=True)
    names = _names(engine)
    names.setdefault(reference.rpartition(":")[0], {})[reference] = identity
    (engine / NAMES).write_text(json.dumps({"Repositories": names}))


def chains(layers: Sequence[str]) -> Iterator[str]:
    """Return the chain id of each layer: the first is its own, each next one digests the chain below and its own."""
    chain = ""
    for layer in layers:
        chain = "sha256:" + hashlib.sha256(f"{chain} {layer}".encode()).hexdigest() if chain else layer
        yield chain


def _identity(store: Path, reference: str) -> str:
    return _names(store).get(reference.rpartition(":")[0], {}).get(reference, "")


def _names(engine: Path) -> dict[str, dict[str, str]]:
    file = engine / NAMES
    return dict(json.loads(file.read_text())["Repositories"]) if file.exists() else {}


def _copy(store: Path, engine: Path, path: Path, *, linked: bool) -> None:
    """Copy by links, or truly where links cannot reach (another file system); nothing where it is already."""
    target = engine / path
    if target.is_symlink() or target.exists():
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    if not (linked and attempt(["cp", "-al", str(store / path), str(target)], limit_s=120)):
        run(["cp", "-a", str(store / path), str(target)], limit_s=300)
