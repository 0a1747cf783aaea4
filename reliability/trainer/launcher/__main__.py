"""Starts the launcher: `python -m stepkeeper.launcher [--preload MODULE ...]`.

Environment: STEPKEEPER_DIR names the job's folder. STEPKEEPER_PRELOAD lists modules as --preload does, separated by
commas. STEPKEEPER_PARENT_DEATH=1 ends the launcher with its parent, where it is no container's process 1.
"""

import argparse
import contextlib
import gc
import importlib
import importlib.util
import os
import re
import sys
import time
from collections.abc import Iterable
from pathlib import Path

from .. import __name__ as client_name
from ..folder import JobFolder, write_json
from ..hints import Hints
from . import linux, rank
from .attempts import Attempts, InRank
from .supervisor import Supervisor, say

USAGE_ERROR = 2
_PACKAGE = Path(__file__).resolve().parent.parent


def main() -> int:
    """Run the launcher; in a forked rank, run the rank's program. Returns the process's exit code."""
    modules, folder = _arguments()
    parent = linux.watch_parent() if os.environ.get("STEPKEEPER_PARENT_DEATH") == "1" else None
    linux.adopt_orphans()
    try:
        _serve(modules, folder, parent)
    except InRank as forked:
        start = forked.start
    else:
        return 0
    return rank.run(start)


def _arguments() -> tuple[list[str], JobFolder]:
    parser = argparse.ArgumentParser(prog="stepkeeper.launcher", description="Runs the ranks of one job on this node.")
    parser.add_argument("--preload", action="append", default=[], help="module to import once, before any fork")
    given = parser.parse_args()
    root = os.environ.get("STEPKEEPER_DIR", "")
    if not Path(root).is_absolute() or not Path(root).is_dir():
        parser.error(f"STEPKEEPER_DIR must name the job's folder by an absolute path, not {root!r}")
    words = [*given.preload, os.environ.get("STEPKEEPER_PRELOAD", "")]
    return [name for word in words for name in re.split(r"[\s,]+", word) if name], JobFolder(Path(root))


def _serve(modules: list[str], folder: JobFolder, parent: int | None) -> None:
    began = time.monotonic()
    folder.make()
    ready = folder.ctl / "ready.json"
    ready.unlink(missing_ok=True)
    client = _client_path(folder)
    preloaded, failed = _preload(modules)
    attempts = Attempts(folder, client)
    supervisor = Supervisor(folder, attempts, parent)
    seconds = time.monotonic() - began
    write_json(ready, {"pid": os.getpid(), "preloaded": preloaded, "failed": failed, "seconds": seconds})
    Hints(folder.agent_socket).send("ready")
    supervisor.run()


def _preload(modules: Iterable[str]) -> tuple[list[str], dict[str, str]]:
    """Import modules ahead of the forks. One that fails is left to the program, whose own error says more."""
    preloaded, failed = [], {}
    for name in dict.fromkeys(modules):
        try:
            importlib.import_module(name)
        except Exception as error:
            failed[name] = f"{type(error).__name__}: {error}"
            say(f"cannot preload {name}, the ranks will import it themselves: {failed[name]}")
        else:
            preloaded.append(name)
    threads = len(list(Path("/proc/self/task").iterdir()))
    if threads > 1:
        say(f"preloading started {threads - 1} threads, which the ranks will not have; set OMP_NUM_THREADS=1")
    gc.collect()
    gc.freeze()  # the garbage collector of a rank leaves the shared pages alone
    return preloaded, failed


def _client_path(folder: JobFolder) -> str:
    """Let programs `import stepkeeper` also where the launcher runs from another package and the wheel is missing.

    Returns the folder that the module path of a rank needs for that, '' when it needs none.
    """
    if client_name == "stepkeeper" or importlib.util.find_spec("stepkeeper") is not None:
        return ""
    place = folder.run / "client"
    place.mkdir(exist_ok=True)
    link = place / "stepkeeper"
    with contextlib.suppress(FileNotFoundError):
        link.unlink()
    link.symlink_to(_PACKAGE)
    sys.path.append(str(place))
    return str(place)


if __name__ == "__main__":
    sys.exit(main())
