"""manage.py snapshots: list, verify, restore, export and prune what is stored of a job, in a folder or elsewhere."""

import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence, Set
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TextIO, cast

from django.core.management import BaseCommand, CommandError, CommandParser

from reliability.domain.sizes import spoken
from reliability.domain.snapshots import SnapshotId, Tier, in_lineage, lineage_ceilings
from reliability.management import distrusting, exporting, pruning, stored_options
from reliability.management.console import job_named, plain_errors, table
from reliability.management.progress import Bar
from reliability.models import Job
from reliability.ports import TierStore
from reliability.selectors import core
from reliability.selectors import retention as kept
from reliability.services import clock, retention, snapshots
from reliability.tiers import catalogue, choosing, lines
from reliability.tiers.catalogue import Stored
from reliability.tiers.directory import DirectoryTier
from reliability.tiers.shards import Shard

Line = Mapping[int, int | None]
LOOK_AGAIN_S = 0.5


class Command(BaseCommand):
    """What lies on storage, also when there is nothing else left: with --at no database is asked."""

    help = "List, verify, restore, export or prune the stored snapshots of a job."

    def add_arguments(self, parser: CommandParser) -> None:
        """Declare the actions."""
        actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
        texts = {
            "list": "show what is stored, newest first",
            "verify": "read it all and compare digests; exit code 1 when something is wrong",
            "restore": "copy the newest good snapshot into a folder",
            "export": "write the newest good snapshot as .safetensors, .pt or .pth files, one a rank",
            "prune": "remove what the job's rules do not keep, or those given here, and abandoned attempts first",
        }
        distrusting.add_to(actions)
        for name, text in texts.items():
            action = actions.add_parser(name, help=text)
            action.add_argument("job", type=stored_options.job_name, help="name of the job")
            action.add_argument(
                "--at", metavar="ADDRESS", help="a folder or s3://, gs://, az:// address (the job's own)"
            )
            ranks = stored_options.count(stored_options.MOST_RANKS, least=1)
            action.add_argument("--ranks", type=ranks, default=0, help="ranks of the job, where storage does not say")
            if name in {"verify", "restore", "export"}:
                action.add_argument("--step", type=stored_options.count(2**53), help="this step alone")
                action.add_argument("--epoch", type=stored_options.count(), help="of this attempt alone")
            if name in {"restore", "export"}:
                action.add_argument("--to", type=Path, required=True, help="folder to make, or file to write")
            if name == "export":
                action.add_argument("--rank", type=stored_options.count(), help="this rank alone")
            if name == "prune":
                action.add_argument("--keep", type=int, metavar="N", help="the newest N whole ones stay")
                action.add_argument(
                    "--every-steps", type=int, metavar="STEPS", help="of each so many steps the first stays"
                )
                action.add_argument("--younger", metavar="TIME", help="those younger than that stay, as 12h or 7d")
                action.add_argument("--cap", metavar="SIZE", help="more than that does not stay, as '500 GB'")
                action.add_argument("--dry-run", action="store_true", help="only show what would go, and why")

    def handle(self, *_args: Any, **options: Any) -> None:
        """Carry out one action."""
        with plain_errors():
            if options["action"] == "distrust":
                self.stdout.write(distrusting.distrust(options))
                return
            job = None if options["at"] else job_named(options["job"])
            tier = choosing.job_tier(options["at"] or (job.storage_dir if job else ""), options["job"])
            found = catalogue.stored(tier, ranks=options["ranks"] or (job.world_size if job else 0))
            for damaged in tier.damaged():
                self.stderr.write(f"Not believed: {damaged}")
            if not found:
                raise CommandError(f"Nothing of job {options['job']} is stored there.")
            if "step" in options:
                stored_options.check_there(found, step=options["step"], epoch=options["epoch"])
            line = lineage_ceilings(core.epoch_starts(job)) if job else lines.ceilings(tier.starts())
            if options["action"] in {"restore", "export"} and options["epoch"] is None:
                found = _of_the_line(found, line, core.distrusted(job) if job else set())
            getattr(self, f"_{options['action']}")(tier, found, {**options, "line": line}, job)

    def _list(self, tier: TierStore, found: Sequence[Stored], options: dict[str, Any], job: Job | None) -> None:
        line: Line = options["line"]
        going: Set[SnapshotId] = set()
        if any(each.missing for each in found):  # damage, or a moment in which it comes or goes?
            time.sleep(LOOK_AGAIN_S)
            again = catalogue.stored(tier, ranks=options["ranks"] or (job.world_size if job else 0))
            found, going = again, _going(found, again) | (pruning.planned(job) if job else set())
        rows = [
            (
                each.snapshot.step,
                each.snapshot.epoch,
                f"{len(each.keys)}/{each.ranks}",
                spoken(each.size_bytes),
                _taken(each),
                ("is being removed" if each.missing and each.snapshot in going else _state(each))
                + ("" if not line or in_lineage(each.snapshot, line) else " (abandoned line)"),
            )
            for each in found
        ]
        self.stdout.write(table(("STEP", "EPOCH", "RANKS", "SIZE", "TAKEN (UTC)", "STATE"), rows))

    def _verify(self, tier: TierStore, found: Sequence[Stored], options: dict[str, Any], _job: Job | None) -> None:
        wrong = 0
        for each in catalogue.candidates(found, step=options["step"], epoch=options["epoch"]):
            with self._bar(each) as bar:
                read = catalogue.verified(tier, each, bar.add)
            wrong += not read.whole
            self.stdout.write(f"{_name(read)}: {_state(read) if not read.whole else 'good'}")
        if wrong:
            raise CommandError(f"{wrong} of the stored snapshots cannot be restored.")

    def _restore(self, tier: TierStore, found: Sequence[Stored], options: dict[str, Any], _job: Job | None) -> None:
        stored_options.check_new_folder(options["to"])
        target = DirectoryTier(options["to"])
        good = self._newest_good(tier, found, options, target)
        self.stdout.write(f"{_name(good)} lies in {options['to']}: {spoken(good.size_bytes)}.")

    def _export(self, tier: TierStore, found: Sequence[Stored], options: dict[str, Any], _job: Job | None) -> None:
        path: Path = options["to"].absolute()
        (stored_options.check_file if path.suffix else stored_options.check_folder)(path)
        with (
            exporting.writer(path) as write,
            tempfile.TemporaryDirectory(dir=path.parent, prefix=".stepkeeper-") as folder,
        ):
            target = DirectoryTier(Path(folder))
            good = self._newest_good(tier, found, options, target)
            ranks = _ranks(good, options)
            for rank in ranks:
                shard = Shard(good.snapshot.epoch, good.snapshot.step, rank)
                record = target.data_path(shard.flat_key).with_suffix(".json")
                alone = len(ranks) == 1 or not path.suffix  # what programs wrote themselves shares one folder
                one = path if alone else path.with_name(f"{path.stem}-rank{rank}{path.suffix}")
                write(exporting.load(record, rank), one)
                self.stdout.write(f"{_name(good)}, rank {rank}: {one}")

    def _prune(self, tier: TierStore, found: Sequence[Stored], options: dict[str, Any], job: Job | None) -> None:
        if job is not None and not options["dry_run"] and core.open_failover(job) is not None:
            raise CommandError(f"A recovery of {job.name} is open: nothing is removed before it is over.")
        rule, now = pruning.rule_of(job, options, found), clock.now()
        plan = pruning.plan(found, rule=rule, line=options["line"], ledger=pruning.ledger_of(job), now=now.timestamp())
        verb = "Would remove" if options["dry_run"] else "Removes"
        for each, why in plan.gone:
            self.stdout.write(f"{verb} {_name(each)} ({_state(each)}, {spoken(each.size_bytes)}): {why}")
        if job is not None:
            self._tell_of_ssds(job, now, dry_run=options["dry_run"])
        if options["dry_run"] or not plan.gone:
            self.stdout.write(f"{len(plan.gone)} snapshots, {spoken(plan.size_bytes)}.")
            return
        with self._bar(plan.newest) as bar:  # nothing goes before what stays was read
            read = catalogue.verified(tier, plan.newest, bar.add)
        if not read.whole:
            raise CommandError(f"{_name(read)} would be the newest to stay, and is no good: {_state(read)}.")
        self._remove(tier, plan, job)
        self.stdout.write(f"{len(plan.gone)} snapshots are removed.")

    def _remove(self, tier: TierStore, plan: pruning.Plan, job: Job | None) -> None:
        """Remove each shard's record before its data, and note each snapshot once all of it is gone."""
        with Bar(self._terminal(), "remove", plan.size_bytes) as bar:
            for each, why in plan.gone:
                for rank, key in each.keys.items():
                    tier.delete(key)
                    bar.add(each.sizes.get(rank, 0))
                if job is not None:
                    snapshots.note_removed(job, each.snapshot, reason=why)

    def _tell_of_ssds(self, job: Job, now: datetime, *, dry_run: bool) -> None:
        """What lies on the nodes' SSDs the nodes remove themselves, by the job's rules, as the ledger decides."""
        if not dry_run:
            retention.decide(job, now)
        for each in kept.decisions(job, now):
            if each.tier is Tier.SSD:
                step = f"step {each.snapshot.step} of attempt {each.snapshot.epoch}"
                verb = "Would be removed" if dry_run else "Is removed"
                self.stdout.write(f"{verb} from SSDs by their nodes: {step} ({spoken(each.size_bytes)}): {each.words}")

    def _newest_good(
        self, tier: TierStore, found: Sequence[Stored], options: dict[str, Any], target: DirectoryTier
    ) -> Stored:
        """Bring the newest snapshot that is good into a folder, telling which newer ones were passed over and why."""
        for each in catalogue.candidates(found, step=options["step"], epoch=options["epoch"]):
            read = each
            if each.whole:
                with self._bar(each) as bar:
                    read = catalogue.bring(tier, each, target, _ranks(each, options), bar.add)
            if read.whole:
                return read
            for rank in read.keys:
                target.delete(Shard(read.snapshot.epoch, read.snapshot.step, rank).flat_key)
            self.stderr.write(f"Passed over {_name(read)}: {_state(read)}")
        raise CommandError("No stored snapshot is whole and good.")

    def _bar(self, each: Stored) -> Bar:
        return Bar(self._terminal(), f"step {each.snapshot.step}", each.size_bytes)

    def _terminal(self) -> TextIO:
        return cast(TextIO, getattr(self.stderr, "_out", self.stderr))  # its wrapper would end every line


