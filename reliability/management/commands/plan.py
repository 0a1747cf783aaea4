"""manage.py plan: how often should a job save, what does that give, and what should be improved first?"""

import importlib
import json
import re
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from types import ModuleType
from typing import Any

from django.core.management import BaseCommand, CommandError, CommandParser

from reliability.domain.planner.answer import Answer, answer, as_json
from reliability.domain.planner.published import TABLES
from reliability.domain.planner.published import table as published_table
from reliability.domain.planner.reading import FIELDS, told
from reliability.errors import InvalidInput
from reliability.management import plan_report
from reliability.management.console import job_named, pipe_that_may_end, plain_errors
from reliability.selectors.plan_request import asked
from reliability.services import clock

FAILURES = 100_000
NEGATIVE = re.compile(r"-[.,]?\d.*|-(?:inf|nan).*", re.IGNORECASE | re.DOTALL)
LONG_NAMES = re.compile(r"\b(" + "|".join(name for name in FIELDS if "_" in name) + r")\b")

VALUES: dict[str, dict[str, str]] = {
    "what is always needed, unless --job knows it": {
        "save_stall": "how long one save blocks training",
        "mtbf": "mean time between faults of the whole job while it runs, or none",
        "recovery": "from the restart until training goes on; faults may strike in it",
        "target": "share of time that must count, such as 0.97",
    },
    "other ways to tell how often faults come": {
        "failures_per_day": "faults in 24 hours of running",
        "per_1000_node_days": "faults in 1000 node-days; needs --nodes",
        "faults": "how many were counted ...",
        "exposure": "... in this running time; gives a credible interval too",
        "observed_nodes": "nodes of the job when the faults were counted, if not --nodes",
        "prior": "what is believed before counting: jeffreys, or fleet (4 faults in 1000 node-days; needs --nodes)",
    },
    "what a fault costs besides": {
        "downtime": "until the restart: detection, queue, swap of nodes",
        "drain": "from the end of the stall until the copy on storage is durable",
        "drain_ssd": "the same for the copy on the SSD",
        "node_share": "share of faults that lose the node, so that only the copy on storage is left (1)",
        "memory_share": "share of faults that lose the host's memory but not its SSD (0)",
    },
    "the job and its cluster": {
        "step_time": "time of one training step; the period is then told in steps",
        "nodes": "nodes of the job",
        "standbys": "nodes that stand by; with --repair: what missing ones cost",
        "repair": "mean time until a lost node can be used again",
        "cluster_availability": "share of time in which the job can run at all, for stops not in --downtime (1)",
        "planned_stops_per_week": "stops on purpose in a week in which the job can run, with a save before each",
        "period": "the period in use, start to start, to compare with",
    },
}  # fmt: skip


