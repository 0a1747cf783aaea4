"""What every storage tier must do, whatever it is made of."""

import hashlib
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from reliability.errors import CopyMissing, DigestMismatch, InvalidInput, TierUnreachable
from reliability.ports import TierStore
from reliability.tiers.directory import DirectoryTier

Source = Callable[[bytes], tuple[Path, str]]


@pytest.fixture(params=["directory", "directory of a named owner"])
def tier(request: pytest.FixtureRequest, tmp_path: Path) -> TierStore:
    return DirectoryTier(tmp_path / "tier", owner="node-a" if "owner" in request.param else "")


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


def test_a_stored_file_that_was_damaged_is_not_handed_out(tier: TierStore, source: Source, tmp_path: Path) -> None:
    path, digest = source(b"x" * 1000)
    tier.put(path, "e1-s1-r0", digest=digest)
    stored = tmp_path / "tier" / "e1-s1-r0.snap"
    stored.write_bytes(b"y" + stored.read_bytes()[1:])
    with pytest.raises(DigestMismatch):
        tier.get("e1-s1-r0", tmp_path / "back", digest=digest)
    assert not (tmp_path / "back").exists()


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
