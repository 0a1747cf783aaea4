"""The checks of a real agent: all stand in its heartbeats, findings reach the server, the documentation names each."""

from itertools import pairwise
from pathlib import Path
from typing import Any

from reliability.agent.collectors.checks import CHECKS
from tests.agent.conftest import AgentProcess
from tests.agent.ingest import Ingest, until

DOCS = Path(__file__).resolve().parents[2] / "docs/checks.md"
CARRIER = "class/net/eth0/carrier"
QUICK = """
[links]
root = "{root}"
period_s = 0.3
[tiers]
period_s = 1
least_free_share = 0
"""


def test_every_check_and_each_of_its_options_is_documented_with_its_default() -> None:
    sections = {part.split("\n", 1)[0]: part for part in DOCS.read_text().split("\n### ")[1:]}
    assert set(sections) == {check.name for check in CHECKS}
    for check in CHECKS:
        section = sections[check.name]
        assert f"Every {check.period_s:g} s, limit {check.limit_s:g} s." in section
        for name, default in check.options.items():
            assert f"`{name}`" in section, (check.name, name)
            told = {True: "true", False: "false"}.get(default) if isinstance(default, bool) else None
            shown = told or (default if isinstance(default, str) else f"{default:g}")
            assert not shown or shown in section.partition("Options:")[2], (check.name, name, shown)


def test_a_real_agent_tells_all_checks_and_what_they_find(folder: Path, ingest: Ingest) -> None:
    root = folder / "sys"
    carrier = root / CARRIER
    carrier.parent.mkdir(parents=True)
    (carrier.parent / "device").mkdir()
    carrier.write_text("1\n")
    file = folder / "checks.toml"
    file.write_text(QUICK.format(root=root))
    agent = AgentProcess(folder, ingest.url, ingest.node)
    agent.start("--checks", "yes", "--checks-file", str(file))
    try:
        names = {check.name for check in CHECKS}
        until(lambda: names <= _results(ingest).keys(), 60)
        assert _results(ingest)["tiers"]["measured"]["ssd"]["free_bytes"] > 0
        assert _results(ingest)["links"]["measured"]["links"] == {"eth0": "cannot be read"}
        until(lambda: _looks(ingest) > 3, 30)
        carrier.write_text("0\n")
        until(lambda: "net-link-down" in _found(ingest), 30)
        carrier.write_text("1\n")
        until(lambda: "net-link-down-over" in _found(ingest), 30)
        until(lambda: _results(ingest)["links"]["ok"], 30)
    finally:
        agent.end()
    assert [path for path in (folder / "ssd").rglob("*") if path.is_file()] == []


def _results(ingest: Ingest) -> dict[str, Any]:
    """Return the checks of the newest heartbeat that have come to a result."""
    checks = ingest.beats[-1].get("checks", {}) if ingest.beats else {}
    return {name: each for name, each in checks.items() if each["ok"] is not None}


def _looks(ingest: Ingest) -> int:
    """Return how often the links were looked at, by how often their age fell."""
    ages = [beat["checks"]["links"]["age_s"] for beat in list(ingest.beats) if "links" in beat.get("checks", {})]
    return sum(later < earlier for earlier, later in pairwise(ages))


def _found(ingest: Ingest) -> list[str]:
    return [each["code"] for each in ingest.of_kind("finding")]