class Command(BaseCommand):
    """A plan from the command line. Needs no database unless a job is named."""

    help = (
        "Say how often a job should save, what that gives, and what to improve first. "
        "Durations: 30, 30s, 5m, 7.9h, 12d. Example: plan --save-stall 30s --mtbf 10h --recovery 10m --target 0.93"
    )
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: CommandParser) -> None:
        """Declare the values, and what to do with the plan."""
        # what looks like a negative value is one, not an option, and is refused with a sentence of its own; argparse
        # takes -5 for a value but not -5s, and offers no public way to tell it
        parser._negative_number_matcher = NEGATIVE
        for title, values in VALUES.items():
            group = parser.add_argument_group(title)
            for name, meaning in values.items():
                group.add_argument(_option(name), dest=name, metavar="VALUE", help=meaning)
        more = parser.add_argument_group("where values come from, and what to do with the plan")
        more.add_argument("--job", metavar="NAME", help="take what is not given from what was measured of this job")
        more.add_argument("--json", action="store_true", help="print the answer as JSON")
        more.add_argument(
            "--simulate", nargs="?", const=str(FAILURES), metavar="FAILURES", help="try it in a simulation"
        )
        more.add_argument("--seed", metavar="NUMBER", help="of the simulation (1)")
        more.add_argument("--replay", type=Path, metavar="FILE", help="try it on recorded failures, one time a line")
        more.add_argument("--published", choices=sorted(TABLES), help="print published figures beside computed ones")

    def handle(self, *_args: Any, **options: Any) -> None:
        """Plan, or print a published table."""
        with pipe_that_may_end():
            self._answer(options)

    def _answer(self, options: dict[str, Any]) -> None:
        given = {name: options[name] for name in FIELDS if options[name] is not None}
        if options["published"]:
            self._published(given, options)
            return
        with plain_errors():
            job = job_named(options["job"]) if options["job"] else None
            found = asked(given, job, now=clock.now())
        numbers, errors = _numbers(options)
        errors = [*found.errors, *found.unused, *errors]
        if errors or found.request is None:
            raise CommandError("\n".join(["Nothing was planned.", *map(_sentence, errors)]))
        with plain_errors():
            told_all = answer(found.request)
        self._tell(told_all, found.sources, numbers, options)

    def _tell(
        self, found: Answer, sources: Mapping[str, Any], numbers: dict[str, int], options: dict[str, Any]
    ) -> None:
        """Print the plan, and what trying it shows; nothing is printed when trying it fails."""
        extra: dict[str, dict[str, Any]] = {}
        lines: list[str] = []
        try:
            if options["simulate"] is not None:
                extra["simulation"] = _checks().simulated(found, failures=numbers["simulate"], seed=numbers["seed"])
                lines.append(_checks().told_simulation(extra["simulation"]))
            if options["replay"]:
                extra["replay"] = _checks().replayed(found, options["replay"])
                lines.append(_checks().told_replay(extra["replay"]))
        except InvalidInput as error:
            told_as = "replay" if "simulation" in extra or options["simulate"] is None else "simulate"
            raise CommandError(f"The plan cannot be tried.\n{_sentence(_renamed(error, told_as))}") from error
        if options["json"]:
            tree = {**as_json(found, sources=sources), **extra}
            self.stdout.write(json.dumps(tree, indent=2, allow_nan=False))
            return
        for line in plan_report.headline(found):
            self.stdout.write(line)
        for part in (*lines, plan_report.evidence(found), plan_report.sources(found.request, sources)):
            self.stdout.write(f"\n{part}")

    def _published(self, given: Mapping[str, object], options: dict[str, Any]) -> None:
        beside = [*given, *(name for name in ("job", "simulate", "seed", "replay") if options[name] is not None)]
        if beside:
            hint = "Leave it out, or --published: those figures come from what was published alone."
            unused = [InvalidInput(name, "is of no use beside --published", hint=hint) for name in beside]
            raise CommandError("\n".join(["Nothing was printed.", *map(_sentence, unused)]))
        shown = published_table(options["published"])
        if options["json"]:
            self.stdout.write(json.dumps(asdict(shown), indent=2, allow_nan=False))
            return
        for line in plan_report.published(shown):
            self.stdout.write(line)


def _option(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _sentence(error: InvalidInput) -> str:
    """Return an error under the option that was given, other options in it named as options too."""
    sentence = LONG_NAMES.sub(lambda match: _option(match[0]), told(error))
    return f"{_option(error.field)}: {sentence}"


def _renamed(error: InvalidInput, otherwise: str) -> InvalidInput:
    """Return an error of what tries a plan under the name of an option: that of the value, or of trying it."""
    name = error.field.removesuffix("_s")
    message = error.message.removeprefix(f"{error.field}: ")
    return InvalidInput(name if name in FIELDS else otherwise, message, hint=error.hint)


def _numbers(options: Mapping[str, Any]) -> tuple[dict[str, int], list[InvalidInput]]:
    """Return the whole numbers that say how to simulate, and what is wrong with them."""
    found, errors = {"seed": 1, "simulate": FAILURES}, []
    if options["seed"] is not None and options["simulate"] is None:
        errors.append(InvalidInput("seed", "is of no use without --simulate", hint="Give both, or leave it out."))
        return found, errors
    for name in found:
        if options[name] is None:
            continue
        try:
            found[name] = _checks().whole(name, options[name])
        except InvalidInput as error:
            errors.append(error)
    return found, errors


def _checks() -> ModuleType:
    """Return what simulates; only then is NumPy needed."""
    try:
        return importlib.import_module("reliability.management.plan_checks")
    except ModuleNotFoundError as error:
        raise CommandError(
            f"Trying a plan needs {error.name}.\n  Install it: python -m pip install {error.name}"
        ) from error
