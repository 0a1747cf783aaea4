"""kill -9 of process 3 at any moment: what the store lists is whole, and never older than the last that was told."""

import os
import random
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from reliability.tiers import choosing
from reliability.tiers.directory import DirectoryTier
from reliability.tiers.shards import Shard, parse
from tests.agent.ingest import until
from tests.agent.moverprocess import JOB, MoverProcess
from tests.agent.shardfiles import commit
from tests.stores.s3 import S3Server

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

KILLS = int(os.environ.get("STEPKEEPER_KILLS", "6"))
SIZE_BYTES = 17 * 2**20  # two parts
KEPT_ON_SSD = 4


def content_of(step: int) -> bytes:
    return step.to_bytes(8, "little") * (SIZE_BYTES // 8)


class Saving:
    """A trainer and a process 2, as process 3 sees them: a new shard now and then, the oldest ones go."""

    def __init__(self, ssd: Path) -> None:
        self._ssd = ssd
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._save, daemon=True)
        self._thread.start()

    def _save(self) -> None:
        step, tier = 0, DirectoryTier(self._ssd)
        while not self._over.wait(0.3):
            step += 1
            commit(self._ssd, Shard(1, step, 0), content_of(step))
            tier.delete(Shard(1, step - KEPT_ON_SSD, 0).flat_key) if step > KEPT_ON_SSD else None

    def end(self) -> None:
        self._over.set()
        self._thread.join()


@pytest.fixture
def mover(tmp_path: Path, s3_url: str) -> Iterator[MoverProcess]:
    mover = MoverProcess(tmp_path, "storage_mover")
    mover.record.storage_dir, mover.record.job_key = s3_url, "key"
    mover.save()
    yield mover
    mover.kill()


def test_process_3_killed_at_any_moment_leaves_every_copy_it_told(mover: MoverProcess, s3: S3Server) -> None:
    tier = choosing.job_tier(mover.record.storage_dir, JOB)
    chance = random.Random(seed := random.randrange(10**6))
    saving, told = Saving(mover.ssd / JOB), 0
    try:
        for kill in range(KILLS):
            mover.start()
            if not told:  # however long the first takes to begin on a busy machine
                until(mover.steps, 30)
            end = time.monotonic() + chance.uniform(0.2, 2.0)
            while time.monotonic() < end:
                told = max([told, *mover.steps()])
                time.sleep(0.01)
            assert mover.process is not None
            mover.process.kill()
            mover.process.wait()
            told = max([told, *mover.steps()])
            mover.kill()
            listed = {shard.step: key for key in tier.keys("") if (shard := parse(key))}
            assert max(listed, default=0) >= told, (seed, kill)
            mover.safe(storage=max(listed, default=0))
            for step, key in listed.items():
                assert b"".join(tier.pieces(key)) == content_of(step), (seed, kill, step)
        assert told > 0
    finally:
        saving.end()
