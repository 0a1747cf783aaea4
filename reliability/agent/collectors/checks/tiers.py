"""Can snapshots be written to each tier of this node, and is there room?

Looked at: the folders of the tiers memory, SSD and storage, each asked in a process of its own. A small file is
written, forced to disk, read back and removed. How fast a tier fills and whether the next save fits the server judges.
"""

import errno
import os
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from reliability.agent.clock import steady
from reliability.agent.collectors.checking import Option, Outcome
from reliability.agent.collectors.checks import apart
from reliability.agent.collectors.checks.asked import Asked
from reliability.agent.collectors.checks.sheet import Sheet, Trouble
from reliability.tiers import opening

OPTIONS: dict[str, Option] = {
    "write": True,
    "answer_s": 10.0,
    "least_free_share": 0.01,
    "least_free_inodes": 64.0,
    "slow_s": 5.0,
    "memory": "",
    "ssd": "",
    "storage": "",
}
_BLOCK = 4096
_CODES = {
    errno.ENOSPC: "disk-full",
    errno.EDQUOT: "quota-full",
    errno.EROFS: "tier-read-only",
    errno.EIO: "tier-io-error",
}
_NOT_TRIED = {
    errno.EACCES: "not allowed at its top, so not tried",
    errno.EPERM: "not allowed at its top, so not tried",
    errno.ENOENT: "not made yet",
}
"""What is no fault as long as it never worked."""


def look(asked: Asked) -> Outcome:
    """Return how it stands with each tier. The probe file is named by the node."""
    folders = _folders(asked)
    name = f".check-{asked.facts.get('node') or 'node'}"
    write = bool(asked.options["write"])
    asks = {
        tier: partial(probe, Path(folder), f"{name}-{place}", write=write)
        for place, (tier, folder) in enumerate(folders.items())
    }
    answers = apart.asked(asks, limit_s=asked.limit("answer_s"), stuck=asked.past.notes("stuck"))
    asked.past.note("stuck", answers.stuck)
    sheet = Sheet(asked.past)
    for tier in ("memory", "ssd", "storage"):
        if asked.options[tier] and not str(asked.options[tier]).startswith("/"):
            sheet.unknown(f"The option {tier} is no whole path: {asked.options[tier]}.")
    for tier, said in answers.said.items():
        _judge(asked, sheet, tier, folders[tier], said)
    for tier in answers.silent:
        text = f"The {tier} tier ({folders[tier]}) did not answer within {asked.limit('answer_s'):g} s."
        fields = {"check": "tiers", "tier": tier, "device": folders[tier]}
        sheet.stands(Trouble(code="probe-hang", place=tier, evidence=text, fields=fields))
    if not folders:
        return sheet.outcome("Nothing to look at: no tier of this node is a folder.")
    return sheet.outcome(f"{len(folders)} tiers have room and take files.")


def _folders(asked: Asked) -> dict[str, str]:
    """Return the folder of each tier that is one; jobs may have several stores, and stores that are no folders."""
    facts = asked.facts
    stores = facts.get("storage_dirs")
    folders = [each for each in stores if str(each).startswith("/")] if isinstance(stores, list) else []
    if asked.options["storage"]:
        folders = [str(asked.options["storage"])]
    found = {tier: str(asked.options[tier] or facts.get(f"{tier}_dir") or "") for tier in ("memory", "ssd")}
    found |= {"storage" if len(folders) == 1 else f"storage {each}": each for each in folders}
    return {tier: folder for tier, folder in found.items() if folder.startswith("/")}


def probe(folder: Path, name: str, *, write: bool) -> dict[str, Any]:
    """Return what is free in a folder, and how writing a file there went (`errno` 0 when well)."""
    began = steady()
    try:
        space = os.statvfs(folder)
    except OSError as error:
        return {"failed": error.errno or 0, "what": "read"}
    said: dict[str, Any] = {
        "free_bytes": space.f_bavail * space.f_frsize,
        "total_bytes": space.f_blocks * space.f_frsize,
        "free_inodes": space.f_favail,
        "total_inodes": space.f_files,
        "failed": 0,
    }
    if write:
        try:
            _write(folder, name)
        except OSError as error:
            said |= {"failed": error.errno or errno.EIO, "what": "write"}
    return {**said, "seconds": steady() - began}


def _write(folder: Path, name: str) -> None:
    """Write, force to disk, read back and remove a file. Raises OSError."""
    content = os.urandom(_BLOCK)
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        file = opening.created(name, folder=handle, mode=0o600)
        try:
            os.write(file, content)
            os.fsync(file)
        finally:
            os.close(file)
        reader = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=handle)
        try:
            if os.read(reader, _BLOCK + 1) != content:
                raise OSError(errno.EIO, "what was written is not what is read")
        finally:
            os.close(reader)
        os.unlink(name, dir_fd=handle)
    finally:
        os.close(handle)


def _judge(asked: Asked, sheet: Sheet, tier: str, folder: str, said: Mapping[str, Any]) -> None:
    failed = said.get("failed")
    if not isinstance(failed, int):
        sheet.unknown(f"The {tier} tier ({folder}): {said.get('error') or 'no answer that can be understood'}.")
        return
    sheet.measured[tier] = {key: said[key] for key in ("free_bytes", "total_bytes", "seconds") if key in said}
    worked = asked.past.highest(f"{tier} {folder} worked", 1 if failed == 0 else None)
    fields = {"tier": tier, "device": folder}
    if failed in _NOT_TRIED and not worked:
        sheet.measured[tier]["write"] = _NOT_TRIED[failed]
    elif failed:
        reason = os.strerror(failed)
        text = f"The {tier} tier ({folder}) cannot be used to {said.get('what')}: {reason}."
        code = _CODES.get(failed, "tier-unwritable")
        sheet.stands(Trouble(code=code, place=tier, evidence=text, fields=fields))
    _room(asked, sheet, tier, folder, said)
    seconds = said.get("seconds")
    slow = isinstance(seconds, float) and seconds >= asked.limit("slow_s")
    if asked.past.held_s(f"{tier} slow", slow):
        text = f"The {tier} tier ({folder}) took {seconds:.1f} s for a small file, twice in a row."
        sheet.stands(Trouble(code="tier-slow", place=tier, evidence=text, fields=fields))


def _room(asked: Asked, sheet: Sheet, tier: str, folder: str, said: Mapping[str, Any]) -> None:
    """The memory tier is meant to be filled by its slots. A file system that counts no inodes tells none in all."""
    free, total = said.get("free_bytes", 0), said.get("total_bytes", 0)
    inodes, all_inodes = said.get("free_inodes", 0), said.get("total_inodes", 0)
    fields = {"tier": tier, "device": folder}
    reasons = []
    if tier != "memory" and total and free < total * asked.limit("least_free_share"):
        reasons.append(f"{100 * free / total:.1f} % of its bytes")
    if all_inodes and inodes < asked.limit("least_free_inodes"):
        reasons.append(f"{inodes} inodes")
    if reasons:
        text = f"The {tier} tier ({folder}) has only {' and '.join(reasons)} free."
        sheet.stands(Trouble(code="tier-low", place=tier, evidence=text, fields=fields))
