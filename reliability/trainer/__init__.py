"""Stepkeeper's client for training programs: restore, report steps, take snapshots when due.

Self-contained: standard library only. It is imported as `stepkeeper` from its own wheel.
"""

from .client import GuardedRun, attach
from .errors import ConfigurationError, CorruptSnapshot, StateMismatch, TrainerError, UnsupportedState
from .marks import collective, phase, role
from .run import Run
from .skips import skipped_steps

__version__ = "0.1.0"

__all__ = [
    "ConfigurationError",
    "CorruptSnapshot",
    "GuardedRun",
    "Run",
    "StateMismatch",
    "TrainerError",
    "UnsupportedState",
    "attach",
    "collective",
    "phase",
    "role",
    "skipped_steps",
]
