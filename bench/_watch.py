"""How far is each rank, read from its own progress record without disturbing anything?"""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from reliability.agent.progress import read

_RECORD = re.compile(r"e(\d+)-s(\d+)-r\d+\.json")


def all_past_first_step(folders: Mapping[int, Path], after_epoch: int) -> bool:
    """Return whether every rank, in its job folder, made a step of its own in an epoch after `after_epoch`."""
    return all(_past_first_step(folder, rank, after_epoch) for rank, folder in folders.items())


def _past_first_step(folder: Path, rank: int, after_epoch: int) -> bool:
    record = read(folder / "run" / f"progress-{rank}")
    return record is not None and record.epoch > after_epoch and record.step > record.restored_step


def newest_common_step(folders: Sequence[Path], epoch: int) -> int:
    """Return the newest step of which each folder holds a commit record, 0 for none."""
    found = []
    for folder in folders:
        matches = (_RECORD.fullmatch(path.name) for path in (folder / "mem").glob("*.json"))
        found.append({int(match[2]) for match in matches if match and int(match[1]) == epoch})
    return max(set.intersection(*found), default=0) if found else 0
