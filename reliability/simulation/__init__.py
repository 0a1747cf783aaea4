"""Does a plan hold where failures are simulated, or replayed from a record, instead of calculated?

An event-driven simulator of a training job. It shares nothing with the formulas of the planner: agreement between the
two is evidence for both. `check` takes a plan's inputs and a period; `replay` takes failures that really happened.
"""

from reliability.simulation.checking import check
from reliability.simulation.job import Job
from reliability.simulation.laws import Constant, Exponential, HyperExponential, Law, LogNormal, Weibull
from reliability.simulation.ledger import Check, Shares
from reliability.simulation.levels import Level, check_levels
from reliability.simulation.nodes import many_nodes
from reliability.simulation.replaying import Replayed, best_period, gaps_between, replay
from reliability.simulation.standbys import StandbyCheck, Standbys, fleet, gang_job
from reliability.simulation.tiers import Tiers, check_tiers

__all__ = [
    "Check",
    "Constant",
    "Exponential",
    "HyperExponential",
    "Job",
    "Law",
    "Level",
    "LogNormal",
    "Replayed",
    "Shares",
    "StandbyCheck",
    "Standbys",
    "Tiers",
    "Weibull",
    "best_period",
    "check",
    "check_levels",
    "check_tiers",
    "fleet",
    "gang_job",
    "gaps_between",
    "many_nodes",
    "replay",
]
