"""What do the ranks of this node print? A child follows it (`program_output.py`); this says which files there are.

An attempt that begins while this agent runs is read from its first line. What was printed before an agent or its child
began to look is not read again: its end comes with the report of the rank's exit.
"""

from collections.abc import Callable, Collection, Mapping
from typing import Any

from reliability.agent.clock import steady
from reliability.agent.collectors import saying
from reliability.agent.collectors.following import SILENT_S, Following
from reliability.agent.collectors.found import Reports, Whose, body_of, heard
from reliability.agent.collectors.standing import Standings
from reliability.agent.localjob import LocalJob
from reliability.agent.probes.children import Children
from reliability.domain.faults.findings import PRINTED

MODULE = "reliability.agent.collectors.program_output"
NAME = "program_output"
LOOK_S = 0.2

Changes = Mapping[str, Mapping[str, Any]]


class NodeProgramOutput:
    """The output of all ranks on this node."""

    def __init__(
        self,
        *,
        children: Children,
        standings: Standings,
        reports: Reports,
        parts: Callable[[], Collection[LocalJob]],
    ) -> None:
        self._standings = standings
        self._reports = reports
        self._parts = parts
        self._changes: Changes = {}
        self._known: set[str] = set()
        self._told: list[dict[str, Any]] = []
        self._following = Following(NAME, MODULE, children, wanted=self._wanted, hear=self._hear, lost=self._lost)

    def start(self) -> None:
        """Begin to follow."""
        self._known = {each["path"] for each in self._outputs()}
        self._standings.expect(NAME, SILENT_S)
        self._following.start()

    def stop(self) -> None:
        """End."""
        self._following.stop()

    def pid(self) -> int | None:
        """Return the process id of the child."""
        return self._following.pid()

    def use(self, changes: Changes) -> None:
        """Have lines judged by the fault table with these changes."""
        self._changes = changes
        self._following.tell({"changes": changes})

    def look(self) -> None:
        """Tell the child when there are other ranks than before."""
        outputs = self._outputs()
        if [each["path"] for each in outputs] != [each["path"] for each in self._told]:
            self._tell(outputs)

    def _tell(self, outputs: list[dict[str, Any]]) -> None:
        self._told = outputs
        self._following.tell({"outputs": outputs})
        self._known = {each["path"] for each in outputs}

    def _outputs(self) -> list[dict[str, Any]]:
        """Return the output of each rank of the attempts started here; `fresh`: nothing of it was read yet."""
        found = []
        for part in self._parts():
            record, folder = part.record, part.folder
            root = folder.root.resolve()
            for rank in record.ranks if record.unfenced else ():
                path = str(root / folder.log_path(record.started_epoch, rank).relative_to(folder.root))
                place = {"job": record.job, "epoch": record.started_epoch, "rank": rank, "path": path}
                found.append({**place, "fresh": path not in self._known})
        return found

    def _wanted(self) -> dict[str, Any]:
        return {"outputs": self._told, "changes": self._changes}

    def _lost(self, why: str) -> None:
        self._told = [{**each, "fresh": False} for each in self._told]
        self._standings.doubt(NAME, f"What the ranks print is not followed: {why}")

    def _hear(self, said: Mapping[str, Any]) -> None:
        kind = said.get("t")
        if kind == "state" and said.get("ok") is True:
            count = len(self._told)
            told = f"What {count} rank{'' if count == 1 else 's'} print is followed." if count else "No rank runs here."
            self._standings.note(NAME, True, told, {"ranks": count}, ended_at=steady())
        elif kind == "state":
            self._standings.doubt(NAME, saying.text(said, "reason"))
        elif kind == "found":
            self._found(said)

    def _found(self, said: Mapping[str, Any]) -> None:
        job, epoch = saying.text(said, "job"), said.get("epoch")
        told = [found for each in said.get("findings") or () if (found := heard(each)) is not None]
        if job and isinstance(epoch, int):
            ready = [({**body_of(each, Whose(job, epoch)), "source": PRINTED}, job, epoch) for each in told]
            self._reports.report_found(ready, source=NAME, place=None)
