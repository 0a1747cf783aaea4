"""The second process is killed at any moment while it seals what a program wrote: a step is whole, or none."""

import os
import random
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from reliability.agent.program_folder import Attempt, ProgramFolder
from reliability.domain.program_folders import FolderRule, SealedBy
from reliability.tiers import copying
from reliability.tiers.directory import DirectoryTier
from tests.agent.ingest import until
from tests.agent.moverprocess import JOB, MoverProcess

KILLS = int(os.environ.get("STEPKEEPER_KILLS", "6"))
RULE = FolderRule(sealed_by=SealedBy.MARKER)
LONGEST_S = 1.2
"""A mover has begun, sealed a step and copied it within that, on a quiet machine."""


@pytest.fixture
def mover(tmp_path: Path) -> Iterator[MoverProcess]:
    made = MoverProcess(tmp_path, "ssd_mover")
    made.record.snapshot_folder = RULE.as_dict()
    made.record.stopped = False
    made.save()
    yield made
    made.kill()


def test_a_step_is_sealed_once_with_one_digest_whenever_the_process_is_killed(mover: MoverProcess) -> None:
    folder = ProgramFolder.of(mover.ssd, JOB)
    folder.make_places(RULE, [0])
    folder.note_attempt(Attempt(epoch=1, ready=True, job_key=""))
    tier, chance, pause = DirectoryTier(mover.ssd / JOB), random.Random(7), threading.Event()
    for step in range(1, KILLS + 1):
        place = folder.out / "node" / f"step-{step}"
        place.mkdir()
        (place / "w").write_bytes(chance.randbytes(20_000_000))
        (place / RULE.marker).touch()
        mover.start()
        pause.wait(chance.uniform(0.2, LONGEST_S))
        mover.listen()
        mover.kill()
        for key in tier.keys(""):
            assert copying.verify(tier.data_path(key), digest=tier.record(key)["digest"])
    mover.start()
    until(lambda: KILLS in mover.steps(), 30)
    told: dict[int, set[str]] = {}
    for line in mover.said:
        if line["kind"] == "snapshot_copy":
            told.setdefault(line["body"]["step"], set()).add(line["body"]["digest"])
    assert all(len(digests) == 1 for digests in told.values())
    assert mover.problems() == []
    assert not list((mover.ssd / JOB).glob("*.part"))
