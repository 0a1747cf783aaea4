"""Which checks run on this node, and with which values? The operator's checks file (TOML) says so, a section a check.

    [mounts]
    enabled = false
    [disks]
    period_s = 30
    limit_s = 10
    least_free_share = 0.05

What the file does not name stays as `docs/checks.md` lists it.
"""

import math
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from reliability.agent.collectors.checking import Check, Option
from reliability.errors import InvalidInput

LEAST_S, MOST_S = 0.1, 86400.0
MOST_NUMBER = 1e12
SHOWN = 60
"""Characters of a wrong value that are told."""
_FIELD = "--checks-file"


def chosen(known: Sequence[Check], file: Path | None) -> dict[str, dict[str, Option]]:
    """Return name -> values (its options, period_s, limit_s) of each check that runs. Raises InvalidInput."""
    sections = {} if file is None else _sections(file)
    names = [check.name for check in known]
    if unknown := sorted(set(sections) - set(names)):
        raise InvalidInput(_FIELD, f"{unknown[0]!r} is no check", hint=f"There are: {', '.join(names) or 'none'}.")
    wanted = {}
    for check in known:
        section = sections.get(check.name, {})
        if _value(check.name, "enabled", section.get("enabled", check.enabled), True):
            wanted[check.name] = _values(check, section)
    return wanted


def _sections(file: Path) -> dict[str, dict[str, Any]]:
    try:
        read = tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInput(_FIELD, f"{file} cannot be read", hint="Name a TOML file.") from error
    except tomllib.TOMLDecodeError as error:
        raise InvalidInput(_FIELD, f"{file}: {error}", hint="A section a check, as in [disks].") from error
    except (ValueError, RecursionError) as error:  # thousands of digits, or of brackets in brackets
        message = f"{file} holds a number too long, or values nested too deep, to be read"
        raise InvalidInput(_FIELD, message, hint="A section a check, as in [disks].") from error
    loose = sorted(name for name, value in read.items() if not isinstance(value, dict))
    if loose:
        raise InvalidInput(_FIELD, f"{loose[0]!r} stands outside a section", hint="A section a check, as in [disks].")
    return read


def _values(check: Check, section: Mapping[str, Any]) -> dict[str, Option]:
    defaults: dict[str, Option] = {**check.options, "period_s": check.period_s, "limit_s": check.limit_s}
    allowed = {*defaults, "enabled"}
    if unknown := sorted(set(section) - allowed):
        raise InvalidInput(
            _FIELD, f"{check.name}.{unknown[0]} cannot be set", hint=f"There are: {', '.join(sorted(allowed))}."
        )
    values = {name: _value(check.name, name, section.get(name, default), default) for name, default in defaults.items()}
    for name in ("period_s", "limit_s"):
        if not LEAST_S <= float(values[name]) <= MOST_S:
            hint = f"A number of seconds from {LEAST_S:g} to {MOST_S:g}."
            raise InvalidInput(_FIELD, f"{check.name}.{name} {values[name]!r} cannot be used", hint=hint)
    return values


def _value(check: str, name: str, value: Any, default: Option) -> Option:
    """Return a value of the type that the default has; a whole number may stand for one with a fraction."""
    if isinstance(default, str) and isinstance(value, str):
        return _text(check, name, value, default)
    if isinstance(default, bool) and isinstance(value, bool):
        return value
    number = _finite(value)
    if number is not None and not isinstance(default, bool | str):
        return _number(check, name, number)
    words = {bool: "true or false", str: "a text"}.get(type(default), "a number")
    raise InvalidInput(_FIELD, f"{check}.{name} {_shown(value)} cannot be used", hint=f"It must be {words}.")


def _finite(value: Any) -> float | None:
    """Return a number, None for what is none or is beyond all numbers with a fraction."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None


def _shown(value: Any) -> str:
    """Return what was written, its beginning when it is long; numbers of thousands of digits have no text."""
    try:
        shown = repr(value)
    except ValueError:
        return "of thousands of digits"
    return shown if len(shown) <= SHOWN else f"{shown[:SHOWN]}..."


def _text(check: str, name: str, value: str, default: str) -> str:
    if default.startswith("/") and not value.startswith("/"):
        raise InvalidInput(
            _FIELD, f"{check}.{name} {_shown(value)} cannot be used", hint=f"A whole path, as {default}."
        )
    return value


def _number(check: str, name: str, value: float) -> float:
    """What an option's name ends with tells what numbers make sense."""
    most = 1.0 if name.endswith("_share") else MOST_S if name.endswith("_s") else MOST_NUMBER
    if not 0 <= value <= most:
        hint = f"A number from 0 to {most:g}."
        raise InvalidInput(_FIELD, f"{check}.{name} {value:g} cannot be used", hint=hint)
    return value
