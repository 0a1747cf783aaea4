"""What every probe does at its start and end: take its request, answer with one line."""

import argparse
import json
import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from reliability.agent.parent import end_with_parent


def take(modes: Sequence[str]) -> tuple[str, dict[str, Any]]:
    """Return the mode and the request of this probe; from here on it ends together with the agent."""
    parser = argparse.ArgumentParser()
    parser.add_argument("mode", choices=modes)
    parser.add_argument("--parent", type=int, required=True, help="process id of the agent")
    options = parser.parse_args()
    end_with_parent(options.parent)
    request: dict[str, Any] = json.loads(sys.stdin.buffer.read())
    return options.mode, request


def answer(result: Mapping[str, Any]) -> None:
    """Write the probe's one line."""
    data = json.dumps(result).encode() + b"\n"
    while data:
        data = data[os.write(1, data) :]


def note(facts: Mapping[str, Any]) -> None:
    """Write a line for people into the probe's log."""
    os.write(2, json.dumps(facts).encode() + b"\n")
