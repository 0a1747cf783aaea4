"""manage.py node: which nodes there are, how another one joins, and what holds one back."""

from typing import Any

from django.conf import settings
from django.core.management import BaseCommand, CommandError, CommandParser

from reliability.management.console import ago, caller, node_named, plain_errors, table
from reliability.models import Hold, Node
from reliability.services import nodes


class Command(BaseCommand):
    """Nodes from the command line."""

    help = "List nodes, print the join token, hold a node back or release it, say what fails together with it."

    def add_arguments(self, parser: CommandParser) -> None:
        """Declare the actions."""
        actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
        actions.add_parser("list", help="show all nodes")
        actions.add_parser("token", help="print the token with which an agent joins; keep it secret")
        hold = actions.add_parser("hold", help="give a node no new work")
        hold.add_argument("name")
        hold.add_argument("--reason", required=True, help="why, for the others")
        domain = actions.add_parser("domain", help="say what fails together with a node, as a rack")
        domain.add_argument("name")
        domain.add_argument("domain", help="as in rack-7; '' for nothing known")
        release = actions.add_parser("release", help="lift all holds of a node")
        release.add_argument("name")
        release.add_argument("--note", default="", help="why; needed where another person holds it")

    def handle(self, *_args: Any, **options: Any) -> None:
        """Carry out one action."""
        with plain_errors():
            getattr(self, f"_{options['action']}")(options)

    def _list(self, _options: dict[str, Any]) -> None:
        held = set(Hold.objects.filter(released_at=None).values_list("node_id", flat=True))
        rows = [
            (node.name, node.role, node.tier, node.health, "held" if node.pk in held else "", node.runtime,
             node.failure_domain, node.address, ago(node.last_seen_at))
            for node in Node.objects.all()
        ]  # fmt: skip
        headings = ("NAME", "ROLE", "TIER", "HEALTH", "HOLD", "RUNTIME", "DOMAIN", "ADDRESS", "HEARD")
        self.stdout.write(table(headings, rows))

    def _token(self, _options: dict[str, Any]) -> None:
        self.stdout.write(settings.JOIN_TOKEN)

    def _hold(self, options: dict[str, Any]) -> None:
        nodes.hold(node_named(options["name"]), owner=caller(), reason=options["reason"])
        self.stdout.write(f"Node {options['name']} gets no new work until it is released.")

    def _domain(self, options: dict[str, Any]) -> None:
        nodes.set_failure_domain(node_named(options["name"]), options["domain"])
        self.stdout.write(f"Partner copies of node {options['name']} are kept outside {options['domain'] or 'itself'}.")

    def _release(self, options: dict[str, Any]) -> None:
        holds = Hold.objects.filter(node=node_named(options["name"]), released_at=None)
        if not holds:
            raise CommandError(f"Nothing holds node {options['name']} back.")
        for hold in holds:
            nodes.release_hold(hold, by=caller(), note=options["note"])
            self.stdout.write(f"Released: {hold.reason} (since {hold.created_at:%Y-%m-%d %H:%M} UTC, by {hold.owner}).")
