"""How does a program find the step that its attempt begins from, and nothing newer, in its snapshot folder?

First the restored shards become a folder beside the program's own, under a hidden name, every byte verified while it
is written (`bring`, part of a restore). When the attempt starts (`begin`) what is newer is moved aside, never removed,
and the folder gets its name. Both may be repeated at any point. No rank runs meanwhile.
"""

import contextlib
import json
import logging
import os
import re
import shutil
from collections.abc import Sequence
from pathlib import Path

from reliability.agent import program_aside, program_folder, program_listing, program_shards
from reliability.agent.program_folder import RESTORED, Attempt, ProgramFolder
from reliability.domain.program_folders import FolderRule
from reliability.errors import CopyMissing, TierError
from reliability.tiers import copying, opening
from reliability.tiers.directory import DirectoryTier
from reliability.tiers.shards import Shard
from reliability.tiers.step_folder import StepFolder, UnfitStep

_NEWEST = re.compile(r"last.*\.ckpt")
_TRACKERS = {"latest": "{name}", "latest_checkpointed_iteration.txt": "{step}"}
"""Files in which frameworks say which step is the newest, and what they say (DeepSpeed, Megatron)."""

log = logging.getLogger("stepkeeper.agent")


def bring(
    folder: ProgramFolder,
    rule: FolderRule,
    tier: DirectoryTier,
    *,
    snapshot: tuple[int, int],
    ranks: Sequence[int],
    all_ranks: Sequence[int],
) -> None:
    """Make the restored step of each folder of these ranks from the shards that a restore brought to a tier.

    `snapshot`: epoch and step. `all_ranks`: whose shards there are, when a folder holds the files of all of them.
    Raises CopyMissing, DigestMismatch, TierFull, TierUnreachable.
    """
    folder.make_places(rule, ranks)
    for place, own in folder.places(rule, ranks).items():
        shards = [Shard(*snapshot, rank) for rank in (all_ranks or own)]
        _unpack(_restored_path(folder, place, snapshot), shards, tier)


def begin(
    folder: ProgramFolder,
    rule: FolderRule,
    *,
    epoch: int,
    job_key: str,
    snapshot: tuple[int, int] | None,
    ranks: Sequence[int],
) -> Attempt:
    """Have each folder of these ranks hold the restored step and nothing newer; return what this attempt found.

    Raises CopyMissing when the step was not brought, TierFull, TierUnreachable.
    """
    folder.make_places(rule, ranks)
    attempt = folder.attempt()
    if attempt.ready and attempt.epoch == epoch and attempt.job_key == job_key:
        _remove_brought(folder, rule, ranks, snapshot)
        return attempt
    strange = bool(attempt.job_key) and attempt.job_key != job_key
    step = snapshot[1] if snapshot else None
    made = Attempt(epoch=epoch, job_key=job_key, step=step)
    folder.note_attempt(made)
    for place in folder.places(rule, ranks):
        keep_to = None if strange or step is None else step
        if snapshot is None:
            _move_aside(folder, rule, place, keep_to=keep_to, mark=f"e{attempt.epoch}")
        else:
            made.restored[place] = _take_place(folder, rule, place, snapshot, keep_to=keep_to, before=attempt.epoch)
        made.before += [f"{place}/{each}" for each in program_folder.names(folder.out / place)]
    made.ready = True
    folder.note_attempt(made)
    _remove_brought(folder, rule, ranks, snapshot)
    return made


def _remove_brought(
    folder: ProgramFolder, rule: FolderRule, ranks: Sequence[int], snapshot: tuple[int, int] | None
) -> None:
    """Once the attempt is ready: remove what is left of what was brought, by which a beginning is repeated."""
    if snapshot is not None:
        for place in folder.places(rule, ranks):
            _remove(_restored_path(folder, place, snapshot))


def leave(folder: ProgramFolder) -> None:
    """The job has left this node: what was brought and never begun from goes. What cannot be removed is left."""
    for left in folder.root.glob(f"{RESTORED}-*"):
        try:
            _remove(left)
        except TierError as error:
            log.warning("brought by a restore and cannot be removed: path=%s why=%s", left, error)


def _take_place(
    folder: ProgramFolder, rule: FolderRule, place: str, snapshot: tuple[int, int], *, keep_to: int | None, before: int
) -> str:
    """Have the step that was brought, and nothing newer, lie in a folder; return its name."""
    name, step = _ready(folder, place, snapshot)
    target = folder.out / place / name
    if os.path.lexists(step):  # else it took its name already, and only the rest was interrupted
        _remove_if_same(folder, place, name, step)
        _move_aside(folder, rule, place, keep_to=keep_to, mark=f"e{before}")
        with copying.tier_errors(target):
            step.rename(target)
    _point_at(folder.out / place, name, snapshot[1])
    return name


