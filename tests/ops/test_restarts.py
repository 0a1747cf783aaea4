"""Real programs that fail, a controller that is killed: how often a job is started again, and the batch left out."""

import http.cookiejar
import json
import os
import re
import signal
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from reliability.supervisor.addresses import free_port
from tests.ops import bad_batch
from tests.ops.machines import JOIN_TOKEN, Machines
from tests.ops.running import Up, until

pytestmark = [pytest.mark.broker, pytest.mark.slow, pytest.mark.timeout(900)]
PASSWORD = "a long password of the tests"
STEPS = 14


@pytest.fixture(scope="module")
def machines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machines]:
    """Two nodes for training."""
    tmp_path = tmp_path_factory.mktemp("restarts")
    settings = {"JOIN_TOKEN": JOIN_TOKEN, "VALIDATE_STANDBYS": "0", "BACK_OFF_S": "0.5"}
    up = Up(folder=tmp_path / "server", settings=settings)
    up.port, up.broker_port = free_port("127.0.0.1", 24800), free_port("127.0.0.1", 24850)
    machines = Machines(up=up.ready(), folder=tmp_path)
    try:
        for name in ("node-1", "node-2"):
            machines.join(name, role="training")
        yield machines
    finally:
        machines.end()
        up.end()


class Browser:
    """An approver at the dashboard."""

    def __init__(self, machines: Machines) -> None:
        self.site = f"http://127.0.0.1:{machines.up.port}"
        os.environ["DJANGO_SUPERUSER_PASSWORD"] = PASSWORD
        try:
            made = machines.up.run(
                "createsuperuser", "--noinput", "--username", "ada", "--email", "a@example.org", limit_s=240
            )
        finally:
            del os.environ["DJANGO_SUPERUSER_PASSWORD"]
        assert made.returncode == 0, made.stderr
        self.cookies = http.cookiejar.CookieJar()
        self.opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(self.cookies))
        self.get("/sign-in/")
        self.post("/sign-in/", username="ada", password=PASSWORD)

    def get(self, path: str) -> str:
        with self.opener.open(f"{self.site}{path}", timeout=120) as answer:
            return str(answer.read().decode())

    def post(self, path: str, **values: str) -> str:
        token = next(cookie.value for cookie in self.cookies if cookie.name == "csrftoken")
        body = urllib.parse.urlencode({**values, "csrfmiddlewaretoken": token}).encode()
        asked = urllib.request.Request(f"{self.site}{path}", data=body, headers={"Referer": self.site})
        with self.opener.open(asked, timeout=120) as answer:
            return str(answer.read().decode())


def wait_for(machines: Machines, job: str, state: str, *, limit_s: float = 150) -> dict[str, object]:
    """Wait until a job is in a state and return its row."""
    try:
        until(lambda: machines.state(job) == state, limit_s=limit_s, what=f"{job} is {state}")
    except AssertionError as error:
        raise AssertionError(f"{error}\n{machines.story()}") from None
    return machines.rows("select * from reliability_job where name = ?", job)[0]


def test_a_program_that_crashes_each_time_is_restarted_as_often_as_allowed_over_a_killed_controller(
    machines: Machines,
) -> None:
    crashes = ["sh", "-c", "sleep 0.5; kill -SEGV $$"]
    machines.submit(name="crashing", nodes=1, mode="plain", preload=[], program=crashes, restart_budget=2)
    until(lambda: machines.rows("select 1 from reliability_epoch where number = 2"), limit_s=120, what="one restart")
    os.kill(int(machines.up.pid_of("controller") or 0), signal.SIGKILL)
    job = wait_for(machines, "crashing", "failed")
    assert "restart budget of 2 is used up for software/exit-code" in str(job["state_reason"])
    ends = machines.rows("select * from reliability_attemptend order by number")
    assert [(end["number"], end["code"]) for end in ends] == [(1, "exit-139"), (2, "exit-139"), (3, "exit-139")]


def test_a_batch_that_always_ends_the_job_is_left_out_on_all_ranks_once_a_person_approves(
    machines: Machines, tmp_path: Path
) -> None:
    machines.submit(preload=[], program=[str(Path(bad_batch.__file__)), str(STEPS), str(tmp_path)])
    job = wait_for(machines, "lm", "waiting")
    assert f"2 times after step {bad_batch.BAD_STEP - 1}" in str(job["state_reason"])
    browser = Browser(machines)
    page = browser.get("/jobs/lm/")
    asked = re.search(r'action="(/jobs/lm/skips/\d+/approve/)".*?name="digest" value="(\w{64})"', page, re.DOTALL)
    assert asked is not None
    told = browser.post(asked[1], digest=asked[2], note="broken record")
    assert f"leave out the batch of step {bad_batch.BAD_STEP}" in told
    job = wait_for(machines, "lm", "completed")
    attempt = machines.rows("select * from reliability_epoch where job_id = ? order by number desc limit 1", job["id"])[
        0
    ]
    assert (json.loads(attempt["skip_steps"]), json.loads(attempt["skip_read_by"])) == ([bad_batch.BAD_STEP], [0, 1])
    expected = [step for step in range(1, STEPS + 1) if step != bad_batch.BAD_STEP]
    for rank in range(2):
        assert json.loads((tmp_path / f"taken-{rank}.json").read_text()) == expected
