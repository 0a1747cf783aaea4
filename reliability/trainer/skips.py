"""Which batches are all ranks to leave out?

    skipped = stepkeeper.skipped_steps()
    for step in range(start + 1, steps + 1):
        batch = next(data)              # the position in the data goes on as ever
        if step not in skipped:
            ...                         # forward, backward, update
        run.step(step, loss=loss)

A batch that always ends the job can be left out once a person approved it. Every rank of an attempt is told the same
steps, so that none waits for another. A program that does not ask finds them in STEPKEEPER_SKIP_STEPS as well.
"""

import contextlib
import os
from collections.abc import Mapping
from pathlib import Path

from .environment import number
from .errors import ConfigurationError
from .folder import JobFolder, write_json

VARIABLE = "STEPKEEPER_SKIP_STEPS"


def skipped_steps(environment: Mapping[str, str] | None = None) -> frozenset[int]:
    """Return the numbers of the steps whose batches are to be left out; none outside a guarded run.

    Ask before the first step: the agent then reports that this rank knows. Raises ConfigurationError when the variable
    is no list of steps.
    """
    environment = os.environ if environment is None else environment
    steps = _read(environment.get(VARIABLE, ""))
    folder = environment.get("STEPKEEPER_DIR")
    if folder:
        _tell(JobFolder(Path(folder)), environment, steps)
    return steps


def _read(text: str) -> frozenset[int]:
    try:
        steps = frozenset(int(part) for part in text.split(",") if part.strip())
    except ValueError:
        steps = frozenset({-1})
    if any(step < 1 for step in steps):
        raise ConfigurationError(f"{VARIABLE} must be steps separated by commas, such as 777,900, not {text!r}")
    return steps


def _tell(folder: JobFolder, environment: Mapping[str, str], steps: frozenset[int]) -> None:
    """Leave word for the agent. That it cannot be told must not stop training."""
    told = {"epoch": number(environment, "STEPKEEPER_EPOCH", 0), "steps": sorted(steps)}
    with contextlib.suppress(OSError):
        write_json(folder.run / f"skips-{number(environment, 'RANK', 0)}", told)
