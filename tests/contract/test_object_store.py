"""What only an object store has: parts, manifests that several nodes write, troubles of the network, secrets."""

import hashlib
import io
import logging
import os
import threading
import traceback
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import obstore
import pytest
from obstore.store import MemoryStore

from reliability.domain.snapshots import EpochStart, SnapshotId
from reliability.errors import (
    CopyMissing,
    DigestMismatch,
    InvalidInput,
    TierConflict,
    TierError,
    TierFull,
    TierUnreachable,
)
from reliability.tiers import bucket, choosing, manifests
from reliability.tiers.bucket import Bucket
from reliability.tiers.directory import DirectoryTier
from reliability.tiers.object_store import ObjectTier
from reliability.tiers.pacing import Pace
from tests.stores.s3 import BUCKET, SECRET, S3Server, forbidden, full, skewed

Stored = Callable[..., ObjectTier]
KEY = "e1/s10-r0"
PART = 256 * 1024
CONTENT = os.urandom(PART) * 3 + b"the end"


def digest_of(content: bytes) -> str:
    return f"blake2b:{hashlib.blake2b(content, digest_size=16).hexdigest()}"


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(bucket.RETRIES, "max_retries", 0)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "source"
    path.write_bytes(CONTENT)
    return path


@pytest.fixture
def tier(s3_url: str) -> ObjectTier:
    return ObjectTier(Bucket(f"{s3_url}/lm"), owner="node-a", part_bytes=PART)


def other(tier: ObjectTier, owner: str) -> ObjectTier:
    return ObjectTier(Bucket(tier.bucket.url), owner=owner, part_bytes=PART)


def parts_sent(s3: S3Server) -> int:
    return sum(method == "PUT" and "/parts/" in path and "record" not in path for method, path in s3.requests)


def test_a_shard_is_parts_and_a_manifest_that_was_written_last(tier: ObjectTier, s3: S3Server, source: Path) -> None:
    assert tier.put(source, KEY, digest=digest_of(CONTENT)) == len(CONTENT)
    assert [method for method, path in s3.requests if "/manifests/" in path][-1] == "PUT"
    assert [path for method, path in s3.requests if method == "PUT"][-1].endswith("/manifests/e1/s10.json")
    assert len([path for path in s3.paths() if "/parts/e1/s10-r0/" in path]) == 5


def test_only_what_the_manifest_lists_exists(tier: ObjectTier, s3: S3Server, source: Path, tmp_path: Path) -> None:
    tier.put(source, KEY, digest=digest_of(CONTENT))
    s3.write("team/lm/parts/e1/s10-r1/0000000000000000.node-b/000000", b"four")
    s3.remove("team/lm/manifests/e1/s10.json")
    assert list(tier.keys("")) == []
    for key in (KEY, "e1/s10-r1"):
        with pytest.raises(CopyMissing):
            tier.get(key, tmp_path / "back", digest=digest_of(CONTENT))


def test_a_try_that_was_cut_off_is_taken_up_where_it_ended(tier: ObjectTier, s3: S3Server, source: Path) -> None:
    def fail_at_the_third(environ: dict[str, str]) -> tuple[str, bytes] | None:
        return ("503 Slow Down", b"") if environ["PATH_INFO"].endswith("000002") else None

    with s3.troubled(fail_at_the_third), pytest.raises(TierUnreachable):
        tier.put(source, KEY, digest=digest_of(CONTENT))
    assert list(tier.keys("")) == []
    s3.requests.clear()
    again = other(tier, "node-a")
    assert again.sweep(wanted=[KEY]) == 0, "what is still to be stored is not swept"
    again.put(source, KEY, digest=digest_of(CONTENT))
    assert parts_sent(s3) < 4
    assert b"".join(again.pieces(KEY)) == CONTENT


def test_a_part_that_was_damaged_before_the_try_was_taken_up_is_sent_again(
    tier: ObjectTier, s3: S3Server, source: Path
) -> None:
    tier.put(source, KEY, digest=digest_of(CONTENT))
    s3.remove("team/lm/manifests/e1/s10.json")
    path = s3.paths("team/lm/parts/")[1]
    s3.write(path, bytes(PART))
    s3.requests.clear()
    tier.put(source, KEY, digest=digest_of(CONTENT))
    assert parts_sent(s3) == 1
    assert b"".join(tier.pieces(KEY)) == CONTENT


def test_the_same_content_again_sends_nothing_and_a_lost_part_is_replaced(
    tier: ObjectTier, s3: S3Server, source: Path
) -> None:
    tier.put(source, KEY, digest=digest_of(CONTENT))
    s3.requests.clear()
    tier.put(source, KEY, digest=digest_of(CONTENT))
    assert parts_sent(s3) == 0
    s3.remove(s3.paths("team/lm/parts/")[0])
    tier.put(source, KEY, digest=digest_of(CONTENT))
    assert parts_sent(s3) == 1


