"""What is judged, in which context, and what it comes to. Instants are seconds of the server's clock."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from reliability.domain.faults.radius import RadiusRule, Reach, Sighting
from reliability.domain.faults.words import Action, FaultClass, Value

PRINTED = "output"
"""The source of a finding that an agent saw a program print that went on."""
LONGEST_EVIDENCE = 4000
"""Characters that are kept of what a finding was found in."""


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One observation. `at` is the server's receive time, seconds; `order` is the order of arrival.

    Nodes' own clocks order nothing: an agent sends what it saw in the order in which it saw it, so arrival orders the
    findings of one node; over nodes, what the lines themselves tell (sequence numbers, ranks) comes before arrival.
    `fields` are what the line carries; `count` how often the same was seen. `printed`: seen while the program that
    printed it went on.
    """

    code: str
    node: str
    at: float
    order: int
    rank: int | None = None
    epoch: int | None = None
    evidence: str = ""
    job: str = ""
    count: int = 1
    fields: Mapping[str, Value] = field(default_factory=dict, hash=False)
    printed: bool = False


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """An earlier end of the same job: which code on which nodes, at which step."""

    code: str
    nodes: frozenset[str]
    step: int


@dataclass(frozen=True, kw_only=True)
class Maintenance:
    """A planned time, from `start` until before `end`, in which what is found of a node is no fault.

    `observe`: nothing that is found of it is held against it; a job whose ranks ended there is only started again where
    it is. `stay`: no recovery moves a job away from it. `quiet`: its silence is planned, and no incident.
    """

    node: str
    start: float
    end: float
    reason: str = ""
    observe: bool = True
    stay: bool = True
    quiet: bool = True

    def covers(self, finding: Finding) -> bool:
        """Return whether a finding falls into it."""
        return finding.node == self.node and self.start <= finding.at < self.end


@dataclass(frozen=True, kw_only=True)
class Context:
    """What else is known when findings are judged.

    history: earlier findings of the same nodes, under whatever job. attempts: how the job ended before. step: the
    newest step any rank had reached. ranks: number of ranks of the job. rank_nodes: the node of each rank. addresses:
    the node behind each address. maintenance: planned times. ranks_ended: whether any rank of the attempt ended.
    progress_at: when the slowest rank was last seen to finish a step. patience_s: how long without a step is too long.
    sightings: the same codes on any node of the cluster of late. cluster_nodes: how many nodes there are. radius: when
    many nodes are too many. conditions: what was found before of the job's nodes that lasts, with what ended it.
    held_before: codes of this job that were held back for that a short while ago. suspects_replaced: nodes of this
    job that were replaced within a day on a suspicion alone.
    class_actions: the policy's action for a class of faults, in place of what the table says.
    """

    history: tuple[Finding, ...] = ()
    attempts: tuple[Attempt, ...] = ()
    step: int | None = None
    ranks: int | None = None
    rank_nodes: Mapping[int, str] = field(default_factory=lambda: MappingProxyType({}), hash=False)
    addresses: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}), hash=False)
    maintenance: tuple[Maintenance, ...] = ()
    ranks_ended: bool = True
    progress_at: float | None = None
    patience_s: float = 0.0
    sightings: tuple[Sighting, ...] = ()
    cluster_nodes: int = 0
    radius: RadiusRule = field(default_factory=RadiusRule)
    conditions: tuple[Finding, ...] = ()
    held_before: frozenset[str] = frozenset()
    suspects_replaced: frozenset[str] = frozenset()
    class_actions: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}), hash=False)


NO_CONTEXT = Context()


@dataclass(frozen=True, kw_only=True)
class Judgement:
    """What a set of findings comes to.

    `same_step` means: the job ended at the same step on other nodes before, so that its next batch is suspected.
    `undecided` means: wait, so far only consequences are known, or conditions that may end by themselves. `shared`
    means: so many nodes show the same within a minute (`reach`) that no single one is to be blamed; `meanwhile` is then
    what is done instead of moving anything, until a person says otherwise. `wide`: all codes that reached so far; no
    node is replaced because of one of them alone.
    """

    fault_class: FaultClass
    action: Action
    root: Finding | None
    reasons: tuple[str, ...]
    undecided: bool = False
    same_step: bool = False
    reach: Reach | None = None
    meanwhile: Action | None = None
    wide: frozenset[str] = frozenset()

    @property
    def shared(self) -> bool:
        """Whether it is one event of many nodes."""
        return self.reach is not None
