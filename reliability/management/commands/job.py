"""manage.py job: submit, start, stop, recover and list guarded jobs."""

import tomllib
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management import BaseCommand, CommandError, CommandParser

from reliability.domain.failover import State
from reliability.management.console import caller, job_named, plain_errors, table
from reliability.models import Job
from reliability.services import failovers, jobs


def read_spec(path: Path) -> dict[str, Any]:
    """Return the content of a job file. Raises CommandError that names the file and the place.

    A file may leave out what this installation knows: the storage folder, and the runtime where an image tells it.
    Without an image, `workdir` and the program's file may be given relative to the job file.
    """
    try:
        spec = tomllib.loads(path.read_text())
    except OSError as error:
        raise CommandError(f"{path}: {error.strerror}.") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise CommandError(f"{path}: not a TOML file ({error}).\n  examples/numpy_lm/job.toml is one.") from error
    known = {"storage_dir": str(settings.STORAGE_DIR), "runtime": "docker" if spec.get("image") else "process"}
    spec = known | spec
    return spec if spec["runtime"] == "docker" else spec | _beside(path.absolute().parent, spec)


def _beside(folder: Path, spec: dict[str, Any]) -> dict[str, Any]:
    """Return the paths of a job without an image in full; what is no such file (`sh`, say) stays as it is."""
    found: dict[str, Any] = {}
    if spec.get("workdir") and isinstance(spec["workdir"], str):
        found["workdir"] = str((folder / spec["workdir"]).resolve())
    program = spec.get("program")
    if isinstance(program, list) and program and isinstance(program[0], str) and (folder / program[0]).is_file():
        found["program"] = [str((folder / program[0]).resolve()), *program[1:]]
    return found


def _ranks(job: Job) -> str:
    ranks = f"{job.world_size} rank" + ("s" if job.world_size != 1 else "")
    return f"{ranks} on {job.nodes} node" + ("s" if job.nodes != 1 else "")


class Command(BaseCommand):
    """Guarded jobs from the command line."""

    help = "Submit, start, stop, recover or list guarded jobs."

    def add_arguments(self, parser: CommandParser) -> None:
        """Declare the actions."""
        actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
        submit = actions.add_parser("submit", help="submit a job described in a TOML file")
        submit.add_argument("file", type=Path, help="as examples/numpy_lm/job.toml")
        submit.add_argument("--name", help="submit it under another name than the file says")
        submit.add_argument("--start", action="store_true", help="start it at once")
        start = actions.add_parser("start", help="start a job; one that was over goes on from its newest snapshot")
        stop = actions.add_parser("stop", help="stop a job; its snapshots stay")
        recover = actions.add_parser("recover", help="open a recovery of a job that waits for a person")
        for action in (start, stop, recover):
            action.add_argument("name")
        actions.add_parser("list", help="show all jobs")

    def handle(self, *_args: Any, **options: Any) -> None:
        """Carry out one action."""
        with plain_errors():
            getattr(self, f"_{options['action']}")(options)

    def _submit(self, options: dict[str, Any]) -> None:
        spec = read_spec(options["file"])
        if options["name"]:
            spec["name"] = options["name"]
        job = jobs.submit(spec, by=caller())
        self.stdout.write(f"Job {job.name} is submitted: {_ranks(job)}.")
        if options["start"]:
            self._start({"name": job.name})

    def _start(self, options: dict[str, Any]) -> None:
        jobs.start(job_named(options["name"]), by=caller())
        self.stdout.write(f"Job {options['name']} is being started.")

    def _stop(self, options: dict[str, Any]) -> None:
        jobs.stop(job_named(options["name"]), by=caller())
        self.stdout.write(f"Job {options['name']} is being stopped.")

    def _recover(self, options: dict[str, Any]) -> None:
        failover = failovers.recover(job_named(options["name"]), by=caller())
        said = f"Recovery {failover.pk} of job {options['name']} is open"
        waits = failover.state == State.AWAITING_APPROVAL
        self.stdout.write(f"{said} and waits for approval." if waits else f"{said}: {failover.get_state_display()}.")

    def _list(self, _options: dict[str, Any]) -> None:
        rows = [
            (job.name, job.get_state_display(), f"{job.nodes} x {job.ranks_per_node}", job.epoch, job.state_reason)
            for job in Job.objects.all()
        ]
        self.stdout.write(table(("NAME", "STATE", "RANKS", "EPOCH", "REASON"), rows))
