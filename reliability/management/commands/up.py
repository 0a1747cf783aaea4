"""manage.py up: the whole control plane on one machine, until Ctrl-C."""

from typing import Any

from django.core.management import BaseCommand

from reliability.management.supervising import control_plane, prepare_database, supervised


class Command(BaseCommand):
    """Start broker (unless it runs elsewhere), web, controller and beat; restart what dies; end all in order."""

    help = "Run Stepkeeper on this machine: broker, web, controller and beat under one supervisor."
    requires_system_checks = []

    def handle(self, *_args: Any, **_options: Any) -> None:
        """Run until told to stop."""
        plane = control_plane()
        with supervised(plane) as supervisor:
            plane.bring_up(supervisor, prepare_database=prepare_database)
            supervisor.run()
