"""How is a number read from the environment?"""

from collections.abc import Mapping

from .errors import ConfigurationError


def number(environment: Mapping[str, str], name: str, default: int) -> int:
    """Return a whole number, not negative. Raises ConfigurationError, which names the variable."""
    text = environment.get(name, "") or str(default)
    try:
        value = int(text)
    except ValueError:
        raise ConfigurationError(f"{name} must be a whole number, not {text!r}") from None
    if value < 0:
        raise ConfigurationError(f"{name} must not be negative, but is {value}")
    return value
