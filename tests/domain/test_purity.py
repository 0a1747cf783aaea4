"""The domain stays pure: the standard library only, no clock, no chance, no files but its own table."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import reliability.domain

FOLDER = Path(reliability.domain.__file__).parent
MODULES = sorted(FOLDER.rglob("*.py"))
IMPURE = {"time", "datetime", "random", "secrets", "os", "socket", "subprocess", "threading", "django"}


def imported(path: Path) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module)
    return names


@pytest.mark.parametrize("path", MODULES, ids=lambda path: ".".join(path.relative_to(FOLDER).with_suffix("").parts))
def test_a_module_imports_only_the_standard_library_and_the_domain(path: Path) -> None:
    for name in imported(path):
        top = name.split(".")[0]
        if top == "reliability":
            assert name == "reliability.errors" or name.startswith("reliability.domain")
        else:
            assert top in sys.stdlib_module_names
            assert top not in IMPURE


def test_the_whole_domain_loads_without_django() -> None:
    inside = [path.relative_to(FOLDER).with_suffix("").parts for path in MODULES if path.stem != "__init__"]
    names = ", ".join(".".join(("reliability.domain", *parts)) for parts in inside)
    code = f"import sys, {names}; raise SystemExit('django' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=30).returncode == 0
