"""`manage.py plan` as a person at a terminal and a program that reads its JSON meet it."""

import io
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from reliability.models import Job
from tests.web import rows

pytestmark = pytest.mark.slow

PROJECT = Path(__file__).resolve().parents[2]
KNOWN: dict[str, Any] = json.loads((PROJECT / "tests/domain/planner/plans.json").read_text())
PLANS = {known["name"]: known for known in KNOWN["plans"] if "interval_s" in known.get("exact", known)}
TOLERANCE = KNOWN["tolerance"]
SOUND = ("--save-stall", "30s", "--mtbf", "10h", "--recovery", "10m", "--target", "0.93")
OPTIONS = {
    "save_stall_s": "--save-stall",
    "mtbf_s": "--mtbf",
    "recovery_s": "--recovery",
    "downtime_s": "--downtime",
    "drain_s": "--drain",
    "target": "--target",
}


def plan(*arguments: str) -> str:
    out = io.StringIO()
    call_command("plan", *arguments, stdout=out)
    return out.getvalue()


def planned(*arguments: str) -> dict[str, Any]:
    return dict(json.loads(plan(*arguments, "--json")))


def refusal(*arguments: str) -> list[str]:
    """Return the lines that the command refuses with; nothing is on stdout then."""
    out = io.StringIO()
    with pytest.raises(CommandError) as error:
        call_command("plan", *arguments, stdout=out)
    assert out.getvalue() == ""
    return str(error.value).splitlines()


def options(inputs: dict[str, Any]) -> list[str]:
    return [
        f"{OPTIONS[name]}={'none' if value is None else value}" for name, value in inputs.items() if name in OPTIONS
    ]


def near(value: float | None, tolerance: float) -> Any:
    return None if value is None else pytest.approx(value, rel=tolerance)


def assert_agrees(tree: dict[str, Any], expected: dict[str, Any], tolerance: float) -> None:
    assert tree["period_s"] == near(expected["period_s"], tolerance)
    assert tree["ettr_max"] == near(expected["ettr_max"], tolerance)
    assert tree["feasible"] is expected["feasible"]
    interval = expected["interval_s"]
    assert tree["interval_s"] == (interval and [near(end, tolerance) for end in interval])
    for name in ("save_stall_s", "recovery_s"):
        if "limits" in expected:
            assert tree["limits"][name] == near(expected["limits"][name], tolerance)
    if "limits" in expected:
        assert tree["limits"]["mtbf_s"] == near(1 / expected["limits"]["most_faults_per_s"], tolerance)


@pytest.mark.parametrize("name", PLANS)
def test_known_plans_come_out_of_the_command(name: str) -> None:
    known = PLANS[name]
    tree = planned(*options(known["inputs"]))
    if "exact" in known:
        assert_agrees(tree, known["exact"], TOLERANCE["exact"])
        assert tree["work_s"] == near(known["exact"]["work_s"], TOLERANCE["exact"])
    if "first_order" in known:
        assert_agrees(tree["first_order"], known["first_order"], TOLERANCE["first_order"])


@pytest.mark.parametrize("known", KNOWN["drains"], ids=lambda known: known["name"])
def test_known_drains_come_out_of_the_command(known: dict[str, Any]) -> None:
    inputs = known["inputs"]
    tree = planned(*options(inputs), f"--period={inputs['save_stall_s'] + known['work_s']}")
    assert tree["present"]["ettr"] == near(known["ettr"], TOLERANCE["drains"])
    assert tree["work_s"] == near(known["best_work_s"], TOLERANCE["exact"])


@pytest.mark.parametrize(
    "rate", [("--failures-per-day", "2.4"), ("--per-1000-node-days", "6", "--nodes", "400"), ("--mtbf", "36000")]
)
def test_units_of_the_fault_rate_do_not_matter(rate: tuple[str, ...]) -> None:
    tree = planned("--save-stall", "0.5 min", "--recovery", "10m", "--target", ".93", *rate)
    assert tree["first_order"]["period_s"] == pytest.approx(1469.69384567)


