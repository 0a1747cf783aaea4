"""manage.py monitor: which foreign monitors may send what they see."""

from typing import Any

from django.core.management import BaseCommand, CommandError, CommandParser

from reliability.management.console import ago, caller, node_named, plain_errors, table
from reliability.models import MonitorToken
from reliability.selectors import monitors as reads
from reliability.services import monitors


class Command(BaseCommand):
    """Monitors from the command line."""

    help = "List monitors, give one a token for one node or for all, revoke it."

    def add_arguments(self, parser: CommandParser) -> None:
        """Declare the actions."""
        actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
        actions.add_parser("list", help="show all tokens, without their text")
        token = actions.add_parser("token", help="make a token and print it; it is kept nowhere")
        token.add_argument("name", help="what the monitor is called, as in 'dcgm of rack 7'")
        token.add_argument("--node", help="the one node that it may speak of; without it every node it names")
        actions.add_parser("revoke", help="take a token back").add_argument("name")

    def handle(self, *_args: Any, **options: Any) -> None:
        """Carry out one action."""
        with plain_errors():
            getattr(self, f"_{options['action']}")(options)

    def _list(self, _options: dict[str, Any]) -> None:
        rows = [
            (
                token.name,
                token.node.name if token.node else "every node",
                ago(token.created_at),
                ago(token.used_at),
                str(token.sent),
                "revoked" if token.revoked_at else "",
            )
            for token in reads.tokens()
        ]
        self.stdout.write(table(("NAME", "SPEAKS OF", "MADE", "USED", "FOUND", ""), rows))

    def _token(self, options: dict[str, Any]) -> None:
        node = node_named(options["node"]) if options["node"] else None
        self.stdout.write(monitors.give_token(options["name"], node=node, by=caller())[1])

    def _revoke(self, options: dict[str, Any]) -> None:
        token = MonitorToken.objects.filter(name=options["name"], revoked_at=None).first()
        if token is None:
            raise CommandError(f"No monitor {options['name']} has a token. See: manage.py monitor list")
        monitors.revoke(token, by=caller())
        self.stdout.write(f"Nothing is taken with the token of {token.name} any more.")
