"""manage.py demo: the product on this machine with five local nodes and a job, until Ctrl-C."""

import os
import sys
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management import BaseCommand
from django.db import connections

from reliability.management import demonstration
from reliability.management.console import plain_errors
from reliability.management.supervising import control_plane, prepare_database, supervised
from reliability.supervisor.addresses import free_port
from reliability.supervisor.supervisor import Supervisor

FIRST_PORT = 8000
FIRST_BROKER_PORT = 6390
NODES_LIMIT_S = 60.0

WELCOME = """
  Dashboard   {url}
  Sign in     {user}   password {password}
  Job         {job}: 3 ranks on 3 training nodes, 2 standbys wait

  Break something: open the job in the dashboard and press Drill, then approve the failover; or in another terminal
      {setting} {python} manage.py drill {job} --what kill_node
  A job of your own beside it:
      {setting} {python} manage.py job submit examples/numpy_lm/local.toml --start

  The nodes run plain processes of this machine, no containers. What the agents say is in {log};
  what ranks print is in {memory}/NODE/JOB/log/EPOCH-RANK.log until their job is over.
  Ctrl-C ends everything; the next demo begins afresh.
"""


class Command(BaseCommand):
    """Everything a person needs to see it work; nothing is left when it ends."""

    help = "Show Stepkeeper on this machine: dashboard, five local nodes, a guarded training job."
    requires_system_checks = []

    def handle(self, *_args: Any, **_options: Any) -> None:
        """Run until told to stop."""
        self._settle_environment()
        plane = control_plane()
        log_path = settings.DATA_DIR / demonstration.LOG_NAME
        settings.DATA_DIR.mkdir(parents=True, exist_ok=True)
        with log_path.open("a") as log, plain_errors(), supervised(plane, log=log) as supervisor:
            log.truncate(0)
            if demonstration.begin_afresh(settings.DATA_DIR):
                supervisor.say(
                    "beginning afresh: jobs, snapshots and people of the earlier demo are removed; the sign-in stays"
                )
            supervisor.sweep_afterwards([demonstration.memory_folder(settings.DATA_DIR)])
            plane.bring_up(supervisor, prepare_database=prepare_database)
            job = self._begin(supervisor, plane.url)
            self._welcome(plane.url, job, log_path)
            supervisor.run()

    @staticmethod
    def _settle_environment() -> None:
        """Choose a folder and free ports where none were given, and begin again with them."""
        chosen = {
            "STEPKEEPER_DATA_DIR": str(settings.BASE_DIR / "var" / "demo"),
            "STEPKEEPER_LISTEN": f"127.0.0.1:{free_port('127.0.0.1', FIRST_PORT)}",
            "STEPKEEPER_BROKER_PORT": str(free_port("127.0.0.1", FIRST_BROKER_PORT)),
        }
        missing = {name: value for name, value in chosen.items() if name not in os.environ}
        if missing:
            print("Starting the demo: dashboard, five local nodes and a job ...", flush=True)  # noqa: T201
            os.environ.update(missing)
            os.execv(sys.executable, [sys.executable, *sys.argv])  # noqa: S606 (the same program, by its own path)

    @staticmethod
    def _begin(supervisor: Supervisor, url: str) -> str:
        demonstration.ensure_user(settings.DATA_DIR)
        specs = demonstration.agent_specs(
            project=settings.BASE_DIR, data=settings.DATA_DIR, server=url, join_token=settings.JOIN_TOKEN
        )
        agents = [supervisor.start(spec) for spec in specs]
        supervisor.wait_for(
            agents[0], demonstration.nodes_ready, limit_s=NODES_LIMIT_S, what="not every node has joined"
        )
        name = demonstration.start_job(settings.BASE_DIR).name
        connections.close_all()
        return name

    @staticmethod
    def _setting() -> str:
        """Return what a command in another terminal must know to reach this demo."""
        folder = f"STEPKEEPER_DATA_DIR={settings.DATA_DIR}"
        port = settings.BROKER_PORT
        return folder if port == FIRST_BROKER_PORT else f"{folder} STEPKEEPER_BROKER_PORT={port}"

    def _welcome(self, url: str, job: str, log: Path) -> None:
        self.stdout.write(
            WELCOME.format(
                url=url,
                user=demonstration.USER,
                password=demonstration.password(settings.DATA_DIR),
                job=job,
                setting=self._setting(),
                memory=demonstration.memory_folder(settings.DATA_DIR),
                python=sys.executable,
                log=log,
            )
        )
        self.stdout.flush()  # whoever wrote the output to a file reads it now