def test_steps_are_rounded_so_that_the_target_holds() -> None:
    tree = planned(*SOUND, "--step-time", "14.2")
    assert tree["steps"]["every_steps"] == 102
    assert tree["steps"]["interval"] == [45, 233]
    assert tree["first_order"]["steps"]["every_steps"] == 101
    assert tree["first_order"]["steps"]["interval"] == [47, 220]


def test_three_lines_say_what_to_do() -> None:
    lines = plan(*SOUND, "--step-time", "14.2").splitlines()
    assert lines[:3] == [
        "Save every 102 steps: every 24 min 38 s, from start to start of two saves.",
        "That gives 94.39 % effective training time: 93 % is reachable, "
        "with any period from 10 min 57 s to 55 min 52 s.",
        "Improve first: halving the save stall adds 1.15 points; then halving the recovery adds 0.79 points.",
    ]
    assert lines[3] == ""


def test_a_target_out_of_reach_is_told_with_the_way_there() -> None:
    lines = plan("--save-stall=30", "--mtbf=10h", "--recovery=600", "--target=0.95").splitlines()
    assert "95 % is not reachable, 0.61 points are missing." in lines[1]
    assert "Cheapest way there: a stall of" in lines[2]


def test_without_faults_the_shortest_period_is_told() -> None:
    text = plan("--save-stall=30", "--mtbf=none", "--recovery=600", "--target=0.99")
    assert text.startswith("Save every 50 min or less often: without faults, the longer the better.")
    assert "nan" not in text.lower()
    assert "inf" not in text.lower().replace("information", "")


def test_free_saves_are_made_after_every_step() -> None:
    assert plan("--save-stall=0", *SOUND[2:]).startswith("Save after every step: a save takes no time.")


def test_the_evidence_names_everything_that_was_asked_for() -> None:
    text = plan(
        "--save-stall=30", "--faults=3", "--exposure=7d", "--recovery=10m", "--target=0.97", "--nodes=100",
        "--standbys=2", "--repair=1d", "--node-share=0.6", "--memory-share=0.2", "--drain=5m", "--drain-ssd=20s",
        "--period=1h", "--planned-stops-per-week=2", "--cluster-availability=0.99", "--downtime=1m",
    )  # fmt: skip
    for heading in (
        "THE TWO MODELS",
        "LOST PER DAY",
        "FOR THE TARGET",
        "STANDBYS",
        "FROM THE COUNTED",
        "OTHER PERIODS",
    ):
        assert heading in text
    for name in ("Young 1974", "Daly 2006", "Saxena et al. 2024", "Meta's expected ETTR", "as now"):
        assert name in text


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("--save-stall", "-5s"), "--save-stall: '-5s' is negative. Give 0 or more."),
        (("--save-stall", "-5 min"), "--save-stall: '-5 min' is negative."),
        (("--mtbf=-1",), "--mtbf: '-1' is negative."),
        (("--mtbf", "-1"), "--mtbf: '-1' is negative."),
        (("--mtbf", "0"), "--mtbf: 0 would be a fault at every moment."),
        (("--mtbf", "5m"), "--mtbf: a fault every 5 min comes sooner than the recovery of 10 min is over."),
        (("--recovery", "nan"), "--recovery: 'nan' is not a finite time."),
        (("--recovery", "-inf"), "--recovery: '-inf' is not a finite time."),
        (("--recovery", "1e400"), "--recovery: '1e400' is not a finite time."),
        (("--recovery", "soon"), "--recovery: 'soon' is not a duration. Write a time as 30, 30s, 5m, 7.9h or 12d."),
        (("--target", "93"), "--target: '93' is a percentage. Write 0.93."),
        (("--target", "1"), "--target: 1 would allow no loss at all."),
        (("--target", "0"), "--target: 0 would be met by a job that never trains."),
        (("--step-time", "0"), "--step-time: 0 is not possible."),
        (("--step-time", "60", "--period", "70"), "--period: 1 min 10 s is shorter than one step and its save."),
        (("--nodes", "1.5"), "--nodes: '1.5' is not a whole number."),
        (("--nodes", "9" * 400), "--nodes: '9999"),
        (("--cluster-availability", "99"), "--cluster-availability: '99' is a percentage. Write 0.99."),
        (("--failures-per-day", "2"), "--failures-per-day: tells a second time how often faults come, after mtbf."),
        (("--memory-share", "0.5"),
         "--memory-share: 0.5 and a node share of 1 are more than all faults. "
         "Both are shares of all faults: give a --node-share of at most 0.5; without one"),
        (("--simulate", "many"), "--simulate: 'many' is not possible. 100 to 5000000 faults can be simulated."),
        (("--simulate", "99"), "--simulate: '99' is not possible. 100 to 5000000 faults can be simulated."),
        (("--simulate=", "--seed", "1"), "--simulate: '' is not possible."),
        (("--simulate", "--seed", "-1"), "--seed: '-1' is not possible. A seed is a whole number from 0 to"),
        (("--seed", "1"), "--seed: is of no use without --simulate. Give both, or leave it out."),
        (("--standbys", "2"), "--standbys: is of no use without repair. Give the mean time of a repair too"),
        (("--repair", "1d"), "--repair: is of no use without standbys. Give how many nodes stand by too; 0 is"),
        (("--prior", "fleet", "--nodes", "8"), "--prior: is of no use without counted faults. Give faults and"),
        (("--observed-nodes", "8"), "--observed-nodes: is of no use without counted faults."),
    ],
)  # fmt: skip
def test_a_bad_value_is_refused_under_its_option(arguments: tuple[str, ...], sentence: str) -> None:
    lines = refusal(*SOUND, *arguments)
    assert lines[0] == "Nothing was planned."
    assert lines[1].startswith(sentence)
    assert len(lines) == 2


