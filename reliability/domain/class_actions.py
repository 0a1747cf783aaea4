"""How is a policy written that says which action the faults of a class get? What it means: `faults/policy.py`."""

from collections.abc import Mapping

from reliability.domain.faults import Action, FaultClass
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
