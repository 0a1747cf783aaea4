"""How does a collector begin and end as a child of the agent?"""

import argparse
import contextlib
import os
import signal
from collections.abc import Callable
from typing import Any

from reliability.agent.collectors.saying import Hearing
from reliability.agent.parent import end_with_parent


def attend(serve: Callable[[Hearing, dict[str, Any]], None]) -> None:
    """Serve until the agent is gone: `serve` gets what the agent goes on saying, and what it wanted first."""
    parser = argparse.ArgumentParser()
    parser.add_argument("mode")
    parser.add_argument("--parent", type=int, required=True, help="process id of the agent")
    end_with_parent(parser.parse_args().parent)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the agent, which ends its collectors itself
    hearing = Hearing()
    wanted = _first(hearing)
    if wanted is not None:
        with contextlib.suppress(BrokenPipeError):
            serve(hearing, wanted)


def _first(hearing: Hearing) -> dict[str, Any] | None:
    while data := os.read(0, 65536):
        for message in hearing.feed(data):
            return _with_news(message, hearing)
    return None


def _with_news(wanted: dict[str, Any], hearing: Hearing) -> dict[str, Any]:
    """Return what is wanted with what the agent said since: the machine may be slow, and both come at once."""
    for news in hearing.feed(b""):
        wanted = {**wanted, **news}
    return wanted
