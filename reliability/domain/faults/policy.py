"""What does the policy of the job or cluster make of a fault of some class, in place of what the table says?

It changes what is done about a fault that asks for a restart or for another node. What the table only observes stays
observed, and what it holds for a person stays held: no restart helps there. Where a rank ended, nothing is only
observed: the job waits for a person. Each finding gets the action of its own class before the root is chosen, so that a
policy for one class says nothing of another fault beside it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from reliability.domain.faults.findings import Context, Judgement
from reliability.domain.faults.weighing import Weighed
from reliability.domain.faults.words import Action, FaultClass

CHANGEABLE = (Action.RESTART_IN_PLACE, Action.FAILOVER)


def wanted(fault_class: str, action: Action, actions: Mapping[str, str], *, ranks_ended: bool) -> Action | None:
    """Return what the policy wants instead of an action, None where it wants nothing else."""
    told = actions.get(fault_class)
    if told is None or told == action or action not in CHANGEABLE:
        return None
    return Action.HOLD if told == Action.OBSERVE and ranks_ended else Action(told)


def sentence(fault_class: FaultClass, became: Action, was: Action) -> str:
    """Say that a policy changed an action."""
    words = was.replace("_", " ")
    return f"The policy for class {fault_class} is {became.replace('_', ' ')}; the table says {words}."


def apply(items: Sequence[Weighed], context: Context) -> list[Weighed]:
    """Return weighed findings, each with what the policy wants for its class."""
    return [_applied(each, context) for each in items]


def _applied(item: Weighed, context: Context) -> Weighed:
    became = wanted(item.fault_class, item.action, context.class_actions, ranks_ended=context.ranks_ended)
    return item if became is None else replace(item, action=became, tabled=item.action)


def by_policy(judgement: Judgement, actions: Mapping[str, str], *, ranks_ended: bool) -> Judgement:
    """Return a judgement of consequences alone with what the policy wants for its class."""
    became = wanted(judgement.fault_class, judgement.action, actions, ranks_ended=ranks_ended)
    if judgement.undecided or became is None:
        return judgement
    told = sentence(judgement.fault_class, became, judgement.action)
    return replace(judgement, action=became, reasons=(*judgement.reasons, told))