def _of_the_line(found: Sequence[Stored], line: Line, distrusted: Set[SnapshotId]) -> list[Stored]:
    """Return those of the line that goes on, without what is distrusted; where no start is known there is no line."""
    return [each for each in found if (not line or in_lineage(each.snapshot, line)) and each.snapshot not in distrusted]


def _going(before: Sequence[Stored], after: Sequence[Stored]) -> set[SnapshotId]:
    """Return those of which there was more a moment ago."""
    had = {each.snapshot: each.keys.keys() for each in before}
    return {each.snapshot for each in after if had.get(each.snapshot, set()) - each.keys.keys()}


def _ranks(each: Stored, options: dict[str, Any]) -> list[int]:
    chosen = options.get("rank")
    if chosen is None:
        return list(each.keys)
    if chosen not in each.keys:
        raise CommandError(f"{_name(each)} has no rank {chosen}; there are: {', '.join(map(str, each.keys))}.")
    return [chosen]


def _name(each: Stored) -> str:
    return f"step {each.snapshot.step} of attempt {each.snapshot.epoch}"


def _taken(each: Stored) -> str:
    """Return when it was taken, by the clock of its node; what a record says may be no time at all."""
    try:
        return "-" if each.taken_at is None else f"{datetime.fromtimestamp(each.taken_at, UTC):%Y-%m-%d %H:%M:%S}"
    except (ValueError, OverflowError, OSError):
        return "-"


def _state(each: Stored) -> str:
    return "; ".join(_troubles(each)) or "whole"


def _troubles(each: Stored) -> Iterator[str]:
    if each.missing:
        yield f"no rank {', '.join(map(str, each.missing))}"
    for rank, why in each.problems.items():
        yield f"rank {rank}: {why}"