def test_all_mistakes_are_told_at_once() -> None:
    lines = refusal("--save-stall", "-5s", "--target", "93", "--nodes", "x")
    assert [line.split(":")[0] for line in lines[1:]] == [
        "--save-stall", "--target", "--nodes", "--recovery", "--mtbf",
    ]  # fmt: skip


def test_options_in_a_hint_are_written_as_options() -> None:
    assert "--failures-per-day; --per-1000-node-days" in refusal(*SOUND[:2], *SOUND[4:])[1]


def test_a_simulation_shows_its_difference_and_its_standard_error() -> None:
    first = planned(*SOUND, "--simulate", "20000", "--seed", "7")["simulation"]
    again = planned(*SOUND, "--simulate", "20000", "--seed", "7")["simulation"]
    assert first["ettr"] == again["ettr"]
    assert abs(first["difference"]) <= 4 * first["se"]
    assert first["failures"] >= 20_000
    text = plan(*SOUND, "--simulate", "2000")
    assert "standard errors." in text
    assert "Simulated: 94." in text


def test_a_simulation_knows_standbys() -> None:
    tree = planned(*SOUND, "--standbys=1", "--repair=20h", "--node-share=0.5", "--downtime=2m", "--simulate=100000")
    assert abs(tree["simulation"]["difference"]) <= 4 * tree["simulation"]["se"]


def test_a_simulation_knows_tiers_and_says_so() -> None:
    tiers = ("--node-share=0.3", "--memory-share=0.3", "--drain=2h", "--drain-ssd=10m", "--cluster-availability=0.9")
    given = (*SOUND[:-1], "0.8", *tiers, "--planned-stops-per-week=2")
    figures = planned(*given, "--simulate=100000")["simulation"]
    assert figures["tiers"] is True
    assert figures["left_out"] == ["the cluster's availability", "planned stops"]
    assert abs(figures["difference"]) <= figures["good_to"] + 4 * figures["se"]
    assert figures["good_to"] < 0.012
    text = plan(*given, "--simulate=2000")
    assert "Copies in memory, on SSD and on storage were simulated, each with the faults that need it" in text
    assert "Left out of both: the cluster's availability, planned stops." in text
    assert "Copies in memory" not in plan(*SOUND, "--simulate=2000")


def test_a_plan_is_replayed_over_recorded_failures(tmp_path: Path) -> None:
    gaps = tmp_path / "gaps.txt"
    gaps.write_text("# gaps\n" + "\n".join(["10h", "36000", "5h  # a note", "", "15h"] * 10))
    times = tmp_path / "times.txt"
    times.write_text("# times\n" + "\n".join(str(36_000 * number) for number in range(12)))
    read = planned(*SOUND, "--replay", str(gaps))["replay"]
    assert (read["read_as"], read["failures"], read["elapsed_s"]) == ("gaps", 40, 1_440_000)
    assert 0.9 < read["ettr"] <= read["best_ettr"] < 0.97
    assert planned(*SOUND, "--replay", str(times))["replay"]["read_as"] == "instants"
    assert "The best fixed period in hindsight" in plan(*SOUND, "--replay", str(gaps))


