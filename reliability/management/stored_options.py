"""Can what a person asks of stored snapshots be done at all? Asked before anything is read or blamed."""

import argparse
import re
import tempfile
from collections.abc import Callable, Collection, Sequence
from pathlib import Path

from reliability.errors import InvalidInput
from reliability.tiers.catalogue import Stored, candidates

MOST = 2**31 - 1
MOST_RANKS = 1_000_000
MOST_NAMED = 10
_JOB = re.compile(r"[A-Za-z0-9_-]{1,80}")


def count(most: int = MOST, least: int = 0) -> Callable[[str], int]:
    """Return what reads a whole number from the command line, refused outside of the limits."""

    def read(text: str) -> int:
        if not re.fullmatch(r"[0-9]{1,12}", text) or not least <= int(text) <= most:
            raise argparse.ArgumentTypeError(f"{text!r} is no whole number from {least} to {most}.")
        return int(text)

    return read


def job_name(text: str) -> str:
    """Return the name of a job, which is never a path: it may be one of an installation that is no more."""
    if not _JOB.fullmatch(text):
        raise argparse.ArgumentTypeError(
            f"{text!r} is no name of a job. Give letters, digits, - and _; the address belongs to --at."
        )
    return text


def check_there(found: Sequence[Stored], *, step: int | None, epoch: int | None) -> None:
    """Raise InvalidInput when nothing of that step or attempt is stored, naming what is."""
    if next(candidates(found, step=step, epoch=epoch), None) is not None:
        return
    if next(candidates(found, epoch=epoch), None) is None:
        there = _listed({each.snapshot.epoch for each in found})
        raise InvalidInput("--epoch", f"nothing of attempt {epoch} is stored", hint=f"There are: {there}.")
    of_attempt = f" of attempt {epoch}" if epoch is not None else ""
    there = _listed({each.snapshot.step for each in candidates(found, epoch=epoch)})
    raise InvalidInput("--step", f"no step {step}{of_attempt} is stored", hint=f"There are: {there}.")


def _listed(numbers: Collection[int]) -> str:
    newest = sorted(numbers, reverse=True)
    more = f" and {len(newest) - MOST_NAMED} older" if len(newest) > MOST_NAMED else ""
    return ", ".join(map(str, newest[:MOST_NAMED])) + more


def check_folder(path: Path) -> None:
    """Raise InvalidInput unless files can be written into a folder, or it can be made in the one above."""
    if path.exists() and not path.is_dir():
        raise InvalidInput("--to", f"{path} is there and is no folder", hint="Name a folder, there or to be made.")
    _check_writable(path if path.exists() else path.absolute().parent)


def check_new_folder(path: Path) -> None:
    """Raise InvalidInput unless it is a folder without anything in it, or can be made: steps are not to be mixed."""
    check_folder(path)
    if path.exists() and any(path.iterdir()):
        raise InvalidInput("--to", f"{path} is not empty", hint="Name a folder that is empty or to be made.")


def check_file(path: Path) -> None:
    """Raise InvalidInput unless a file of that name, or one a rank, can be written over nothing that is there."""
    if path.is_dir():
        raise InvalidInput("--to", f"{path} is a folder", hint="Name a file in it.")
    folder = path.absolute().parent
    _check_writable(folder)
    for each in folder.iterdir():
        of_a_rank = each.suffix == path.suffix and each.stem.startswith(f"{path.stem}-rank")
        if each.name == path.name or of_a_rank:
            raise InvalidInput("--to", f"{each} is there already", hint="Name another file, or move that one away.")


def _check_writable(folder: Path) -> None:
    if not folder.is_dir():
        raise InvalidInput("--to", f"{folder} is no folder", hint="Make it first, or name another.")
    try:
        with tempfile.TemporaryDirectory(dir=folder, prefix=".stepkeeper-"):
            pass
    except OSError as error:
        raise InvalidInput(
            "--to", f"nothing can be written into {folder}: {error.strerror}", hint="Name another folder."
        ) from error
