"""How is a value taken out of a message so that a wrong one is named by its dotted path?"""

from collections.abc import Mapping, Sequence
from typing import Any

from reliability.errors import InvalidInput

_MISSING: Any = object()


class Fields:
    """An object of a message and where it stands in it. Each reader raises InvalidInput for a value that is wrong."""

    def __init__(self, raw: object, path: str) -> None:
        if not isinstance(raw, Mapping):
            raise InvalidInput(path, f"{raw!r} is not an object", hint="See docs/protocol.md.")
        self.raw: Mapping[str, Any] = raw
        self._path = path

    def text(self, key: str, default: str = _MISSING) -> str:
        """Return a string."""
        return str(self._typed(key, str, "a text", default))

    def integer(self, key: str, default: int = _MISSING) -> int:
        """Return a whole number that is not negative."""
        value = self._typed(key, int, "a whole number", default)
        if isinstance(value, bool) or value < 0:
            raise self._wrong(key, value, "a whole number, 0 or more")
        return int(value)

    def number(self, key: str, default: float = _MISSING, *, most: float = float("inf")) -> float:
        """Return a number from 0 to `most`."""
        value = self._typed(key, (int, float), "a number", default)
        if isinstance(value, bool) or not 0 <= value <= most:
            raise self._wrong(key, value, f"a number from 0 to {most:g}")
        return float(value)

    def choice(self, key: str, allowed: Sequence[str], default: str = _MISSING) -> str:
        """Return one of the allowed texts."""
        value = self.text(key, default)
        if value not in allowed:
            raise self._wrong(key, value, f"one of {', '.join(allowed)}")
        return value

    def sequence(self, key: str, default: Sequence[Any] = _MISSING) -> Sequence[Any]:
        """Return a list of anything."""
        value: Sequence[Any] = self._typed(key, (list, tuple), "a list", default)
        return value

    def texts(self, key: str, default: Sequence[str] = _MISSING) -> tuple[str, ...]:
        """Return a list of strings."""
        values = self.sequence(key, default)
        if not all(isinstance(value, str) for value in values):
            raise self._wrong(key, values, "a list of texts")
        return tuple(values)

    def text_map(self, key: str) -> dict[str, str]:
        """Return an object of strings; numbers are taken as their text, as in an environment."""
        return {str(name): str(value) for name, value in self.inner(key, {}).raw.items()}

    def inner(self, key: str, default: Mapping[str, Any] = _MISSING) -> "Fields":
        """Return the object under a key."""
        return Fields(self._typed(key, Mapping, "an object", default), f"{self._path}.{key}")

    def optional(self, key: str) -> "Fields | None":
        """Return the object under a key, or None where there is none."""
        return None if self.raw.get(key) is None else self.inner(key)

    def items(self, key: str) -> list["Fields"]:
        """Return a list of objects."""
        return [Fields(item, f"{self._path}.{key}.{index}") for index, item in enumerate(self.sequence(key))]

    def _typed(self, key: str, kind: Any, words: str, default: Any) -> Any:
        value = self.raw.get(key, default)
        if value is _MISSING:
            raise InvalidInput(f"{self._path}.{key}", "is missing", hint=f"It must be {words}.")
        if not isinstance(value, kind):
            raise self._wrong(key, value, words)
        return value

    def _wrong(self, key: str, value: object, words: str) -> InvalidInput:
        return InvalidInput(f"{self._path}.{key}", f"{value!r} cannot be used", hint=f"It must be {words}.")
