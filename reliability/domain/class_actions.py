"""Which action does a fault get here: that of the table, or what the policy of the job or cluster says for its class?

A policy changes what is done about a fault that asks for a restart or for another node. What the table only observes
stays observed, and what it holds for a person stays held: no restart helps there. Where a rank ended, nothing is only
observed: the job waits for a person.
"""

from collections.abc import Mapping
from dataclasses import replace

from reliability.domain.faults import Action, FaultClass, Judgement
from reliability.errors import InvalidInput

ClassActions = Mapping[FaultClass, Action]
CLASSES = tuple(each for each in FaultClass if each is not FaultClass.UNKNOWN)


def read(value: object, path: str) -> dict[str, str]:
    """Return class -> action as kept with a job. Raises InvalidInput naming the class or action that is none."""
    if not isinstance(value, Mapping):
        raise InvalidInput(path, "is not an object", hint='As in {"network": "hold", "thermal": "failover"}.')
    found: dict[str, str] = {}
    for name, action in value.items():
        if name == FaultClass.UNKNOWN:
            raise InvalidInput(f"{path}.{name}", "has a field of its own", hint="Set unknown_action.")
        if name not in CLASSES:
            raise InvalidInput(f"{path}.{name}", "is no class of faults", hint=f"Classes: {', '.join(CLASSES)}.")
        if not isinstance(action, str) or action not in set(Action):
            raise InvalidInput(
                f"{path}.{name}", f"{_shown(action)} is no action", hint=f"Actions: {', '.join(Action)}."
            )
        found[str(name)] = str(action)
    return found


def _shown(value: object) -> str:
    return repr(value[:60]) if isinstance(value, str) else f"a {type(value).__name__}"


def parse(text: str, path: str) -> dict[str, str]:
    """Return class -> action of a setting such as `network=hold, thermal=failover`. Raises InvalidInput."""
    pairs = [part.strip().partition("=") for part in text.split(",") if part.strip()]
    for name, sign, _ in pairs:
        if not sign:
            raise InvalidInput(path, f"{name!r} names no action", hint="As in network=hold,thermal=failover.")
    return read({name.strip(): action.strip() for name, _, action in pairs}, path)


def by_policy(judgement: Judgement, actions: Mapping[str, str], *, ranks_ended: bool) -> Judgement:
    """Return the judgement with the policy's action for its class; unchanged where that says nothing."""
    wanted = actions.get(judgement.fault_class)
    changeable = judgement.action in (Action.RESTART_IN_PLACE, Action.FAILOVER)
    if judgement.undecided or not changeable or wanted is None or wanted == judgement.action:
        return judgement
    if wanted == Action.OBSERVE and ranks_ended:
        wanted = Action.HOLD
    words = str(judgement.action).replace("_", " ")
    told = f"The policy for class {judgement.fault_class} is {wanted.replace('_', ' ')}; the table says {words}."
    return replace(judgement, action=Action(wanted), reasons=(*judgement.reasons, told))
