"""What every storage tier must do, whatever it is made of."""

import hashlib
import os
import secrets
import socket
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import obstore
import pytest
from obstore.store import MemoryStore

from reliability.domain.snapshots import EpochStart, SnapshotId
from reliability.errors import CopyMissing, DigestMismatch, InvalidInput, TierConflict, TierUnreachable
from reliability.ports import TierStore
from reliability.tiers import choosing, lines, owners
from reliability.tiers.bucket import Bucket
from reliability.tiers.directory import DirectoryTier
from reliability.tiers.object_store import ObjectTier
from reliability.tiers.owners import OWNER_NAME, SPARE_NAME
from tests.stores.azurite import CONTAINER, FOLDER, Azurite
from tests.stores.s3 import S3Server

Source = Callable[[bytes], tuple[Path, str]]


@dataclass
class Place:
    """A tier under test and a hand to damage what it stores."""

    tier: TierStore
    flip: Callable[[], None]


def _directory(tmp_path: Path, owner: str) -> Place:
    folder = tmp_path / "tier"

    def flip() -> None:
        [stored] = folder.rglob("*.snap")
        stored.write_bytes(b"y" + stored.read_bytes()[1:])

    return Place(DirectoryTier(folder, owner=owner), flip)


def _s3(server: S3Server, url: str) -> Place:
    def flip() -> None:
        [stored] = [path for path in server.paths() if path.endswith("/000000")]
        server.write(stored, b"y" + server.read(stored)[1:])

    return Place(choosing.job_tier(url, "lm", owner="node-a"), flip)


def _memory() -> Place:
    """A store whose tags say nothing of the content, as those of GCS and Azure."""
    store = MemoryStore()

    def flip() -> None:
        found = [each["path"] for page in obstore.list(store, prefix="parts") for each in page]
        [stored] = [path for path in found if path.endswith("/000000")]
        obstore.put(store, stored, b"y" + bytes(obstore.get(store, stored).bytes())[1:])

    return Place(ObjectTier(Bucket("gs://bucket/lm", store), owner="node-a", part_bytes=2**20), flip)


@pytest.fixture(scope="session")
def azurite() -> Iterator[Azurite]:
    server = Azurite()
    yield server
    server.stop()


def _azure(server: Azurite, monkeypatch: pytest.MonkeyPatch) -> Place:
    for name, value in server.environment.items():
        monkeypatch.setenv(name, value)
    url = f"az://{CONTAINER}/{secrets.token_hex(4)}"
    bucket = Bucket(f"{url}/lm")

    def flip() -> None:
        [stored] = [each.path for each in bucket.listed("parts") if each.path.endswith("/000000")]
        bucket.put(stored, b"y" + bucket.get(stored)[1:])

    return Place(choosing.job_tier(url, "lm", owner="node-a"), flip)


WITH_AZURE = ["azure"] if FOLDER else []