def _restored_path(folder: ProgramFolder, place: str, snapshot: tuple[int, int]) -> Path:
    return folder.root / f"{RESTORED}-{place}-e{snapshot[0]}-s{snapshot[1]}"


def _unpack(ready: Path, shards: Sequence[Shard], tier: DirectoryTier) -> None:
    """Unpack shards into one folder: `step` with the files below, or with the single file, and `about.json`.

    Nothing is forced to the disk: after a power loss it does not count, which the boot's number tells.
    """
    part = ready.with_name(f"{ready.name}{copying.PART_SUFFIX}")
    with copying.tier_errors(part):
        for left in ready.parent.glob(f"{ready.name.partition('-e')[0]}-e*"):
            _remove(left)
        (part / "step").mkdir(parents=True)
    into = StepFolder(part / "step")
    found = [(name, is_file) for shard in shards for name, is_file in [_unpack_one(tier, shard, into)] if name]
    if not found:
        raise CopyMissing(f"No shard of step {shards[0].step} holds files of the program.")
    if len({is_file for _name, is_file in found}) > 1:
        raise UnfitStep(f"Step {shards[0].step} is a file on some nodes and a folder on others.")
    into.finish()
    name, is_file = found[0]
    about = {"name": name.encode("utf-8", "surrogateescape").hex(), "is_file": is_file, "boot": _boot()}
    with copying.tier_errors(ready):
        (part / "about.json").write_text(json.dumps(about))
        part.rename(ready)


def _boot() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def _unpack_one(tier: DirectoryTier, shard: Shard, into: StepFolder) -> tuple[str, bool]:
    return program_shards.unpack(tier.data_path(shard.flat_key), tier.record(shard.flat_key), into)


def _ready(folder: ProgramFolder, place: str, snapshot: tuple[int, int]) -> tuple[str, Path]:
    """Return the name of the step that was brought, and where it lies. Raises CopyMissing when none was."""
    path = _restored_path(folder, place, snapshot)
    with contextlib.suppress(FileNotFoundError, NotADirectoryError), copying.tier_errors(path):
        about = json.loads((path / "about.json").read_bytes())
        if about["boot"] == _boot():
            name = bytes.fromhex(about["name"]).decode("utf-8", "surrogateescape")
            return name, path / "step" / name if about["is_file"] else path / "step"
    raise CopyMissing(f"Step {snapshot[1]} was not brought to {folder.out / place}.")


def _move_aside(folder: ProgramFolder, rule: FolderRule, place: str, *, keep_to: int | None, mark: str) -> None:
    """Move steps from `keep_to` on out of the program's sight, and what is not whole; None: all of them."""
    for name in program_folder.names(folder.out / place):
        step = rule.step_of(name)
        newer = step is not None and (keep_to is None or step >= keep_to)
        if newer or rule.is_unfinished(name) or _NEWEST.fullmatch(name) or (keep_to is None and name in _TRACKERS):
            _move_one(folder, place, name, f"{mark}-{place}", needed=not rule.is_unfinished(name))


def _move_one(folder: ProgramFolder, place: str, name: str, mark: str, *, needed: bool) -> None:
    """Move one name aside. What never counts as a step may stay: no start fails by it. Raises TierError."""
    path = folder.out / place / name
    try:
        target = program_aside.take(folder.aside, path, mark)
    except TierError as error:
        if needed:
            raise
        log.warning("unfinished and cannot be moved aside, left: path=%s why=%s", path, error)
        return
    log.info("step of an abandoned attempt moved aside: from=%s to=%s", path, target)


def _remove_if_same(folder: ProgramFolder, place: str, name: str, step: Path) -> None:
    """The step that is restored lies there from before, as a rule: one verified copy of it is enough."""
    with contextlib.suppress(OSError, TierError):
        old = program_listing.listed(folder.out / place, name)
        new = program_listing.listed(step.parent, step.name)
        if {(each.path, each.size) for each in old.files} <= {(each.path, each.size) for each in new.files}:
            path = folder.out / place / name
            path.unlink() if old.is_file else shutil.rmtree(path)


def _point_at(place: Path, name: str, step: int) -> None:
    for tracker, text in _TRACKERS.items():
        if (place / tracker).is_file() and not (place / tracker).is_symlink():
            with copying.tier_errors(place / tracker):
                opening.replace(place / tracker, text.format(name=name, step=step).encode())


def _remove(path: Path) -> None:
    """Remove what only this module wrote, if it is there."""
    try:
        with contextlib.suppress(FileNotFoundError):
            shutil.rmtree(path)
    except OSError as error:
        raise TierError(f"{path} cannot be removed: {error.strerror}.") from error