def test_a_replay_is_held_against_what_the_plan_says_of_faults_alone(tmp_path: Path) -> None:
    record = tmp_path / "gaps.txt"
    record.write_text("\n".join(["10h", "5h", "15h"] * 10))
    alone = planned(*SOUND)
    read = planned(*SOUND, "--replay", str(record))["replay"]
    assert (read["planned_ettr"], read["left_out"]) == (pytest.approx(alone["recommended_ettr"], rel=1e-12), [])
    stops = ("--cluster-availability=0.9", "--planned-stops-per-week=20")
    disturbed = planned(*SOUND, *stops, "--replay", str(record))["replay"]
    assert disturbed["planned_ettr"] == pytest.approx(read["planned_ettr"], rel=1e-12)
    assert disturbed["ettr"] == read["ettr"]
    waiting = ("--standbys=0", "--repair=2h", "--drain=1h", "--node-share=0.5")
    told = plan(*SOUND, *waiting, "--replay", str(record))
    assert "Left out of both: waits for a repair, which tier a fault needs (all have the mean drain)." in told


@pytest.mark.parametrize(("first_line", "read_as"), [("# gaps", "gaps"), ("# times", "instants"), ("", None)])
def test_numbers_that_only_rise_may_be_either_and_the_first_line_says_which(
    tmp_path: Path, first_line: str, read_as: str | None
) -> None:
    record = tmp_path / "record.txt"
    record.write_text(f"{first_line}\n1h\n5h\n9h\n")
    if read_as is None:
        (_, line) = refusal(*SOUND, "--replay", str(record))
        assert "the numbers only rise, so they may be instants or gaps. Say which in a first line: # times" in line
    else:
        assert planned(*SOUND, "--replay", str(record))["replay"]["read_as"] == read_as


def test_equal_numbers_can_only_be_gaps(tmp_path: Path) -> None:
    record = tmp_path / "record.txt"
    record.write_text("10h\n10h\n10h\n")
    assert planned(*SOUND, "--replay", str(record))["replay"]["elapsed_s"] == 108_000


@pytest.mark.parametrize(
    "content", [None, b"", b"5\n", b"5\n" * 200_001, b"5\nx\n", b"5\n-1\n", b"\xff\xfe\x00", b"0\n0\n0\n"]
)
def test_a_record_that_cannot_be_read_is_refused(tmp_path: Path, content: bytes | None) -> None:
    record = tmp_path / "record.txt"
    if content is not None:
        record.write_bytes(content)
    lines = refusal(*SOUND, "--replay", str(record))
    assert lines[0] == "The plan cannot be tried."
    assert lines[1].startswith("--replay: ")


@pytest.mark.parametrize("option", ["--job=lm", "--target=0.9", "--simulate", "--seed=1", "--replay=x"])
def test_nothing_is_given_beside_published_figures(option: str) -> None:
    lines = refusal("--published", "llama3", option)
    assert lines[0] == "Nothing was printed."
    assert lines[1].startswith(f"{option.split('=')[0]}: is of no use beside --published.")


def test_a_target_that_no_number_of_steps_keeps_is_told_so() -> None:
    lines = plan(*SOUND[:-1], "0.94386", "--step-time=10m").splitlines()
    assert "no number of steps keeps 0.94386: every step takes 10 min" in lines[1]
    assert "is reachable" not in lines[1]
    assert "would keep it." in lines[2]


@pytest.mark.parametrize(
    ("values", "way"),
    [
        (("--recovery=10m", "--target=0.9439"), "Cheapest way there: a stall of"),
        (("--recovery=10m", "--target=0.9", "--cluster-availability=0.8"), "Nothing about saves, recovery and faults"),
    ],
)
def test_a_target_out_of_reach_always_comes_with_the_way_there(values: tuple[str, ...], way: str) -> None:
    lines = plan("--save-stall=30s", "--mtbf=10h", *values).splitlines()
    assert re.search(r"not reachable, (\d*[1-9]|\d+\.\d*[1-9]\d*) points are missing", lines[1])
    assert way in lines[2]


