"""How do the files of a program's own snapshot come back into a folder that a person names?"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from reliability.errors import InvalidInput

KIND = "stepkeeper_folder"


def holds_files(state: Any) -> bool:
    """Return whether a state is what a program wrote itself (docs/adr/0015-program-folders.md)."""
    return isinstance(state, Mapping) and KIND in state


def write(state: Any, folder: Path) -> None:
    """Write the files of such a state below a folder, which is made; other ranks' files may lie there already.

    Raises InvalidInput when the state is none, or a file would lie outside.
    """
    if not holds_files(state):
        raise InvalidInput(
            "--to", f"{folder.name} tells no format", hint="End it with .safetensors, .pt or .pth: it is no folder."
        )
    about = state[KIND]
    folder.mkdir(parents=True, exist_ok=True)
    for path in about.get("folders", ()):
        _below(folder, path).mkdir(parents=True, exist_ok=True)
    for path, content in about.get("files", {}).items():
        target = _below(folder, path or about["name"])
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)
    for path, target in about.get("links", ()):
        if not os.path.lexists(link := _below(folder, path)):
            link.symlink_to(target)


def _below(folder: Path, path: str) -> Path:
    """Return the place of a file. Links are made last, so that none is written through."""
    parts = Path(path).parts
    if not parts or ".." in parts or Path(path).is_absolute():
        raise InvalidInput("snapshot", f"holds a path that leads outside: {path!r}")
    return folder.joinpath(*parts)
