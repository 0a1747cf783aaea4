"""The domain stays pure: the standard library only, no clock, no chance, no files but its own table."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import reliability.domain

MODULES = sorted(Path(reliability.domain.__file__).parent.glob("*.py"))
IMPURE = {"time", "datetime", "random", "secrets", "os", "socket", "subprocess", "threading", "django"}


def imported(path: Path) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module)
    return names


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.stem)
def test_a_module_imports_only_the_standard_library_and_the_domain(path: Path) -> None:
    for name in imported(path):
        top = name.split(".")[0]
        if top == "reliability":
            assert name == "reliability.errors" or name.startswith("reliability.domain")
        else:
            assert top in sys.stdlib_module_names
            assert top not in IMPURE


def test_the_whole_domain_loads_without_django() -> None:
    names = ", ".join(f"reliability.domain.{path.stem}" for path in MODULES if path.stem != "__init__")
    code = f"import sys, {names}; raise SystemExit('django' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=30).returncode == 0