def test_a_target_that_is_only_come_close_to_is_told_so() -> None:
    text = plan("--save-stall=30s", "--mtbf=none", "--recovery=10m", "--target=0.5", "--cluster-availability=0.5")
    assert "50 % is not reachable, long periods only come close to it." in text


def test_no_standbys_are_needed_and_the_number_is_0() -> None:
    text = plan(*SOUND[:2], "--mtbf=none", *SOUND[4:], "--standbys=0", "--repair=1d")
    assert re.search(r"standbys that leave 1 in 100 without +0\n", text)
    assert "if nodes fail while it stands still, too" in text


def test_counted_faults_have_an_interval_without_a_prior_too() -> None:
    text = plan(*SOUND[:2], *SOUND[4:], "--faults=0", "--exposure=7d")
    assert re.search(r"time between faults without a prior \(Garwood\) +2 d 8 h +-", text)


@pytest.mark.parametrize("name", ["llama3", "bloom", "byterobust", "meta", "opt175b"])
def test_published_figures_stand_beside_computed_ones(name: str) -> None:
    assert "Source: " in plan("--published", name)
    tree = planned("--published", name)
    assert all(len(row) == len(tree["columns"]) for row in tree["rows"])


@pytest.mark.django_db
def test_what_is_measured_of_a_job_is_taken_and_what_is_given_stands() -> None:
    job = trained()
    tree = planned("--job", job.name, "--save-stall", "2s", "--mtbf", "6h")
    assert tree["inputs"]["save_stall_s"] == 2
    assert tree["inputs"]["mtbf_s"] == 21_600
    assert tree["inputs"]["faults"] is None
    sources = tree["inputs"]["sources"]
    assert (sources["save_stall"]["kind"], sources["mtbf"]["kind"]) == ("entered", "entered")
    assert sources["nodes"]["kind"] == "measured"
    assert sources["recovery"]["told"].startswith("default: ")
    text = plan("--job", job.name)
    assert "job lm runs on 2 nodes" in text


@pytest.mark.django_db
def test_a_job_that_is_not_there_is_told_with_those_that_are() -> None:
    trained()
    assert refusal("--job", "llm") == ["There is no job 'llm'. There are: lm."]


def trained() -> Job:
    return rows.job("lm", [rows.node("a"), rows.node("b")])


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("STEPKEEPER_")}
    return subprocess.run(
        [sys.executable, "manage.py", "plan", *arguments],
        cwd=PROJECT,
        env=kept | environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_it_needs_neither_a_database_nor_a_broker(tmp_path: Path) -> None:
    away = {"DATABASE_URL": "postgresql://nobody@127.0.0.1:1/none", "BROKER_URL": "redis://127.0.0.1:1/0"}
    settings = {f"STEPKEEPER_{name}": value for name, value in away.items()}
    done = run(*SOUND, "--json", STEPKEEPER_DATA_DIR=str(tmp_path), **settings)
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["feasible"] is True


def test_a_refusal_ends_with_1_and_leaves_stdout_empty(tmp_path: Path) -> None:
    done = run("--save-stall", "-5s", *SOUND[2:], "--json", STEPKEEPER_DATA_DIR=str(tmp_path))
    assert (done.returncode, done.stdout) == (1, "")
    assert "\n--save-stall: '-5s' is negative." in done.stderr
    assert "Traceback" not in done.stderr


def test_an_option_that_is_none_is_an_error_of_usage(tmp_path: Path) -> None:
    assert run("--sate", "3", STEPKEEPER_DATA_DIR=str(tmp_path)).returncode == 2


def test_whoever_reads_the_output_may_stop_reading() -> None:
    command = [sys.executable, "manage.py", "plan", "--published", "llama3"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=PROJECT) as process:
        assert process.stdout is not None
        process.stdout.close()
        _, errors = process.communicate(timeout=60)
    assert (process.returncode, errors) == (0, b"")