def _truncated(content: bytes) -> bytes:
    return content[: len(content) // 2]


def _flipped(content: bytes) -> bytes:
    return content[:-5] + bytes([content[-5] ^ 1]) + content[-4:]


def _zeroed(content: bytes) -> bytes:
    return bytes(len(content))


@pytest.mark.parametrize("harm", [_truncated, _flipped, _zeroed, None], ids=["truncate", "flip", "zero", "delete"])
def test_no_object_can_be_harmed_without_being_noticed(
    tier: ObjectTier, s3: S3Server, source: Path, tmp_path: Path, harm: Callable[[bytes], bytes] | None
) -> None:
    tier.put(source, KEY, digest=digest_of(CONTENT), record={"step": 10})
    for path in s3.paths("team/lm/"):
        good = s3.read(path)
        s3.remove(path) if harm is None else s3.write(path, harm(good))
        with pytest.raises((CopyMissing, DigestMismatch)):
            tier.get(KEY, tmp_path / "back", digest=digest_of(CONTENT))
        assert not (tmp_path / "back").exists()
        s3.write(path, good)
    assert tier.get(KEY, tmp_path / "back", digest=digest_of(CONTENT)) == len(CONTENT)


def test_every_bit_of_every_object_is_guarded_and_every_length_too(tmp_path: Path) -> None:
    content, store = os.urandom(150), MemoryStore()
    source = tmp_path / "small"
    source.write_bytes(content)
    tier = ObjectTier(Bucket("gs://bucket/lm", store), owner="node-a", part_bytes=100)
    tier.claim("key", ranks=1)
    tier.note_start(EpochStart(epoch=1, restored=SnapshotId(7, 8)))
    tier.put(source, KEY, digest=digest_of(content), record={"step": 10})
    for path in [each["path"] for page in obstore.list(store) for each in page]:
        good = bytes(obstore.get(store, path).bytes())
        flips = (
            good[: bit // 8] + bytes([good[bit // 8] ^ 1 << bit % 8]) + good[bit // 8 + 1 :]
            for bit in range(len(good) * 8)
        )
        for bad in [*flips, *(good[:length] for length in range(len(good))), good + b" ", bytes(len(good))]:
            obstore.put(store, path, bad)
            assert _noticed(tier) or bytes(obstore.get(store, path).bytes()) == good, (path, bad)  # or written again
        obstore.put(store, path, good)
    assert not _noticed(tier)


def _noticed(tier: ObjectTier) -> bool:
    try:
        tier.record(KEY)
        tier.claim("key", ranks=1)
        return not b"".join(tier.pieces(KEY)) or not tier.starts()
    except (CopyMissing, DigestMismatch, TierConflict):
        return True


def test_every_byte_of_a_manifest_is_guarded(tier: ObjectTier, s3: S3Server, source: Path) -> None:
    tier.put(source, KEY, digest=digest_of(CONTENT), record={"step": 10})
    path = "team/lm/manifests/e1/s10.json"
    good = s3.read(path)
    for at in range(len(good)):
        with pytest.raises(CopyMissing):
            manifests.parsed(path, "manifests/e1/s10.json", good[:at] + bytes([good[at] ^ 4]) + good[at + 1 :])
    s3.write("team/lm/manifests/e1/s20.json", good)
    assert list(tier.keys("")) == [KEY], "a manifest under another name is none"
    assert "s20.json" in tier.damaged()[0]


def test_manifests_that_did_not_change_are_not_read_again(tier: ObjectTier, s3: S3Server, source: Path) -> None:
    for step in (10, 20):
        tier.put(source, f"e1/s{step}-r0", digest=digest_of(CONTENT))
    assert len(tier.keys("")) == 2
    other(tier, "node-b").put(source, "e1/s20-r1", digest=digest_of(CONTENT))
    s3.requests.clear()
    assert len(tier.keys("")) == 3
    assert [path for method, path in s3.requests if "s10.json" in path] == []
    tier.delete("e1/s10-r0")
    assert len(tier.keys("")) == 2


def test_a_manifest_that_is_none_is_replaced_by_the_next_good_one(tier: ObjectTier, s3: S3Server, source: Path) -> None:
    s3.write("team/lm/manifests/e1/s10.json", b"{")
    tier.put(source, KEY, digest=digest_of(CONTENT))
    assert list(tier.keys("")) == [KEY]


def test_nodes_that_store_their_ranks_at_the_same_time_all_stand_in_the_manifest(
    tier: ObjectTier, source: Path
) -> None:
    start = threading.Barrier(8)

    def store(rank: int) -> None:
        start.wait(10)
        other(tier, f"node-{rank}").put(source, f"e1/s10-r{rank}", digest=digest_of(CONTENT))

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(store, range(8)))
    assert list(tier.keys("")) == [f"e1/s10-r{rank}" for rank in range(8)]


def test_two_attempts_that_store_one_step_do_not_mix(tier: ObjectTier, source: Path, tmp_path: Path) -> None:
    changed = tmp_path / "changed"
    changed.write_bytes(CONTENT[::-1])
    tier.put(source, "e1/s10-r0", digest=digest_of(CONTENT))
    other(tier, "node-b").put(changed, "e2/s10-r0", digest=digest_of(CONTENT[::-1]))
    assert b"".join(tier.pieces("e1/s10-r0")) == CONTENT
    assert b"".join(tier.pieces("e2/s10-r0")) == CONTENT[::-1]


def test_of_two_writers_that_race_for_one_place_one_wins_and_the_other_is_told(
    tier: ObjectTier, source: Path, tmp_path: Path
) -> None:
    changed = tmp_path / "changed"
    changed.write_bytes(CONTENT[::-1])
    start = threading.Barrier(2)

    def store(owner: str) -> str:
        start.wait(10)
        path = source if owner == "node-a" else changed
        try:
            other(tier, owner).put(path, KEY, digest=digest_of(path.read_bytes()))
        except TierConflict as error:
            return error.hint
        return ""

    with ThreadPoolExecutor(2) as pool:
        outcomes = list(pool.map(store, ["node-a", "node-b"]))
    assert sum(not outcome for outcome in outcomes) == 1
    assert "storage_dir" in "".join(outcomes)
    expected = CONTENT if not outcomes[0] else CONTENT[::-1]
    assert b"".join(tier.pieces(KEY)) == expected


def test_two_jobs_share_a_prefix_and_do_not_see_each_other(s3_url: str, source: Path) -> None:
    first, second = choosing.job_tier(s3_url, "lm"), choosing.job_tier(s3_url, "lm2")
    first.put(source, KEY, digest=digest_of(CONTENT))
    assert list(second.keys("")) == []
    second.sweep()
    assert list(first.keys("")) == [KEY]


def test_parts_that_nobody_lists_go_at_once_when_they_are_ours_and_after_an_hour_when_not(
    tier: ObjectTier, s3: S3Server, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for owner in ("node-a", "node-b"):
        s3.write(f"team/lm/parts/e1/s5-r0/0123456789abcdef.{owner}/000000", b"x")
    assert tier.sweep() == 1
    assert [path for path in s3.paths() if "node-a" in path] == []
    monkeypatch.setattr("time.time", lambda: 4e9)
    assert tier.sweep() == 0, "the clock of the node does not count"
    monkeypatch.undo()
    monkeypatch.setattr("reliability.tiers.object_store.ABANDONED_PART_S", -1.0)
    assert tier.sweep() == 1


def test_parts_under_way_are_kept_however_long_the_upload_takes(tier: ObjectTier, s3: S3Server, source: Path) -> None:
    tier.put(source, KEY, digest=digest_of(CONTENT))
    s3.remove("team/lm/manifests/e1/s10.json")
    assert other(tier, "node-b").sweep() == 0


def test_what_a_store_lost_though_it_said_otherwise_is_not_listed(tier: ObjectTier, s3: S3Server, source: Path) -> None:
    def lose(environ: Mapping[str, Any]) -> tuple[str, bytes] | None:
        return (
            ("200 OK", b"") if environ["PATH_INFO"].endswith("000001") and environ["REQUEST_METHOD"] == "PUT" else None
        )

    with s3.troubled(lose), pytest.raises(TierUnreachable):
        tier.put(source, KEY, digest=digest_of(CONTENT))
    assert list(tier.keys("")) == []


def test_a_store_that_does_not_check_what_comes_is_asked_what_it_holds(
    tier: ObjectTier, s3: S3Server, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def flip(environ: Mapping[str, Any]) -> None:
        if environ["REQUEST_METHOD"] == "PUT" and environ["PATH_INFO"].endswith("000001"):
            content = environ["wsgi.input"].read(int(environ["CONTENT_LENGTH"]))
            environ["wsgi.input"] = io.BytesIO(content[:-1] + bytes([content[-1] ^ 1]))

    monkeypatch.setenv("AWS_UNSIGNED_PAYLOAD", "true")
    unsigned = other(tier, "node-a")
    with s3.troubled(flip), pytest.raises(TierUnreachable, match="not stored as it was sent"):
        unsigned.put(source, KEY, digest=digest_of(CONTENT))
    assert list(tier.keys("")) == []
    unsigned.put(source, KEY, digest=digest_of(CONTENT))
    assert b"".join(tier.pieces(KEY)) == CONTENT


def test_a_full_store_is_told_as_such_and_nothing_of_the_try_stays(
    tier: ObjectTier, s3: S3Server, source: Path
) -> None:
    with s3.troubled(full), pytest.raises(TierFull) as told:
        tier.put(source, KEY, digest=digest_of(CONTENT))
    assert told.value.hint
    assert s3.paths() == []


def test_a_store_that_is_away_a_bucket_that_is_not_there_and_a_wrong_key_are_told_apart(
    tier: ObjectTier, s3: S3Server, source: Path
) -> None:
    with s3.troubled(lambda environ: forbidden(environ)), pytest.raises(TierUnreachable, match="may not be used") as no:
        tier.put(source, KEY, digest=digest_of(CONTENT))
    assert "AWS_" in no.value.hint
    with s3.troubled(skewed), pytest.raises(TierUnreachable, match="refuses this node's clock") as wrong:
        tier.put(source, KEY, digest=digest_of(CONTENT))
    assert "clock" in wrong.value.hint
    with pytest.raises(TierUnreachable, match="no such bucket"):
        choosing.job_tier("s3://nowhere/x", "lm").put(source, KEY, digest=digest_of(CONTENT))
    s3.stop()
    try:
        with pytest.raises(TierUnreachable, match="cannot be reached") as away:
            tier.keys("")
        assert away.value.transient
    finally:
        s3.start()
    assert list(tier.keys("")) == []


def test_an_environment_without_credentials_is_told_what_is_missing(
    s3: S3Server, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_METADATA_ENDPOINT", f"{s3.endpoint}/credentials")
    with s3.troubled(lambda environ: forbidden(environ)), pytest.raises(TierUnreachable, match="may not") as told:
        choosing.job_tier(f"s3://{BUCKET}/x", "lm").put(source, KEY, digest=digest_of(CONTENT))
    assert "credentials" in told.value.hint


def test_no_secret_gets_into_a_message_or_a_traceback(
    tier: ObjectTier, s3: S3Server, source: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.DEBUG)
    told = []
    with s3.troubled(lambda environ: forbidden(environ)):
        told += _failure(lambda: tier.put(source, KEY, digest=digest_of(CONTENT)))
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_NAME", "account")
    monkeypatch.setenv("AZURE_STORAGE_SAS_TOKEN", f"sv=2020&sig={SECRET}")
    monkeypatch.setenv("AZURE_STORAGE_ENDPOINT", "http://127.0.0.1:9")
    told += _failure(lambda: choosing.job_tier("az://container/x", "lm").keys(""))
    assert SECRET not in "".join(told)
    assert SECRET not in caplog.text


def _failure(do: Callable[[], object]) -> list[str]:
    try:
        do()
    except TierError as error:
        return [error.message, error.hint, "".join(traceback.format_exception(error))]
    raise AssertionError("it did not fail")


@pytest.mark.parametrize(
    ("address", "kind"),
    [
        ("/mnt/storage", DirectoryTier),
        ("file:///mnt/storage", DirectoryTier),
        (f"s3://{BUCKET}/team", ObjectTier),
        (f"s3://{BUCKET}", ObjectTier),
    ],
)
def test_the_address_alone_tells_the_tier(s3: S3Server, address: str, kind: type) -> None:
    assert isinstance(choosing.job_tier(address, "lm"), kind)


@pytest.mark.parametrize(
    "address",
    [
        "storage",
        "../storage",
        "/a/../b",
        "ftp://host/x",
        "s3://",
        "s3://key:secret@bucket/x",
        "s3://b/x?sig=1",
        "s3://b/../x",
    ],
)
def test_an_address_that_is_none_is_refused_without_repeating_what_may_be_a_secret(address: str) -> None:
    with pytest.raises(InvalidInput, match="storage_dir") as told:
        choosing.job_tier(address, "lm")
    assert "secret" not in told.value.message
    assert "s3://bucket/prefix" in told.value.hint


def test_a_limit_spreads_bytes_over_time_whatever_the_clock_on_the_wall_does() -> None:
    now, slept = [100.0], list[float]()

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        now[0] += seconds

    pace = Pace(1000.0, clock=lambda: now[0], sleep=sleep)
    for _ in range(5):
        pace.take(500)
    assert sum(slept) == pytest.approx(2.0)
    now[0] += 60
    pace.take(500)
    assert sum(slept) == pytest.approx(2.0), "an idle minute is not a debt"
