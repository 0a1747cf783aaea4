"""Which probes does this node run? Each is a child of its own with a hard limit of time (`children.py`)."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from reliability.agent.fields import Fields
from reliability.agent.probes.children import Children, ProbeCrashed, ProbeTimeout

__all__ = ["ProbeCrashed", "ProbeTimeout", "Probes"]

MOST_LIMIT_S = 600.0
MOST_BYTES = 2**30
MOST_ROUNDS = 100
_BANDWIDTH, _SDC = "reliability.agent.probes.bandwidth", "reliability.agent.probes.sdc"


class Probes:
    """Runs the probes of this node; their output for people goes to `log_dir`."""

    def __init__(self, log_dir: Path, parent: int | None = None) -> None:
        self._children = Children(log_dir, parent)

    def serve(self, payload: Mapping[str, Any]) -> dict[str, Any]:
        """Have a child listen for measurements of others for a while; return its port at once."""
        fields = Fields(payload, "payload")
        limit_s = _limit(fields)
        request = {"token": fields.text("token"), "limit_s": limit_s, "bytes": fields.integer("bytes")}
        return self._children.serve(_BANDWIDTH, request, limit_s=limit_s)[1]

    def measure(self, payload: Mapping[str, Any]) -> dict[str, Any]:
        """Measure the bandwidth to each peer, several rounds."""
        fields = Fields(payload, "payload")
        peers = [
            {"node": peer.text("node"), "address": peer.text("address"), "port": peer.integer("port")}
            for peer in fields.items("peers")
        ]
        limit_s = _limit(fields)
        request = {
            "peers": peers,
            "token": fields.text("token"),
            "bytes": min(fields.integer("bytes"), MOST_BYTES),
            "rounds": min(fields.integer("rounds"), MOST_ROUNDS),
            "limit_s": limit_s,
        }
        return self._children.run(_BANDWIDTH, "measure", request, limit_s=limit_s)

    def sdc(self, payload: Mapping[str, Any]) -> dict[str, Any]:
        """Compute what every healthy machine computes alike, several rounds, and return the digests."""
        fields = Fields(payload, "payload")
        request = {
            "seed": fields.integer("seed"),
            "rounds": min(fields.integer("rounds"), MOST_ROUNDS),
            "size": fields.integer("size"),
        }
        return self._children.run(_SDC, "run", request, limit_s=_limit(fields))

    def stop(self) -> None:
        """End all probes that still run."""
        self._children.stop()


def _limit(fields: Fields) -> float:
    return min(max(fields.number("limit_s"), 0.1), MOST_LIMIT_S)
