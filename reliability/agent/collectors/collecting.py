"""What does this node find out by itself, besides what orders ask? All its collectors together.

Each is a child of the agent. Findings are debounced where they are found and reported with the place in their source up
to which all is told, in one write: after a restart nothing is told twice and nothing is left out.
"""

from collections.abc import Callable, Collection, Mapping
from typing import Any

from reliability.agent.collectors import choosing, engine_answers, node_program_output
from reliability.agent.collectors.checks import CHECKS
from reliability.agent.collectors.engine_answers import EngineAnswers
from reliability.agent.collectors.found import Reports
from reliability.agent.collectors.node_checks import Facts, NodeChecks
from reliability.agent.collectors.node_kernel_log import Changes, NodeKernelLog
from reliability.agent.collectors.node_program_output import NodeProgramOutput
from reliability.agent.collectors.standing import Standings
from reliability.agent.collectors.whereabouts import Whereabouts
from reliability.agent.config import AgentConfig
from reliability.agent.localjob import LocalJob
from reliability.agent.periodic import Periodic
from reliability.agent.probes.children import Children
from reliability.ports import Runtime

FACTS_S = 2.0
WHEREABOUTS_S = 5.0


class Collectors:
    """The collectors of one node. Raises InvalidInput for a checks file that cannot be used."""

    def __init__(
        self,
        config: AgentConfig,
        *,
        reports: Reports,
        facts: Facts,
        place: Callable[[str], str | None],
        parts: Callable[[], Collection[LocalJob]],
        runtime: Runtime,
    ) -> None:
        """`place`: up to where a source was told; `parts`: this node's parts of jobs."""
        children = Children(config.data_dir / "log")
        self._facts = facts
        self._standings = Standings()
        self._whereabouts = Whereabouts(parts)
        self._checks = NodeChecks(
            CHECKS,
            choosing.chosen(CHECKS, config.checks_file) if config.checks else {},
            children=children,
            standings=self._standings,
            reports=reports,
            facts=self._all_facts,
            kept=config.data_dir / "checks.json",
        )
        self._kernel_log = config.kernel_log and NodeKernelLog(
            config.kernel_log,
            children=children,
            standings=self._standings,
            reports=reports,
            place=place,
            whose=self._whereabouts.whose,
            changes={},
        )
        self._output = config.program_output and NodeProgramOutput(
            children=children, standings=self._standings, reports=reports, parts=parts
        )
        self._duties = [
            Periodic("facts", FACTS_S, self._checks.tell_facts),
            Periodic("whereabouts", WHEREABOUTS_S, self._whereabouts.look),
        ]
        if self._output:
            self._duties.append(Periodic("outputs", node_program_output.LOOK_S, self._output.look))
        if runtime.kind == "docker":
            engine = EngineAnswers(runtime.ping, standings=self._standings, reports=reports)
            self._duties.append(Periodic("engine-answers", engine_answers.PERIOD_S, engine.look))

    def _all_facts(self) -> dict[str, Any]:
        containers = [{"job": job, "pid": pid} for job, pid in self._whereabouts.mains().items()]
        return {**self._facts(), "containers": containers}

    def start(self) -> None:
        """Start all that this node shall have."""
        self._checks.start()
        if self._kernel_log:
            self._kernel_log.start()
        if self._output:
            self._output.start()
        for duty in self._duties:
            duty.start()

    def stop(self) -> None:
        """End all."""
        for duty in self._duties:
            duty.stop()
        if self._output:
            self._output.stop()
        if self._kernel_log:
            self._kernel_log.stop()
        self._checks.stop()

    def use_table(self, changes: Changes) -> None:
        """Judge lines by the fault table with these changes: code -> values, as of `domain/faults/changing.py`."""
        if self._kernel_log:
            self._kernel_log.use(changes)
        if self._output:
            self._output.use(changes)

    def told(self) -> Mapping[str, Any]:
        """Return how every check stands, as a heartbeat carries it."""
        return self._standings.told()
