"""How do the files of a program's own snapshot come back into a folder that a person names?"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from reliability.errors import InvalidInput
from reliability.tiers.step_folder import StepFolder

KIND = "stepkeeper_folder"


def holds_files(state: Any) -> bool:
    """Return whether a state is what a program wrote itself (docs/adr/0015-program-folders.md)."""
    return isinstance(state, Mapping) and KIND in state


@contextmanager
def opened(folder: Path) -> Iterator[Callable[[Any, Path], None]]:
    """Yield what writes the files of a rank's state below a folder, which is made; links are made at the end.

    Raises InvalidInput when a state holds no files; UnfitStep when a file would lie outside, or one with another
    content lies there.
    """
    into = StepFolder(folder)

    def write(state: Any, _folder: Path) -> None:
        if not holds_files(state):
            raise InvalidInput(
                "--to",
                f"{folder.name} names a folder, and this snapshot is one state and no files",
                hint="Name a file that ends with .safetensors, .pt or .pth.",
            )
        folder.mkdir(parents=True, exist_ok=True)
        _write(state[KIND], into)

    yield write
    into.finish()


def _write(about: Mapping[str, Any], into: StepFolder) -> None:
    for path in about.get("folders", ()):
        into.folder(path)
    for path, content in about.get("files", {}).items():
        if not into.file(path or about["name"], [content]):
            raise into.unlike(path or about["name"], hint="Choose an empty folder, or remove what lies there.")
    for path, target in about.get("links", ()):
        into.link(path, target)
