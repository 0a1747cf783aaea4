"""What does the kernel's log tell of this node? A child follows it (`kernel_log.py`); this says whom it is about.

The place up to which all is told is kept with the findings in one write, so an agent that starts again goes on where
the last one ended.
"""

import json
import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from reliability.agent.clock import steady
from reliability.agent.collectors import saying
from reliability.agent.collectors.checking import Found
from reliability.agent.collectors.following import SILENT_S, Following
from reliability.agent.collectors.found import NODE, Ready, Reports, Whose, body_of, heard
from reliability.agent.collectors.standing import Standings
from reliability.agent.collectors.whereabouts import OTHER
from reliability.agent.config import LogChoice
from reliability.agent.probes.children import Children
from reliability.domain.faults import TABLE, Weight

MODULE = "reliability.agent.collectors.kernel_log"
NAME = "kernel_log"
KEEP_S = 10.0
"""How often a place is kept when nothing was found."""

Changes = Mapping[str, Mapping[str, Any]]

log = logging.getLogger("stepkeeper.agent")


class NodeKernelLog:
    """The kernel's log of this node."""

    def __init__(
        self,
        choice: LogChoice,
        *,
        children: Children,
        standings: Standings,
        reports: Reports,
        place: Callable[[str], str | None],
        whose: Callable[[Mapping[str, Any]], Whose | None],
        changes: Changes,
    ) -> None:
        self._choice = choice
        self._source = f"{NAME}:{choice.kind}:{choice.path}"
        self._standings = standings
        self._reports = reports
        self._whose = whose
        self._changes = changes
        self._place = place(self._source)
        self._kept_at = steady()
        self._following = Following(NAME, MODULE, children, wanted=self._wanted, hear=self._hear, lost=self._lost)

    def start(self) -> None:
        """Begin to follow it."""
        self._standings.expect(NAME, SILENT_S)
        self._following.start()

    def stop(self) -> None:
        """End, keeping how far it was told."""
        self._following.stop()
        self._keep_place()

    def pid(self) -> int | None:
        """Return the process id of the child."""
        return self._following.pid()

    def use(self, changes: Changes) -> None:
        """Have lines judged by the fault table with these changes."""
        self._changes = changes
        self._following.tell({"changes": changes})

    def _wanted(self) -> dict[str, Any]:
        return {
            "kind": self._choice.kind,
            "path": self._choice.path,
            "programs": self._choice.programs,
            "place": None if self._place is None else json.loads(self._place),
            "changes": self._changes,
        }

    def _lost(self, why: str) -> None:
        self._standings.doubt(NAME, f"The kernel's log is not followed: {why}")

    def _hear(self, said: Mapping[str, Any]) -> None:
        kind = said.get("t")
        if kind == "state":
            self._stands(said)
        elif kind == "found":
            self._found(said)
        elif kind == "beat":
            self._beat(said)

    def _stands(self, said: Mapping[str, Any]) -> None:
        measured = {"source": f"{self._choice.kind}:{self._choice.path}".rstrip(":")}
        if said.get("ok") is True:
            self._standings.note(NAME, True, "", measured, ended_at=steady())
        else:
            self._standings.doubt(NAME, saying.text(said, "reason"))

    def _beat(self, said: Mapping[str, Any]) -> None:
        self._standings.live(NAME)
        if isinstance(said.get("place"), dict):
            first = self._place is None
            self._place = json.dumps(said["place"])
            if first or steady() - self._kept_at >= KEEP_S:
                self._keep_place()

    def _found(self, said: Mapping[str, Any]) -> None:
        told = [found for each in said.get("findings") or () if (found := heard(each)) is not None]
        place = json.dumps(said["place"]) if isinstance(said.get("place"), dict) else None
        self._reports.report_found([self._ready(found) for found in told], source=self._source, place=place)
        self._place = place or self._place
        self._kept_at = steady()

    def _ready(self, found: Found) -> Ready:
        whose = self._whose(found.fields)
        if whose is None:
            found = replace(found, fields={**found.fields, "process_of": OTHER})
        whose = whose or NODE
        body = body_of(found, whose)
        if TABLE.lookup(found.code).weight is Weight.WITNESS:
            return body, whose.job, whose.epoch
        return body, "", 0  # what is wrong with a node counts whatever attempt is in charge when it arrives

    def _keep_place(self) -> None:
        if self._place is not None:
            self._kept_at = steady()
            self._reports.report_found([], source=self._source, place=self._place)
