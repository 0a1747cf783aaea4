"""Does a plan hold on failures that really happened? Two stretches of 200 from the record of one large machine.

Its start-up failed five times a day, two years later less than twice; in both the failures come in clusters.
"""

from datetime import datetime
from pathlib import Path

import numpy as np
import pytest

from reliability.domain.planner import Inputs, ModelPlan, exact
from reliability.simulation import Job, Replayed, best_period, gaps_between, replay
from reliability.simulation.laws import Floats
from tests.simulation.known import DAY_S

RECORD = Path(__file__).with_name("lanl_system20.txt")
EPOCH = datetime(2001, 1, 1)  # noqa: DTZ001 - the record tells local times without a zone


def stretches() -> dict[str, list[float]]:
    """Return the instants in seconds, by the name of the stretch."""
    found: dict[str, list[float]] = {}
    name = ""
    for line in RECORD.read_text().splitlines():
        if line.startswith("["):
            name = line.strip("[]")
        elif not line.startswith("#"):
            day, *times = line.split()
            instants = (datetime.fromisoformat(f"{day} {time}") - EPOCH for time in times)
            found.setdefault(name, []).extend(instant.total_seconds() for instant in instants)
    return found


INSTANTS = stretches()
GAPS = {name: gaps_between(instants) for name, instants in INSTANTS.items()}
EARLY, LATE = GAPS["start-up"], GAPS["two years later"]


def planned(gaps: Floats) -> ModelPlan:
    """Plan from the mean of the gaps alone: O 60 s, R 600 s, D 120 s."""
    return exact.plan(
        Inputs(save_stall_s=60, mtbf_s=float(gaps.mean()), recovery_s=600, downtime_s=120, target=0.5)
    )  # fmt: skip


def shaped(period_s: float | None) -> Job:
    assert period_s is not None
    return Job(period_s=period_s, save_stall_s=60, recovery_s=600, downtime_s=120)


def best(gaps: Floats) -> Replayed:
    return best_period(gaps, shaped(1800), low_s=600, high_s=20_000)


def test_the_record_is_read_as_it_was_written() -> None:
    assert {name: len(instants) for name, instants in INSTANTS.items()} == {"start-up": 199, "two years later": 202}
    for instants in INSTANTS.values():
        assert instants == sorted(instants)
    assert pytest.approx(5.02, abs=0.01) == DAY_S / EARLY.mean()
    assert pytest.approx(1.77, abs=0.01) == DAY_S / LATE.mean()


@pytest.mark.parametrize("gaps", [EARLY, LATE], ids=list(GAPS))
def test_the_gaps_are_clustered_more_than_those_of_an_exponential_law(gaps: Floats) -> None:
    assert np.std(gaps) / np.mean(gaps) > 1.4
    assert (gaps == 0).any()


@pytest.mark.parametrize("gaps", [EARLY, LATE], ids=list(GAPS))
def test_with_the_right_rate_the_exponential_model_is_within_a_point_and_on_the_safe_side(gaps: Floats) -> None:
    plan = planned(gaps)
    found = replay(gaps, shaped(plan.period_s))
    assert found.ettr == pytest.approx(plan.ettr_max, abs=0.008)
    assert found.ettr >= plan.ettr_max
    assert best(gaps).ettr - found.ettr < 0.01


@pytest.mark.parametrize("gaps", [EARLY, LATE], ids=list(GAPS))
def test_a_plan_from_the_first_half_loses_less_than_a_point_in_the_second(gaps: Floats) -> None:
    first, second = np.array_split(gaps, 2)
    plan = planned(first)
    found = replay(second, shaped(plan.period_s))
    assert best(second).ettr - found.ettr < 0.01
    assert found.ettr == pytest.approx(planned(second).ettr_max, abs=0.008)


def test_a_plan_from_the_start_up_costs_a_point_when_failures_have_become_rare() -> None:
    """The rate fell to a third: what was planned is exceeded, and a period of the day would have given a point more."""
    plan = planned(EARLY)
    found = replay(LATE, shaped(plan.period_s))
    assert found.ettr > plan.ettr_max + 0.04
    assert best(LATE).ettr - found.ettr == pytest.approx(0.012, abs=0.003)
    assert planned(LATE).ettr_max - found.ettr == pytest.approx(0.005, abs=0.003)
