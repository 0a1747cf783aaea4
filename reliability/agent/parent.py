"""How does a child end together with the agent, however the agent ends?"""

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def end_with_parent(parent: int) -> None:
    """Ask the kernel to kill this process when the thread that started it is gone; Linux only.

    The parent may have died before the request took effect, so that is looked at afterwards.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        raise SystemExit("The agent is gone: a child of it does not go on alone.")
