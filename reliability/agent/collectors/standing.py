"""What does each check of this node come to at this moment? A stale or unknown one never reads as well."""

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from reliability.agent.clock import steady
from reliability.agent.collectors import saying


@dataclass(frozen=True, kw_only=True)
class Standing:
    """One check. `ended_at` is when it last came to a result, by the node's steady clock."""

    ok: bool | None
    ended_at: float
    limit_s: float
    reason: str = ""
    measured: Mapping[str, Any] = field(default_factory=dict)

    def told(self, now: float) -> dict[str, Any]:
        """Return it as a heartbeat carries it (docs/protocol.md)."""
        return {
            "ok": self.ok,
            "age_s": round(max(now - self.ended_at, 0.0), 3),
            "limit_s": self.limit_s,
            "reason": self.reason[: saying.EVIDENCE],
            "measured": dict(self.measured),
        }


class Standings:
    """All checks of this node by name. Safe for several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._all: dict[str, Standing] = {}

    def expect(self, name: str, limit_s: float) -> None:
        """Have a check be known before its first result: not known to be well."""
        with self._lock:
            self._all[name] = Standing(ok=None, ended_at=steady(), limit_s=limit_s, reason="It has not ended yet.")

    def note(self, name: str, ok: bool | None, reason: str, measured: Mapping[str, Any], *, ended_at: float) -> None:
        """Take over a result."""
        with self._lock:
            if name in self._all:
                self._all[name] = replace(
                    self._all[name], ok=ok, reason=reason, measured=measured, ended_at=min(ended_at, steady())
                )

    def live(self, name: str) -> None:
        """Take note that what stands still holds; one that is not known to be well does not become so."""
        with self._lock:
            if name in self._all and self._all[name].ok is not None:
                self._all[name] = replace(self._all[name], ended_at=steady())

    def doubt(self, name: str, reason: str) -> None:
        """Have a check be unknown from now on; its age goes on from its last result."""
        with self._lock:
            if name in self._all:
                self._all[name] = replace(self._all[name], ok=None, reason=reason)

    def told(self) -> dict[str, dict[str, Any]]:
        """Return all as a heartbeat carries them."""
        now = steady()
        with self._lock:
            return {name: standing.told(now) for name, standing in self._all.items()}
