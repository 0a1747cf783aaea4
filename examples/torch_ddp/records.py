"""What a run leaves behind so that two runs can be compared: which samples each step took, and the final weights.

python records.py SAMPLES_DIR      prints the digest of the whole sequence of consumed samples
"""

import hashlib
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path


class SampleLog:
    """Notes the samples of every step of one rank, as it takes them.

    Lines are appended and never taken back: a step that was done again after a recovery has one line for each attempt.
    The line of the highest epoch is the one that counts, see `consumed`. `digest` is a chain over all steps since the
    beginning; it is part of the snapshot, so it covers exactly the steps whose effect is in the weights.
    """

    def __init__(self, folder: str, rank: int, epoch: int) -> None:
        self.digest = hashlib.sha256(b"").hexdigest()
        self._epoch = epoch
        self._file = -1
        if folder:
            Path(folder).mkdir(parents=True, exist_ok=True)
            self._file = os.open(Path(folder) / f"rank-{rank}.jsonl", os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
            self._end_torn_line()

    def take(self, step: int, ids: Sequence[int]) -> None:
        """Note that `step` consumes these samples."""
        ids = [int(sample) for sample in ids]
        self.digest = hashlib.sha256(f"{self.digest} {step} {ids}".encode()).hexdigest()
        if self._file >= 0:
            line = json.dumps({"epoch": self._epoch, "step": step, "ids": ids})
            os.write(self._file, f"{line}\n".encode())

    def state_dict(self) -> dict:
        """Return the chain."""
        return {"digest": self.digest}

    def load_state_dict(self, state: dict) -> None:
        """Go on with the chain of a snapshot."""
        self.digest = state["digest"]

    def _end_torn_line(self) -> None:
        size = os.fstat(self._file).st_size
        if size and os.pread(self._file, 1, size - 1) != b"\n":
            os.write(self._file, b"\n")


def consumed(path: Path) -> dict[int, list[int]]:
    """Return which samples each step of one rank took: those of the last attempt that did the step."""
    lines: dict[int, tuple[int, list[int]]] = {}
    for text in path.read_text().splitlines():
        try:
            line = json.loads(text)
        except ValueError:
            continue  # torn by a kill; its step was not finished
        if line["step"] not in lines or line["epoch"] >= lines[line["step"]][0]:
            lines[line["step"]] = (line["epoch"], line["ids"])
    return {step: ids for step, (_epoch, ids) in sorted(lines.items())}


def sequence_digest(folder: Path) -> str:
    """Return one digest of what all ranks consumed, step by step."""
    ranks = {path.stem: consumed(path) for path in sorted(folder.glob("rank-*.jsonl"))}
    return hashlib.sha256(json.dumps(ranks, sort_keys=True).encode()).hexdigest()


def write_result(folder: str, rank: int, **result: object) -> None:
    """Write `result-<rank>.json` whole or not at all."""
    path = Path(folder) / f"result-{rank}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(".part")
    part.write_text(json.dumps({"rank": rank, **result}) + "\n")
    part.replace(path)


if __name__ == "__main__":
    print(sequence_digest(Path(sys.argv[1])))
