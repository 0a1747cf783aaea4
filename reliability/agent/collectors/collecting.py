"""What does this node find out by itself, besides what orders ask? All its collectors together.

Each is a child of the agent. Findings are debounced where they are found and reported with the place in their source up
to which all is told, in one write: after a restart nothing is told twice and nothing is left out.
"""

from collections.abc import Mapping
from typing import Any

from reliability.agent.collectors import choosing
from reliability.agent.collectors.checks import CHECKS
from reliability.agent.collectors.found import Reports
from reliability.agent.collectors.node_checks import Facts, NodeChecks
from reliability.agent.collectors.standing import Standings
from reliability.agent.config import AgentConfig
from reliability.agent.periodic import Periodic
from reliability.agent.probes.children import Children

FACTS_S = 2.0


class Collectors:
    """The collectors of one node. Raises InvalidInput for a checks file that cannot be used."""

    def __init__(self, config: AgentConfig, *, reports: Reports, facts: Facts) -> None:
        children = Children(config.data_dir / "log")
        self._standings = Standings()
        self._checks = NodeChecks(
            CHECKS,
            choosing.chosen(CHECKS, config.checks_file) if config.checks else {},
            children=children,
            standings=self._standings,
            reports=reports,
            facts=facts,
            kept=config.data_dir / "checks.json",
        )
        self._telling = Periodic("facts", FACTS_S, self._checks.tell_facts)

    def start(self) -> None:
        """Start all that this node shall have."""
        self._checks.start()
        self._telling.start()

    def stop(self) -> None:
        """End all."""
        self._telling.stop()
        self._checks.stop()

    def told(self) -> Mapping[str, Any]:
        """Return how every check stands, as a heartbeat carries it."""
        return self._standings.told()
