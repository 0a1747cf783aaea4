"""Do the file servers answer from which this machine has something mounted?

Looked at: mounts of the kinds in `kinds`, as self/mounts below /proc lists them, each asked for its size in a process
of its own: the answer comes from the server and not from a cache. One that hangs is named; the others are told as ever.
"""

import os
from collections.abc import Mapping
from functools import partial
from typing import Any

from reliability.agent.clock import steady
from reliability.agent.collectors.checking import Option, Outcome
from reliability.agent.collectors.checks import apart
from reliability.agent.collectors.checks.asked import Asked
from reliability.agent.collectors.checks.mounted import mounts
from reliability.agent.collectors.checks.sheet import Sheet, Trouble

MOST_MOUNTS = 64
OPTIONS: dict[str, Option] = {
    "proc": "/proc",
    "kinds": "nfs,nfs4,lustre,ceph,cifs,smb3,beegfs,gpfs,glusterfs",
    "answer_s": 8.0,
    "slow_s": 2.0,
}


def look(asked: Asked) -> Outcome:
    """Return how it stands with each mounted file server."""
    sheet = Sheet(asked.past)
    found = mounts(asked.tree("proc"))
    if found is None:
        sheet.unknown("What is mounted cannot be read.")
        return sheet.outcome("")
    kinds = {kind.strip() for kind in str(asked.options["kinds"]).split(",")} - {""}
    remote = {mount.folder: mount for mount in found if mount.kind in kinds}
    chosen = dict(list(remote.items())[:MOST_MOUNTS])
    asks = {folder: partial(ask, folder) for folder in chosen}
    answers = apart.asked(asks, limit_s=asked.limit("answer_s"), stuck=asked.past.notes("stuck"))
    asked.past.note("stuck", answers.stuck)
    for folder, said in answers.said.items():
        _judge(asked, sheet, folder, chosen[folder].source, said)
    for folder in answers.silent:
        text = f"{folder} (from {chosen[folder].source}) did not answer within {asked.limit('answer_s'):g} s."
        fields = {"check": "file_servers", "device": folder, "server": chosen[folder].source}
        sheet.stands(Trouble(code="probe-hang", place=folder, evidence=text, fields=fields))
    sheet.measured |= {"mounts": len(remote), "silent": list(answers.silent)}
    if not remote:
        return sheet.outcome("Nothing to look at: nothing is mounted from a file server.")
    return sheet.outcome(f"{len(chosen)} mounts from file servers answer.")


def ask(folder: str) -> dict[str, Any]:
    """Ask the server of a mount for its size; return how long that took, or the error."""
    began = steady()
    try:
        os.statvfs(folder)
    except OSError as error:
        return {"failed": error.errno or 0}
    return {"failed": 0, "seconds": steady() - began}


def _judge(asked: Asked, sheet: Sheet, folder: str, source: str, said: Mapping[str, Any]) -> None:
    failed, seconds = said.get("failed"), said.get("seconds")
    fields = {"device": folder, "server": source}
    if not isinstance(failed, int):
        sheet.unknown(f"{folder}: {said.get('error') or 'no answer that can be understood'}.")
    elif failed:
        text = f"{folder} (from {source}) cannot be read: {os.strerror(failed)}."
        sheet.stands(Trouble(code="mount-failed", place=folder, evidence=text, fields=fields))
    slow = isinstance(seconds, float) and seconds >= asked.limit("slow_s")
    if asked.past.held_s(f"{folder} slow", slow):
        text = f"{folder} (from {source}) took {seconds:.1f} s to answer, twice in a row."
        sheet.stands(Trouble(code="mount-slow", place=folder, evidence=text, fields=fields))
