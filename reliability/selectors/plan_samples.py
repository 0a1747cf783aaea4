"""What was measured of a job that a plan is computed from: saves, recoveries, faults, repairs?

Each function asks the database a fixed number of times, and looks at a bounded number of rows however long the job
has run: the planner's page asks at every change.
"""

from collections import defaultdict
from dataclasses import dataclass
from datetime import datetime
from statistics import median

from django.db.models import Count, Exists, Max, OuterRef, Q, QuerySet

from reliability.domain.failover import Event, State
from reliability.domain.faults import Action
from reliability.domain.health import USABLE
from reliability.domain.snapshots import Tier
from reliability.models import Drill, Epoch, Failover, FailoverEvent, Hold, Incident, Job, Snapshot, SnapshotCopy
from reliability.selectors import core, stages
from reliability.selectors.stages import Entered, Spent

SAVES = 400
DRAINS = 100
COPIES = 2400
LEAST = 20
RECOVERIES = 30
REPAIRS = 200
STOPPING = (Action.RESTART_IN_PLACE, Action.FAILOVER)
WITHDRAWN = (State.REJECTED, State.CANCELLED)


@dataclass(frozen=True, slots=True)
class Saves:
    """Seconds of the newest saves, one number for each save: that of its slowest rank, for which all others wait.

    stall_s: training stood still. drain_*_s: from the end of the stall until every rank's copy was durable there.
    """

    stall_s: tuple[float, ...] = ()
    drain_ssd_s: tuple[float, ...] = ()
    drain_storage_s: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class Faults:
    """Faults that stopped training while it ran, drills left out; `moved` of them cost a node."""

    restarted: int = 0
    moved: int = 0

    @property
    def all(self) -> int:
        """Number of faults."""
        return self.restarted + self.moved


def saves(job: Job, *, since: datetime) -> Saves:
    """Return what the newest saves took, of so many that the copies of all ranks stay few. Two queries."""
    memory = _newest_copies(job, since, SAVES).filter(tier=Tier.MEMORY, stall_s__isnull=False)
    stalls = memory.values("snapshot_id").annotate(slowest_s=Max("stall_s")).values_list("slowest_s", flat=True)
    durable = _newest_copies(job, since, DRAINS).exclude(tier=Tier.MEMORY).filter(drain_s__isnull=False)
    whole = durable.values("snapshot_id", "tier").annotate(slowest_s=Max("drain_s"), ranks=Count("rank", distinct=True))
    drains = list(whole.filter(ranks__gte=job.world_size).values_list("tier", "slowest_s"))
    on_ssd, on_storage = (tuple(s for tier, s in drains if tier == wanted) for wanted in (Tier.SSD, Tier.STORAGE))
    return Saves(tuple(stalls), on_ssd, on_storage)


def _newest_copies(job: Job, since: datetime, most: int) -> QuerySet[SnapshotCopy]:
    wanted = max(LEAST, min(most, COPIES // job.world_size))
    newest = Snapshot.objects.filter(job=job, created_at__gte=since).order_by("-pk")
    return SnapshotCopy.objects.filter(snapshot__in=newest.values("pk")[:wanted]).order_by()


def recoveries(job: Job, *, since: datetime) -> list[Spent]:
    """Return what the newest completed recoveries took, drills among them: they measure as well. Two queries.

    Left out are those that a person refused first and asked for later, and those that waited out a back-off: how long
    that took tells of no other fault.
    """
    newest = Failover.objects.filter(job=job, created_at__gte=since).order_by("-pk")
    columns = ("incident_id", "kind", "state", "fault_at", "created_at", "superseded_by_id", "start_after")
    rows = list(newest.only(*columns)[: 2 * RECOVERIES])
    refused = {row.incident_id for row in rows if row.state in WITHDRAWN}
    telling = [row for row in rows if row.incident_id not in refused and row.start_after is None]
    done = [row for row in telling if row.state == State.COMPLETED][:RECOVERIES]
    chains = stages.chains(rows)
    wanted = {each.pk for row in done for each in chains[row.pk]}
    events: dict[int, list[Entered]] = defaultdict(list)
    rows_of = FailoverEvent.objects.filter(failover__in=wanted).order_by("pk")
    for failover, at, source, target in rows_of.values_list("failover_id", "at", "source", "target"):
        events[failover].append(Entered(at, source, target))
    return [stages.spent(chains[row.pk], events, approval=job.approval) for row in done]


def faults(job: Job, *, since: datetime) -> Faults:
    """Return the faults that stopped training that was going on. One query.

    A drill is no fault, and neither is what turned out to stop nothing: a node that came back in time, ranks that had
    finished. A fault before the first step of an attempt struck no time that is counted.
    """
    of_it = {"failover__incident": OuterRef("pk")}
    harmless = Q(detail__recovered=True) | Q(detail__held_back=True) | Q(detail__finished=True)
    rows = Incident.objects.filter(job=job, opened_at__gte=since, action__in=STOPPING).filter(
        Exists(Epoch.objects.filter(job=job, number=OuterRef("epoch"), running_at__isnull=False)),
        Exists(Failover.objects.filter(incident=OuterRef("pk"))),
        ~Exists(Drill.objects.filter(**of_it)),
        ~Exists(FailoverEvent.objects.filter(harmless, event=Event.CANCELLED, **of_it)),
    )
    counts = dict(rows.order_by().values_list("action").annotate(n=Count("pk")))
    return Faults(restarted=counts.get(Action.RESTART_IN_PLACE, 0), moved=counts.get(Action.FAILOVER, 0))


def step_s(job: Job) -> tuple[float | None, int]:
    """Return the recent time of one step, without the rank's own saves, as the median of the ranks; and their number.

    All ranks of a job step together, so that they differ by what one waits for the others' saves. While a recovery
    goes on it is what was known last. One query.
    """
    found = [value for value in job.ranks.values_list("step_s", flat=True) if value]
    return (median(found) if found else None), len(found)


def standbys(job: Job) -> int:
    """Return how many free nodes could take over a slot of the job now. One query."""
    held = core.active_holds().values("node_id")
    usable = core.free_nodes().filter(runtime=job.runtime, health__in=USABLE)
    return usable.exclude(pk__in=held).count()


def repairs(job: Job, *, since: datetime, now: datetime) -> tuple[float | None, int]:
    """Return how long a node that this job lost was out of use, and how many came back. One query.

    Those that are still out count with their time so far: mean = all time out / number that came back.
    """
    rows = Hold.objects.filter(reason__startswith=core.replaced_in(job), created_at__gte=since).order_by("-pk")
    held = list(rows.values_list("created_at", "released_at")[:REPAIRS])
    back = sum(released is not None for _, released in held)
    out_s = sum(((released or now) - created).total_seconds() for created, released in held)
    return (out_s / back if back else None), back
