"""In CI a skipped test is a failure: a suite that could not run must not look as if it had passed."""

import os

import pytest

_skipped: dict[str, str] = {}


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Remember what was skipped, and why."""
    if report.skipped and not hasattr(report, "wasxfail"):
        _skipped[report.nodeid] = (
            str(report.longrepr[2]) if isinstance(report.longrepr, tuple) else str(report.longrepr)
        )


def pytest_collectreport(report: pytest.CollectReport) -> None:
    """Remember modules that were skipped whole."""
    if report.skipped:
        _skipped[report.nodeid] = str(report.longrepr)


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fail the session in CI when anything was skipped."""
    if _skipped and os.environ.get("CI") == "true" and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say which, and what it means here."""
    if _skipped and os.environ.get("CI") == "true":
        terminalreporter.section("skipped, which is a failure in CI", sep="!", red=True)
        for nodeid, reason in _skipped.items():
            terminalreporter.line(f"{nodeid}: {reason}")
