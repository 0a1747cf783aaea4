"""What `up` and `demo` share: from settings to a control plane, and from failures to a message and an exit code."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

from django.conf import settings
from django.core.management import CommandError, call_command
from django.db import OperationalError, connections

from reliability import conf
from reliability.errors import InvalidInput
from reliability.supervisor import addresses
from reliability.supervisor.control_plane import ControlPlane
from reliability.supervisor.status import AlreadyRunning, FolderUnusable, held
from reliability.supervisor.supervisor import StartFailed, Supervisor

EXIT_KILLED = 3
"""Exit code when the stop worked, but a child had to be killed."""


def control_plane() -> ControlPlane:
    """Return the control plane that the settings describe. Raises CommandError."""
    try:
        host, port = addresses.parse(settings.LISTEN)
        conf.cluster_policy()
    except addresses.AddressInvalid as error:
        raise CommandError(f"STEPKEEPER_LISTEN: {error}") from error
    except InvalidInput as error:
        raise CommandError(f"STEPKEEPER_{error.field.upper()}: {error}. {error.hint}") from error
    embedded = settings.EMBEDDED_BROKER_URL in {settings.BROKER_URL, settings.CHANNEL_URL}
    return ControlPlane(
        project=settings.BASE_DIR,
        data=settings.DATA_DIR,
        host=host,
        port=port,
        host_header=_host_header(),
        broker_port=settings.BROKER_PORT if embedded else None,
    )


def _host_header() -> str:
    """Return a host name that the web process accepts, for its own health check."""
    first = settings.ALLOWED_HOSTS[0] if settings.ALLOWED_HOSTS else "localhost"
    return "localhost" if first == "*" else str(first).removeprefix(".")


def prepare_database() -> None:
    """Bring the schema and the roles up to date. Raises StartFailed."""
    try:
        call_command("migrate", interactive=False, verbosity=0)
    except OperationalError as error:
        raise StartFailed(f"database: {error}. Check STEPKEEPER_DATABASE_URL and that the server runs.") from error
    finally:
        connections.close_all()


@contextmanager
def supervised(plane: ControlPlane, *, log: TextIO | None = None) -> Iterator[Supervisor]:
    """Hold the data folder, give a supervisor, and end all its children whatever happens.

    Exit codes: 0 stopped as asked, 1 could not start (CommandError), 3 stopped but something had to be killed.
    """
    try:
        with held(plane.data):
            plane.check_ports()
            supervisor = Supervisor(plane.data, out=sys.stdout, log=log)
            try:
                yield supervisor
            finally:
                supervisor.say("stopping")
                clean = supervisor.stop()
                supervisor.say("stopped" if clean else "stopped; a process that did not end was killed")
    except AlreadyRunning as error:
        raise CommandError(
            f"Process {error} already runs on {plane.data}. Stop it, or set STEPKEEPER_DATA_DIR to another folder."
        ) from error
    except FolderUnusable as error:
        raise CommandError(f"STEPKEEPER_DATA_DIR: {error}. Name a folder that can be written.") from error
    except StartFailed as error:
        raise CommandError(str(error)) from error
    if not clean:
        sys.exit(EXIT_KILLED)