@pytest.fixture(params=["directory", "directory of a named owner", "s3", "memory", *WITH_AZURE])
def place(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    if request.param == "azure":
        return _azure(request.getfixturevalue("azurite"), monkeypatch)
    if request.param == "s3":
        return _s3(request.getfixturevalue("s3"), request.getfixturevalue("s3_url"))
    if request.param == "memory":
        return _memory()
    return _directory(tmp_path, "node-a" if "owner" in request.param else "")


@pytest.fixture
def tier(place: Place) -> TierStore:
    return place.tier


@pytest.fixture
def source(tmp_path: Path) -> Source:
    def make(content: bytes) -> tuple[Path, str]:
        path = tmp_path / f"source-{len(content)}"
        path.write_bytes(content)
        return path, f"blake2b:{hashlib.blake2b(content, digest_size=16).hexdigest()}"

    return make


@pytest.mark.parametrize("size", [0, 1, 4 * 2**20, 9 * 2**20 + 17])
def test_what_was_put_can_be_got_byte_for_byte(tier: TierStore, source: Source, tmp_path: Path, size: int) -> None:
    path, digest = source(os.urandom(size))
    assert tier.put(path, "e1-s10-r0", digest=digest) == size
    assert tier.get("e1-s10-r0", tmp_path / "back", digest=digest) == size
    assert (tmp_path / "back").read_bytes() == path.read_bytes()


def test_keys_are_sorted_and_of_one_prefix(tier: TierStore, source: Source) -> None:
    path, digest = source(b"x")
    for key in ("e2/s1-r0", "e1/s9-r0", "e1/s10-r1"):
        tier.put(path, key, digest=digest)
    assert list(tier.keys("e1/")) == ["e1/s10-r1", "e1/s9-r0"]
    assert len(tier.keys("")) == 3


def test_an_empty_tier_has_no_keys(tier: TierStore) -> None:
    assert list(tier.keys("")) == []


def test_content_that_is_not_what_was_committed_is_not_taken_and_leaves_nothing(
    tier: TierStore, source: Source, tmp_path: Path
) -> None:
    path, _ = source(b"good")
    _, other = source(b"other")
    with pytest.raises(DigestMismatch):
        tier.put(path, "e1-s1-r0", digest=other)
    assert list(tier.keys("")) == []
    with pytest.raises(CopyMissing):
        tier.get("e1-s1-r0", tmp_path / "back", digest=other)


def test_a_stored_file_that_was_damaged_is_not_handed_out(place: Place, source: Source, tmp_path: Path) -> None:
    path, digest = source(b"x" * 1000)
    place.tier.put(path, "e1-s1-r0", digest=digest)
    place.flip()
    with pytest.raises(DigestMismatch):
        place.tier.get("e1-s1-r0", tmp_path / "back", digest=digest)
    with pytest.raises(DigestMismatch):
        list(place.tier.pieces("e1-s1-r0"))
    assert not (tmp_path / "back").exists()


def test_what_was_kept_beside_a_shard_comes_back_with_size_and_digest(tier: TierStore, source: Source) -> None:
    path, digest = source(b"x" * 10)
    tier.put(path, "e1/s1-r0", digest=digest, record={"step": 1, "stall_s": 0.5})
    record = tier.record("e1/s1-r0")
    assert (record["size_bytes"], record["digest"], record["step"], record["stall_s"]) == (10, digest, 1, 0.5)
    assert b"".join(tier.pieces("e1/s1-r0")) == b"x" * 10
    assert tier.place("e1/s1-r0").endswith("/e1/s1-r0.snap")


def test_a_place_is_of_the_job_that_came_first(tier: TierStore, source: Source) -> None:
    tier.claim("first", ranks=2)
    tier.claim("first", ranks=2)
    with pytest.raises(TierConflict, match="another job"):
        tier.claim("second", ranks=2)
    path, digest = source(b"x" * 10)
    tier.put(path, "e1/s1-r0", digest=digest)
    tier.claim("first", ranks=2)
    assert tier.ranks() == 2
    assert list(tier.keys("")) == ["e1/s1-r0"]


@pytest.mark.parametrize("damage", [b"", b"{", b"\0" * 80], ids=["emptied", "cut", "zeros"])
@pytest.mark.parametrize("name", [OWNER_NAME, SPARE_NAME])
def test_a_damaged_word_of_whose_place_it_is_is_written_again(
    tier: TierStore, source: Source, name: str, damage: bytes
) -> None:
    place = cast(owners.Place, tier)
    tier.claim("first", ranks=2)
    path, digest = source(b"x" * 10)
    tier.put(path, "e1/s1-r0", digest=digest)
    good = place.said(name)
    place.say(name, damage, anew=True)
    assert tier.ranks() == 2
    with pytest.raises(TierConflict, match="another job"):
        tier.claim("second", ranks=2)
    assert place.said(name) == damage
    tier.claim("first", ranks=2)
    assert place.said(name) == good


def test_a_place_of_which_all_word_is_damaged_is_told_as_damaged_not_as_anothers(
    tier: TierStore, source: Source
) -> None:
    place = cast(owners.Place, tier)
    tier.claim("first", ranks=2)
    path, digest = source(b"x" * 10)
    tier.put(path, "e1/s1-r0", digest=digest)
    for name in (OWNER_NAME, SPARE_NAME):
        place.say(name, b"", anew=True)
    with pytest.raises(owners.OwnerDamaged, match=r"owner\.json and owner-again\.json are empty or damaged") as told:
        tier.claim("first", ranks=2)
    assert "backup" in told.value.hint
    tier.delete("e1/s1-r0")
    tier.claim("first", ranks=2)
    assert tier.ranks() == 2, "where no shard lies, nothing is at stake"


def test_shards_of_nobody_knows_whom_are_nobodys_to_take(tier: TierStore, source: Source) -> None:
    path, digest = source(b"x" * 10)
    tier.put(path, "e1/s1-r0", digest=digest)
    with pytest.raises(TierConflict, match="whose"):
        tier.claim("first", ranks=2)


def test_a_record_that_is_called_is_called_when_the_shard_is_there(tier: TierStore, source: Source) -> None:
    path, digest = source(b"x" * 10)
    called: list[int] = []

    def record() -> dict[str, int]:
        called.append(len(tier.keys("")))
        return {"step": 7}

    tier.put(path, "e1/s1-r0", digest=digest, record=record)
    assert called == [0], "once, and before it counts"
    assert tier.record("e1/s1-r0")["step"] == 7


def test_how_attempts_began_is_kept_once_and_tells_the_line_that_goes_on(tier: TierStore) -> None:
    assert list(tier.starts()) == []
    tier.note_start(EpochStart(epoch=3, restored=SnapshotId(2, 40)))
    tier.note_start(EpochStart(epoch=3, restored=SnapshotId(9, 9)))
    tier.note_start(EpochStart(epoch=4, restored=SnapshotId(3, 60)))
    assert lines.ceilings(tier.starts()) == {4: None, 3: 60, 2: 40}
    assert list(tier.keys("")) == []


@pytest.mark.parametrize("kind", ["folder", "s3"])
def test_a_limit_of_bandwidth_holds_on_every_tier(
    kind: str, request: pytest.FixtureRequest, source: Source, tmp_path: Path
) -> None:
    (tmp_path / "storage").mkdir()
    address = str(request.getfixturevalue("s3_url")) if kind == "s3" else str(tmp_path / "storage")
    path, digest = source(bytes(20 * 2**20))
    began = time.monotonic()
    choosing.job_tier(address, "lm", bytes_per_s=32 * 2**20).put(path, "e1/s1-r0", digest=digest)
    assert time.monotonic() - began > 0.45, "all but the last piece, 16 MiB at least, take their time"


def test_sweeping_leaves_what_is_committed(tier: TierStore, source: Source, tmp_path: Path) -> None:
    path, digest = source(b"x" * 10)
    tier.put(path, "e1/s1-r0", digest=digest)
    assert tier.sweep() == 0
    assert tier.get("e1/s1-r0", tmp_path / "back", digest=digest) == 10


def test_a_key_stored_again_with_other_content_is_replaced_whole(
    tier: TierStore, source: Source, tmp_path: Path
) -> None:
    first, first_digest = source(b"first")
    second, second_digest = source(b"second, longer")
    tier.put(first, "e1-s1-r0", digest=first_digest)
    tier.put(second, "e1-s1-r0", digest=second_digest)
    tier.get("e1-s1-r0", tmp_path / "back", digest=second_digest)
    assert (tmp_path / "back").read_bytes() == b"second, longer"


def test_deleting_is_final_and_may_be_repeated(tier: TierStore, source: Source, tmp_path: Path) -> None:
    path, digest = source(b"x")
    tier.put(path, "e1-s1-r0", digest=digest)
    tier.delete("e1-s1-r0")
    tier.delete("e1-s1-r0")
    assert list(tier.keys("")) == []
    with pytest.raises(CopyMissing):
        tier.get("e1-s1-r0", tmp_path / "back", digest=digest)


@pytest.mark.parametrize("key", ["../e1", "/etc/passwd", "", "a/../b", ".hidden", "a//b", "a/"])
def test_a_key_that_could_leave_the_tier_is_refused(tier: TierStore, source: Source, key: str) -> None:
    path, digest = source(b"x")
    with pytest.raises(InvalidInput, match="key"):
        tier.put(path, key, digest=digest)


def test_a_source_that_is_gone_is_named(tier: TierStore, tmp_path: Path) -> None:
    with pytest.raises(CopyMissing, match="nowhere"):
        tier.put(tmp_path / "nowhere", "e1-s1-r0", digest="blake2b:00")


@pytest.mark.parametrize("kind", ["folder", "link", "pipe", "socket"])
def test_a_source_that_is_no_file_is_a_copy_that_is_gone(tier: TierStore, tmp_path: Path, kind: str) -> None:
    source = tmp_path / "e1-s1-r0.snap"
    match kind:
        case "folder":
            source.mkdir()
        case "link":
            (tmp_path / "secret").write_bytes(b"x")
            source.symlink_to(tmp_path / "secret")
        case "pipe":
            os.mkfifo(source)
        case "socket":
            with socket.socket(socket.AF_UNIX) as bound:
                bound.bind(str(source))
    with pytest.raises(CopyMissing, match="not a regular file"):
        tier.put(source, "e1-s1-r0", digest="blake2b:00")
    assert list(tier.keys("")) == []


@pytest.mark.parametrize("jump_s", [-3600.0, 3600.0])
def test_a_copy_under_way_is_not_swept_when_the_clock_of_the_node_jumps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, jump_s: float
) -> None:
    part = tmp_path / "tier" / "e1-s1-r0.snap.node-b.part"
    part.parent.mkdir()
    part.write_bytes(b"x")
    now = time.time()
    monkeypatch.setattr("time.time", lambda: now + 2 * jump_s)
    tier = DirectoryTier(tmp_path / "tier", owner="node-a")
    assert tier.sweep() == 0
    os.utime(part, (now - 4000, now - 4000))
    assert tier.sweep() == 1
    assert list((tmp_path / "tier").iterdir()) == []


def test_bytes_without_a_commit_record_do_not_exist(tmp_path: Path) -> None:
    tier = DirectoryTier(tmp_path / "tier")
    (tmp_path / "tier").mkdir()
    (tmp_path / "tier" / "e1-s1-r0.snap").write_bytes(b"x")
    assert list(tier.keys("")) == []
    with pytest.raises(CopyMissing):
        tier.record("e1-s1-r0")


def test_a_tier_whose_parent_is_missing_is_not_made_on_the_local_disk(tmp_path: Path, source: Source) -> None:
    path, digest = source(b"x")
    with pytest.raises(TierUnreachable, match="not-mounted"):
        DirectoryTier(tmp_path / "not-mounted" / "lm").put(path, "e1-s1-r0", digest=digest)
    assert not (tmp_path / "not-mounted").exists()
