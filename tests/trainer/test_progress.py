"""Does a reader of the progress record ever see a record that was never written?"""

import math
import subprocess
import sys
from pathlib import Path

from reliability.trainer.progress import Progress, ProgressRecord, StepClock, read
from tests.trainer.node import REPO, wait_until

WRITER = """
import sys
from pathlib import Path
from reliability.trainer.progress import Progress, ProgressRecord
record = ProgressRecord(Path(sys.argv[1]))
for n in range(1, 60_001):
    fields = dict.fromkeys(("epoch", "step", "loss", "wall", "step_s", "restored_step", "plan_version"), n)
    record.write(Progress(**fields))
"""


def made(step: int, epoch: int = 1) -> Progress:
    return Progress(epoch=epoch, step=step, loss=0.5, wall=1.0, step_s=0.1, restored_step=3, plan_version=2)


def test_the_record_is_the_first_64_bytes_and_comes_back_as_written(tmp_path: Path):
    path = tmp_path / "progress-0"
    record = ProgressRecord(path)
    assert read(path) is None
    record.write(made(7))
    assert read(path) == made(7)
    path.write_bytes(path.read_bytes()[:64])
    assert read(path) == made(7), "an older client's file ends there"


def test_a_reader_beside_a_fast_writer_never_sees_half_a_record(tmp_path: Path):
    path = tmp_path / "progress-0"
    with subprocess.Popen([sys.executable, "-c", WRITER, str(path)], cwd=REPO) as writer:
        wait_until(lambda: read(path), "first record")
        seen = []
        while writer.poll() is None:
            found = read(path)
            if found is not None:
                seen.append(found)
    assert writer.returncode == 0
    assert all({p.epoch, p.step, int(p.loss), int(p.wall), p.restored_step, p.plan_version} == {p.step} for p in seen)
    steps = [p.step for p in seen]
    assert steps == sorted(steps)
    assert len(set(steps)) > 10


def test_a_record_left_half_written_by_a_killed_rank_is_no_record(tmp_path: Path):
    path = tmp_path / "progress-0"
    ProgressRecord(path).write(made(7))
    torn = bytearray(path.read_bytes())
    torn[0] |= 1
    path.write_bytes(torn)
    assert read(path) is None
    path.write_bytes(b"short")
    assert read(path) is None


def test_a_hung_rank_of_an_older_attempt_cannot_overwrite_the_record_of_the_new_one(tmp_path: Path):
    path = tmp_path / "progress-0"
    old = ProgressRecord(path)
    new = ProgressRecord(path)
    new.write(made(20, epoch=2))
    old.write(made(99, epoch=1))
    assert read(path) == made(20, epoch=2)


def test_the_time_of_a_save_is_no_part_of_a_step():
    clock = StepClock()
    clock.tick(0.0)
    assert math.isnan(clock.step_s)
    clock.tick(1.0)
    clock.resume(50.0)
    clock.tick(51.0)
    assert clock.step_s == 1.0
