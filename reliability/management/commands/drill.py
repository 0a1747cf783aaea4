"""manage.py drill: break something on purpose and measure the recovery, stage by stage."""

import time
from collections.abc import Sequence
from typing import Any

from django.core.management import BaseCommand, CommandError, CommandParser
from django.urls import reverse

from reliability.domain.failover import State
from reliability.domain.goodput import lost_steps
from reliability.management.console import caller, job_named, node_named, page_address, plain_errors, table
from reliability.models import Drill, Failover, Job, Node, Slot
from reliability.selectors.stages import by_state
from reliability.services import drills

LOOK_EVERY_S = 0.2


def stages(failover: Failover) -> Sequence[tuple[str, float]]:
    """Return the stages of a recovery, from the first finding on."""
    (_, judged_s), *others = by_state(failover, list(failover.events.all()))
    return [("judged", judged_s), *others]


class Command(BaseCommand):
    """A drill from the command line. Exit code 0: recovered, or not harmed at all; 1: not."""

    help = "Break a part of a running job on purpose and show how long the recovery took."

    def add_arguments(self, parser: CommandParser) -> None:
        """Declare what to break, and for how long to watch."""
        parser.add_argument("job")
        parser.add_argument("--what", required=True, choices=Drill.What.values)
        parser.add_argument("--node", help="default: the node of the job's last slot")
        parser.add_argument("--wait", type=float, default=120, metavar="SECONDS", help="watch for so long (120)")

    def handle(self, *_args: Any, **options: Any) -> None:
        """Run the drill."""
        with plain_errors():
            job = job_named(options["job"])
            node = self._node(job, options["node"])
            drill = drills.start(job, node=node, what=options["what"], by=caller())
            self.stdout.write(f"Drill {drill.pk}: {drill.get_what_display()} on {node.name}.")
            self.stdout.flush()
            self._watch(drill, options["wait"])
            self._report(drill)

    @staticmethod
    def _node(job: Job, name: str | None) -> Node:
        places = Slot.objects.filter(job=job).exclude(node=None).select_related("node")
        on_it = [slot.node for slot in places if slot.node is not None and name in (None, slot.node.name)]
        if on_it:
            return on_it[-1]
        if name is None:
            raise CommandError(f"No node runs {job.name} now. Start it first: manage.py job start {job.name}")
        raise CommandError(f"Node {node_named(name).name} runs no rank of {job.name}.")

    def _watch(self, drill: Drill, limit_s: float) -> None:
        """Follow it and tell every new state, until it ends."""
        deadline, told = time.monotonic() + limit_s, ""
        while drill.state == Drill.State.RUNNING:
            if time.monotonic() > deadline:
                raise CommandError(f"Not recovered within {limit_s:g} s{self._waiting_for(drill)}.")
            time.sleep(LOOK_EVERY_S)
            drill.refresh_from_db()
            state = State(drill.failover.state).value.replace("_", " ") if drill.failover else ""
            if state and state != told:
                self.stdout.write(f"  {state}{self._card(drill)}")
                self.stdout.flush()
                told = state

    @staticmethod
    def _card(drill: Drill) -> str:
        """Return where a person decides, while the recovery waits for one."""
        failover = drill.failover
        if failover is None or failover.state != State.AWAITING_APPROVAL:
            return ""
        return f": approve it at {page_address(reverse('failover', args=[failover.pk]))}"

    @staticmethod
    def _waiting_for(drill: Drill) -> str:
        if drill.failover is not None and drill.failover.state == State.AWAITING_APPROVAL:
            return f": failover {drill.failover.pk} waits for a person to approve it in the dashboard"
        return ""

    def _report(self, drill: Drill) -> None:
        if drill.failover is not None:
            rows = [(stage.replace("_", " "), f"{seconds:.3f}") for stage, seconds in stages(drill.failover)]
            rows.append(("whole", f"{sum(seconds for _, seconds in stages(drill.failover)):.3f}"))
            self.stdout.write(table(("STAGE", "SECONDS"), rows))
            lost = lost_steps(drill.failover.fault_step, drill.failover.restore_step)
            self.stdout.write(f"Steps done again: {'unknown' if lost is None else lost}")
        if drill.state not in (Drill.State.RECOVERED, Drill.State.UNHARMED):
            raise CommandError(f"Drill {drill.pk}: {drill.get_state_display()}. {drill.result or ''}")
        self.stdout.write(self.style.SUCCESS(f"Drill {drill.pk}: {drill.get_state_display()}."))
