"""Ends what a supervisor left, and removes its folders, however the supervisor ended.

Run as: python -m reliability.supervisor.sweeper INSTANCE [FOLDER ...]. It waits for the end of its standard
input, which only the supervisor holds open.
"""

import shutil
import sys

from reliability.supervisor.marked import kill_marked

LIMIT_S = 8.0


def main() -> int:
    """Wait, then sweep. Returns 1 when a process could not be ended."""
    instance, folders = sys.argv[1], sys.argv[2:]
    sys.stdin.buffer.read()
    left = kill_marked(instance, limit_s=LIMIT_S)
    for folder in folders:
        shutil.rmtree(folder, ignore_errors=True)
    return 1 if left else 0


if __name__ == "__main__":
    sys.exit(main())
