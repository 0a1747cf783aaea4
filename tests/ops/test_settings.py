"""Every setting is documented with its real default, and a bad value stops the start with a clear sentence."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.ops.running import PROJECT, environment

READERS = {"env", "env_bool", "env_number", "kept_secret"}
DOCUMENTATION = PROJECT / "docs" / "settings.md"


def read_settings() -> dict[str, str]:
    """Return the names that settings.py reads, with their defaults where these are plain values."""
    found: dict[str, str] = {}
    for node in ast.walk(ast.parse((PROJECT / "webapp" / "settings.py").read_text())):
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in READERS):
            continue
        name, *rest = node.args
        if not isinstance(name, ast.Constant):
            continue
        defaults = [*rest, *(keyword.value for keyword in node.keywords if keyword.arg == "default")]
        try:
            found[f"STEPKEEPER_{name.value}"] = plain(ast.literal_eval(defaults[0])) if defaults else ""
        except ValueError:
            found[f"STEPKEEPER_{name.value}"] = ""
    return found


def plain(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:g}" if isinstance(value, float) else str(value)


def agent_variables() -> set[str]:
    text = (PROJECT / "reliability" / "agent" / "config.py").read_text()
    keys = [*re.findall(r'^    add\("(\w+)"', text, flags=re.MULTILINE), "preemptible"]
    return {f"STEPKEEPER_AGENT_{key.upper()}" for key in keys}


def server_table(page: Path = DOCUMENTATION) -> dict[str, str]:
    """Return the variables of a page's tables with their defaults as shown."""
    rows = [line for line in page.read_text().splitlines() if line.startswith("| `STEPKEEPER_")]
    return {cells[0].strip("` "): cells[1].strip("` ") for cells in (row.strip("|").split("|") for row in rows)}


def test_every_setting_is_on_the_page_and_nothing_else() -> None:
    assert set(server_table()) == set(read_settings())


def test_every_option_of_the_agent_is_on_the_page_and_nothing_else() -> None:
    assert set(re.findall(r"`(STEPKEEPER_AGENT_\w+)`", DOCUMENTATION.read_text())) - {
        "STEPKEEPER_AGENT_BROKER_URL"
    } == (agent_variables())


def test_plain_defaults_on_the_page_are_the_real_ones() -> None:
    real = {name: default for name, default in read_settings().items() if re.fullmatch(r"[\w.:,\[\]]+", default)}
    shown = server_table()
    assert len(real) > 15
    assert {name: shown[name] for name in real} == real


def test_the_readme_names_only_settings_that_exist_with_the_same_defaults() -> None:
    readme, shown = server_table(PROJECT / "README.md"), server_table()
    assert len(readme) >= 8
    assert readme == {name: shown[name] for name in readme}


def load(folder: Path, **settings: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", "import webapp.settings"]
    return subprocess.run(command, cwd=PROJECT, env=environment(folder, **settings), capture_output=True, text=True,
                          timeout=60, check=False)  # fmt: skip


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("HEARTBEAT_S", "often", "not a number"),
        ("HEARTBEAT_S", "0", "not between 0.1 and 60"),
        ("HEARTBEAT_S", "nan", "not between"),
        ("BROKER_PORT", "70000", "not between 1 and 65535"),
        ("DEBUG", "perhaps", "neither yes nor no"),
        ("BROKER_URL", "http://broker", "neither redis:// nor amqp://"),
        ("DATABASE_URL", "nonsense", "not a database address"),
        ("SECRET_KEY_FILE", "/nowhere/secret", "cannot read /nowhere/secret"),
    ],
)
def test_a_bad_value_is_told_with_the_name_of_its_variable(tmp_path: Path, name: str, value: str, words: str) -> None:
    run = load(tmp_path, **{name: value})
    assert run.returncode == 1
    last = run.stderr.strip().splitlines()[-1]
    assert last.startswith(f"django.core.exceptions.ImproperlyConfigured: STEPKEEPER_{name}")
    assert words in last


def test_a_folder_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    run = load(tmp_path / "file" / "data")
    assert "STEPKEEPER_DATA_DIR: cannot keep secrets in" in run.stderr


def test_secrets_are_made_once_and_only_their_owner_can_read_them(tmp_path: Path) -> None:
    assert load(tmp_path).returncode == 0
    made = {path.name: path.read_text() for path in tmp_path.glob("*.secret")}
    assert set(made) == {"secret_key.secret", "join_token.secret"}
    assert all(len(secret) >= 60 for secret in made.values())
    assert all(path.stat().st_mode & 0o077 == 0 for path in tmp_path.glob("*.secret"))
    assert load(tmp_path).returncode == 0
    assert made == {path.name: path.read_text() for path in tmp_path.glob("*.secret")}
