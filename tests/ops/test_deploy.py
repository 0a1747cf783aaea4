"""The files of deploy/ name commands, settings and folders that exist."""

import ast
import re

import pytest
import yaml

from tests.ops.running import PROJECT
from tests.ops.test_settings import read_settings

COMPOSE = PROJECT / "deploy" / "compose.yaml"
DOCKERFILE = (PROJECT / "deploy" / "Dockerfile").read_text()


def test_compose_and_image_set_only_settings_that_exist() -> None:
    named = set(re.findall(r"\bSTEPKEEPER_\w+", COMPOSE.read_text() + DOCKERFILE))
    assert named <= set(read_settings())


def test_compose_needs_only_variables_that_the_example_lists() -> None:
    example = set(re.findall(r"^(\w+)=", (PROJECT / "deploy" / "env.example").read_text(), flags=re.MULTILINE))
    assert set(re.findall(r"\$\{(\w+)", COMPOSE.read_text())) == example


def test_there_is_one_beat_and_everything_that_is_depended_on() -> None:
    services = yaml.safe_load(COMPOSE.read_text())["services"]
    assert [name for name, service in services.items() if "beat" in str(service.get("command"))] == ["beat"]
    needed = {name for service in services.values() for name in service.get("depends_on", {})}
    assert needed <= set(services)


@pytest.mark.parametrize("folder", re.findall(r"^COPY (\S+)", DOCKERFILE, flags=re.MULTILINE))
def test_what_the_image_copies_is_there(folder: str) -> None:
    assert (PROJECT / folder).exists()


def test_the_controller_runs_with_the_options_that_up_gives_it() -> None:
    source = (PROJECT / "reliability" / "supervisor" / "control_plane.py").read_text()
    options = {node.value for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Constant)}
    given = yaml.safe_load(COMPOSE.read_text())["services"]["controller"]["command"]
    assert {option.split("=")[0] for option in given if option.startswith("--")} <= {str(option) for option in options}


@pytest.mark.parametrize("page", sorted(str(path.relative_to(PROJECT)) for path in PROJECT.glob("docs/**/*.md")))
def test_paths_named_in_the_documentation_exist(page: str) -> None:
    text = (PROJECT / page).read_text()
    named = re.findall(r"`((?:reliability|tests|docs|deploy|examples|webapp)/[\w./-]+)`", text)
    missing = [path for path in named if not (PROJECT / path).exists()]
    assert missing == []
