"""What can go wrong between a training program and its snapshots.

TrainerError
├── ConfigurationError   the environment or a call of the program is wrong
├── UnsupportedState     a registered state holds a value that cannot be stored
├── StateMismatch        the snapshot and the program register different states
├── SlotMemory           there is no memory for the slots of snapshots
├── SlotsBusy            every slot is being read; the save was left out
├── HeaderGrew           what is not arrays outgrew the room that a save beside training left for it
├── TornSnapshot         the program wrote to a state while it was copied
└── CorruptSnapshot      the bytes read are not the bytes committed
"""

import errno


class TrainerError(Exception):
    """Base of all errors of the trainer client. `code` is stable, `hint` is one sentence for a person."""

    code = "trainer"
    hint = ""

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        if hint:
            self.hint = hint


class ConfigurationError(TrainerError):
    """The environment of a rank, or a call of the program, is wrong."""

    code = "configuration"


class UnsupportedState(TrainerError):
    """A registered state holds a value that cannot be stored. The message names its place."""

    code = "state_unsupported"
    hint = "Keep None, numbers, text, bytes, lists, tuples, dicts, NumPy arrays and torch tensors in the state."


class StateMismatch(TrainerError):
    """The snapshot holds other states than the program has registered."""

    code = "state_mismatch"
    hint = "Register the same names as the program that took the snapshot."


class SlotMemory(TrainerError):
    """There is no memory for the slots of snapshots; found when they are reserved, never later."""

    code = "tier_full"
    hint = "Make the memory tier larger or the training state smaller."


class SlotsBusy(TrainerError):
    """Every slot is being read or holds the only snapshot there is: this save was left out."""

    code = "slots_busy"
    hint = "Give the ranks a third slot (STEPKEEPER_SLOTS=3) or take snapshots less often."


class HeaderGrew(TrainerError):
    """What is not arrays grew too much from one save beside training to the next: this one was left out."""

    code = "header_grew"
    hint = "The next save makes room for it; keep long lists out of the state, or as arrays."


class TornSnapshot(TrainerError):
    """The program wrote to a state while it was copied beside training. Found by STEPKEEPER_SAVE_CHECK."""

    code = "snapshot_torn"
    hint = "Call run.before_update() before the state changes, or register it with early=True."


class CorruptSnapshot(TrainerError):
    """A snapshot or its commit record cannot be read back as it was written."""

    code = "digest_mismatch"
    hint = "Restore an older snapshot or another copy of this one."


_FULL = (errno.ENOSPC, errno.EDQUOT)


def describe(error: BaseException) -> tuple[str, str, str]:
    """Return (code, message, hint) for a failed save, ready to be reported."""
    if isinstance(error, TrainerError):
        return error.code, str(error), error.hint
    if isinstance(error, MemoryError):
        return "tier_full", "not enough memory to take the snapshot", "Give the container more memory."
    if isinstance(error, OSError):
        if error.errno in _FULL:
            return "tier_full", str(error), "Make the memory tier larger or the training state smaller."
        return "tier_unreachable", str(error), "Check the job's folder and its permissions on this node."
    return "snapshot_failed", f"{type(error).__name__}: {error}", "See the output of the rank."
