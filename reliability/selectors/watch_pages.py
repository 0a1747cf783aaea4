"""What a job's page and the REST interface tell of how training gets on: the rule, who is near it, who is slow."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from reliability import conf
from reliability.domain.progress import (
    Computed,
    RankView,
    StragglerRule,
    find_quiet,
    limit_of,
    quiet_limit,
    spread,
    standing,
    suspect,
)
from reliability.domain.progress.stragglers import Lag
from reliability.models import Job, Rank, Watch
from reliability.selectors import core, watching

SHOWN = 256
"""So many ranks are listed: those that lag most where there are more."""


@dataclass(frozen=True)
class RankLine:
    """One rank. Times in seconds, None where nothing is known. `lag`: beside the others of its role."""

    view: RankView
    limit_s: float
    limit_why: str
    role: str
    compute_s: float | None
    lag: Lag | None
    share: float | None
    straggler: bool

    @property
    def doing(self) -> str:
        """Where it is, in words."""
        return "in a collective" if self.view.waits else self.view.phase or "training"


@dataclass(frozen=True)
class Watching:
    """How a job gets on. `state`: off, unknown, hang, quiet, going. `sentence` says it, with the rule."""

    state: str
    sentence: str
    suspicion: str
    slow: Mapping[str, Any]
    stragglers: Sequence[str]
    usual_step_s: float | None
    lines: tuple[RankLine, ...]
    computed: bool
    more: int


def watching_of(job: Job, *, now: datetime) -> Watching:
    """Return how a job gets on now. Five queries."""
    kept = Watch.objects.filter(job=job, epoch=job.epoch).first() or Watch(job=job)
    ranks = watching.live_ranks(job)
    since = core.listening_since(now)
    views = watching.views(job, ranks, now=now, since=since or now)
    told = watching.computed(ranks)
    lines = _lines(views, told, kept)
    state, sentence, suspicion = _standing(job, ranks, views, now, since)
    windows = [each["step_s"] for each in kept.windows]
    return Watching(
        state=state,
        sentence=sentence,
        suspicion=suspicion,
        slow=kept.slow,
        stragglers=[each["evidence"] for _, each in sorted(kept.stragglers.items())],
        usual_step_s=sorted(windows)[len(windows) // 2] if windows else None,
        lines=tuple(lines[:SHOWN]),
        computed=bool(told),
        more=max(0, len(lines) - SHOWN),
    )


def _standing(
    job: Job, ranks: Sequence[Rank], views: Sequence[RankView], now: datetime, since: datetime | None
) -> tuple[str, str, str]:
    if job.state != Job.State.RUNNING and not core.goes_on(job):
        return "off", "Not watched: progress is watched while a job is running.", ""
    if since is None:
        return "unknown", "Not known: the part that takes reports does not listen now.", ""
    if not watching.tells_steps(ranks):
        return _quiet(job, ranks, now, since)
    found = standing(views, conf.progress_rule())
    if found is None:
        unheard = sorted({each.node for each in views if each.still_s is None})
        return "unknown", f"Not known: nothing is heard now of the ranks on {', '.join(unheard) or 'any node'}.", ""
    limit = f"limit {found.limit}"
    if found.over:
        whom = suspect(views, newcomers=watching.newcomers(job, now=now)).reason
        return "hang", f"It hangs: no step for {found.still_s:.1f} s; {limit}.", whom
    where = f" of rank {found.decisive.rank}" if len(views) > 1 else ""
    return "going", f"No hang: no step for {found.still_s:.1f} s{where}; {limit}.", ""


def _quiet(job: Job, ranks: Sequence[Rank], now: datetime, since: datetime) -> tuple[str, str, str]:
    outputs = watching.outputs(job, ranks, now=now, since=since)
    rule = conf.progress_rule()
    quiet = find_quiet(outputs, snapshot_s=watching.snapshot_age_s(job, now=now), rule=rule)
    unknown = "It tells of no steps: whether it trains, and which rank stands still, is not known."
    if quiet is not None:
        return (
            "quiet",
            f"It is quiet: no output and no snapshot for {quiet.quiet_s:.0f} s; limit {quiet.limit}.",
            unknown,
        )
    limit = quiet_limit(max((each.longest_s or 0.0 for each in outputs), default=None), rule)
    return "going", f"Watched by its output and its snapshots; quiet is longer than {limit}.", unknown


def _lines(views: Sequence[RankView], told: Mapping[int, Computed], kept: Watch) -> list[RankLine]:
    lags = spread(told, StragglerRule())
    longest_s = max((each.seconds for each in told.values()), default=0.0)
    rule = conf.progress_rule()
    lines = []
    for view in views:
        limit = limit_of(view.phase, view.phase_limit_s, view.pace, rule)
        computed = told.get(view.rank)
        lines.append(
            RankLine(
                view=view,
                limit_s=limit.seconds,
                limit_why=limit.why,
                role=computed.role if computed else "",
                compute_s=computed.seconds if computed else None,
                lag=lags.get(view.rank),
                share=computed.seconds / longest_s if computed and longest_s > 0 else None,
                straggler=str(view.rank) in kept.stragglers,
            )
        )
    if len(lines) > SHOWN:
        lines.sort(key=lambda line: (-line.straggler, -(line.lag.seconds - line.lag.usual_s if line.lag else 0.0)))
    return lines
