"""Starts the agent: `python -m reliability.agent --server URL --name NAME ...` (see --help)."""

import logging
import os
import signal
import sys
import threading
from types import FrameType

from reliability.agent import config, identity
from reliability.agent.node import AgentNode
from reliability.errors import ReliabilityError
from reliability.runtimes.choose import make_runtime

USAGE_ERROR = 2
REFUSED = 1
HARD_LIMIT_S = 20.0


def main() -> int:
    """Run the agent; return 2 for a wrong option, 1 when the server refuses this node."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s", stream=sys.stderr)
    for library in ("httpx", "celery", "kombu"):
        logging.getLogger(library).setLevel(logging.WARNING)
    try:
        settings = config.parse(sys.argv[1:])
        lock = identity.claim(settings.data_dir)
        runtime = make_runtime(
            settings.runtime, engine_url=settings.docker_url, state_dir=settings.data_dir / "processes"
        )
        agent = AgentNode(settings, runtime)
    except ReliabilityError as error:
        return _say(error, USAGE_ERROR)

    def end(_number: int, _frame: FrameType | None) -> None:
        agent.stop()
        # A call that hangs, as on a dead network disk, must not keep the agent from ending.
        limit = threading.Timer(HARD_LIMIT_S, lambda: os._exit(REFUSED))
        limit.daemon = True
        limit.start()

    signal.signal(signal.SIGTERM, end)
    signal.signal(signal.SIGINT, end)
    with lock:
        try:
            return agent.run()
        except ReliabilityError as error:
            return _say(error, REFUSED)


def _say(error: ReliabilityError, code: int) -> int:
    sys.stderr.write(f"stepkeeper agent: {error.message} {error.hint}".rstrip() + "\n")
    return code


if __name__ == "__main__":
    exit_code = main()
    logging.shutdown()
    # Threads of the worker may still wait for a broker that is away; nothing they hold is needed any more.
    os._exit(exit_code)
