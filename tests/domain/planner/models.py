"""The table of cases for laws, levels, rates, standbys and published runs, and how closely it is met."""

import json
from pathlib import Path
from typing import Any

import pytest

MODELS: dict[str, Any] = json.loads(Path(__file__).with_name("models.json").read_text())


def near(value: float, tolerance: float = 1e-9) -> Any:
    return pytest.approx(value, rel=tolerance)


def within(simulated: dict[str, float], errors: float = 4.0) -> Any:
    """Compare with a simulated rate, so many standard errors either way."""
    return pytest.approx(simulated["ettr"], abs=errors * simulated["standard_error"])
