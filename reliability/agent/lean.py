"""How does the agent stay free of what only the control plane needs, also where both are installed together?"""

import contextlib
import sys
from collections.abc import Iterator, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType


class _Refuser(MetaPathFinder):
    """Says of one package that it is not there."""

    def __init__(self, package: str) -> None:
        self._package = package

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Refuse the package; leave all others to the usual finders."""
        if fullname == self._package:
            raise ModuleNotFoundError(f"{fullname} is not loaded here", name=fullname)
        return None


@contextlib.contextmanager
def without(package: str) -> Iterator[None]:
    """Have imports inside the block do without a package that they would take along if it were installed."""
    refuser = _Refuser(package)
    sys.meta_path.insert(0, refuser)
    try:
        yield
    finally:
        sys.meta_path.remove(refuser)
