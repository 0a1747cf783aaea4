"""Who is this agent across restarts? Its token, order key and queue, kept for its user alone."""

import fcntl
import json
import os
import secrets
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO

from reliability.domain import retrying
from reliability.domain.retrying import Schedule
from reliability.errors import InvalidInput
from reliability.tiers import opening

_FILE = "identity.json"
_LOCK = "agent.lock"


@dataclass(frozen=True, kw_only=True)
class Identity:
    """What the server gave this node when it joined."""

    node: str
    token: str
    order_key: str
    queue: str
    broker_url: str
    heartbeat_s: float
    lease_s: float
    silence_s: float = 0.0

    @property
    def schedule(self) -> Schedule:
        """When this agent tries again: it follows from the server's silence limit, where that is known."""
        if self.silence_s <= 0:
            return Schedule()
        return retrying.schedule(heartbeat_s=self.heartbeat_s, silence_s=self.silence_s)


def new_incarnation() -> str:
    """Return a name for this life of the agent; reports of an older life are told apart by it."""
    return secrets.token_hex(8)


def load(data_dir: Path) -> Identity | None:
    """Return the kept identity, or None on a node that never joined. Raises InvalidInput when it is damaged."""
    path = data_dir / _FILE
    try:
        return Identity(**json.loads(path.read_text()))
    except FileNotFoundError:
        return None
    except (ValueError, TypeError) as error:
        raise InvalidInput(
            "--data-dir",
            f"{path} is damaged: {error}",
            hint="Remove the file and give a join token: the node joins anew.",
        ) from error


def save(data_dir: Path, identity: Identity) -> None:
    """Keep the identity, readable by this user alone."""
    path = data_dir / _FILE
    part = path.with_suffix(f".{secrets.token_hex(6)}.part")
    handle = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(handle, "w") as file:
        json.dump(asdict(identity), file)
        file.flush()
        os.fsync(file.fileno())
    part.replace(path)
    opening.sync_folder(data_dir)  # a rename that is not on the disk is lost with the power


def claim(data_dir: Path) -> IO[str]:
    """Hold the data folder for this process alone; the lock ends with it. Raises InvalidInput when it is taken."""
    file = (data_dir / _LOCK).open("w")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        file.close()
        raise InvalidInput(
            "--data-dir", f"{data_dir} is in use by another agent", hint="One agent a node; end the other one first."
        ) from error
    return file
