"""What do findings mean: which class of fault, which action, which of them is the root (M9)?

The order: what each finding is worth, what policy makes of its class, how far its code reached, and only then which is
the root. The earliest finding that is no follow-up is the root. A stronger action takes its place, so that a plain
program error on a survivor cannot hide a lost node, and a fault of one node takes the place of what many show. Later
findings only ever raise the action. Reasons carry the counts and lines that decided.
"""

from collections.abc import Sequence

from reliability.domain.faults import policy
from reliability.domain.faults.findings import NO_CONTEXT, Attempt, Context, Finding, Judgement
from reliability.domain.faults.roots import BLAMING, decisive, meanwhile, reaches, root_of
from reliability.domain.faults.suspects import Suspect, node_lost_by_many, rank_behind
from reliability.domain.faults.table import TABLE, Table
from reliability.domain.faults.weighing import Weighed, standing, weigh
from reliability.domain.faults.words import Action, FaultClass, Severity

STEP_SLACK = 1
"""Ranks that had not yet noticed may have finished one step more than the one that failed."""
FOLLOW_UPS = "findings on other ranks are consequences and decide"


def _told(item: Weighed) -> str:
    rank = "" if item.finding.rank is None else f", rank {item.finding.rank}"
    times = f" ({item.finding.count} times)" if item.finding.count > 1 else ""
    evidence = f" Evidence: {item.finding.evidence}" if item.finding.evidence else ""
    notes = "".join(f" {note}" for note in item.notes)
    return f"{item.finding.code} on {item.finding.node}{rank}{times}: {item.row.meaning}{notes}{evidence}"


def _decided(
    weighed: Sequence[Weighed], items: Sequence[Weighed], unknown_action: Action, nodes: int | None, context: Context
) -> tuple[Judgement, Weighed]:
    """Return what decisive findings come to, with the root."""
    far = reaches(weighed, nodes, context)
    root = root_of(items, far)
    reasons = [_told(root)]
    earliest = items[0]
    if earliest is not root:
        reasons.append(f"It outranks what was seen first ({earliest.finding.code} on {earliest.finding.node}).")
    if root.row.unexplained and not root.notes:
        reasons.append(f"The cause is unknown: the job's policy for that is {unknown_action.replace('_', ' ')}.")
    follow_ups = sum(item.row.follow_up for item in weighed)
    if follow_ups:
        told = "finding on another rank is a consequence and decides" if follow_ups == 1 else FOLLOW_UPS
        reasons.append(f"{follow_ups} {told} nothing.")
    reasons.append(root.row.advice)
    if root.tabled is not None:
        reasons.append(policy.sentence(root.fault_class, root.action, root.tabled))
    wide = far.get(root.row.code) if root.action is Action.FAILOVER or root.fault_class in BLAMING else None
    held = wide is not None and root.action is Action.FAILOVER
    judgement = Judgement(
        fault_class=root.fault_class,
        action=root.action,
        root=root.finding,
        reasons=(*reasons, *(each.sentence for each in far.values())),
        reach=wide,
        meanwhile=meanwhile(root, items, far, context) if held else None,
        wide=frozenset(far),
    )
    return judgement, root


def _waiting(weighed: Sequence[Weighed], sentence: str) -> Judgement:
    told = tuple(_told(item) for item in weighed)
    return Judgement(
        fault_class=FaultClass.UNKNOWN, action=Action.OBSERVE, root=None, reasons=(sentence, *told), undecided=True
    )


def _unharmed(weighed: Sequence[Weighed]) -> Judgement:
    """Consequences of something that did not touch this attempt, such as the end of the one before it."""
    told = tuple(_told(item) for item in weighed)
    went_on = "No rank ended and training went on: these are consequences of something else, and nothing is done."
    return Judgement(
        fault_class=FaultClass.UNKNOWN, action=Action.OBSERVE, root=weighed[0].finding, reasons=(went_on, *told)
    )


def _only_follow_ups(
    weighed: Sequence[Weighed], now: float, settle_s: float, context: Context, table: Table
) -> Judgement:
    """Consequences without a cause: wait for one, then name who is behind them, or restart: nothing accuses a node."""
    times = [item.finding.at for item in weighed if item.row.follow_up]
    waited, limit_s = now - min(times), settle_s
    if not context.ranks_ended:
        limit_s = max(settle_s, context.patience_s)
        if context.progress_at is not None and context.progress_at - max(times) > context.patience_s:
            return _unharmed(weighed)
    if waited <= limit_s:
        return _waiting(
            weighed, f"Only consequences are known so far: the cause is awaited for {limit_s - waited:.1f} s more."
        )
    findings = [item.finding for item in weighed]
    condition = standing(weighed, context, table, now=now)
    if condition is not None:
        found = policy.apply([condition], context)
        return _decided([*weighed, *found], found, Action.OBSERVE, None, context)[0]
    suspect = node_lost_by_many(findings, context) or rank_behind(findings, context)
    told = tuple(_told(item) for item in weighed)
    if suspect is not None:
        return _suspected(suspect, told)
    unfound = f"No root was found within {settle_s:.1f} s, only consequences: nothing accuses a node."
    network = any(item.row.fault_class is FaultClass.NETWORK for item in weighed if item.row.follow_up)
    fault_class = FaultClass.NETWORK if network else FaultClass.SOFTWARE
    return Judgement(fault_class=fault_class, action=Action.RESTART_IN_PLACE, root=None, reasons=(unfound, *told))


def _suspected(suspect: Suspect, told: tuple[str, ...]) -> Judgement:
    moves = suspect.lost_by_many and suspect.finding is not None
    where = f" It runs on {suspect.node}." if suspect.node and suspect.rank is not None else ""
    return Judgement(
        fault_class=suspect.fault_class,
        action=Action.FAILOVER if moves else Action.RESTART_IN_PLACE,
        root=suspect.finding,
        reasons=(suspect.reason + where, *told),
    )


def _same_step_elsewhere(root: Weighed, context: Context) -> Attempt | None:
    """Return an earlier end with the same code at the same step on other nodes: then it is the job's own."""
    accused = root.fault_class is FaultClass.HARDWARE or root.row.severity is Severity.FATAL
    if context.step is None or accused or root.row.unexplained:
        return None
    for attempt in context.attempts:
        same_step = abs(attempt.step - context.step) <= STEP_SLACK
        if same_step and attempt.code == root.row.code and root.finding.node not in attempt.nodes:
            return attempt
    return None


def _of_the_job(judgement: Judgement, earlier: Attempt, context: Context) -> Judgement:
    nodes = ", ".join(sorted(earlier.nodes))
    told = f"Same step, two nodes: it ended at step {context.step} with the same code on {nodes} before."
    job = "So it is the job's own, most likely its data: no node is replaced. Look at that batch, or skip it."
    return Judgement(
        fault_class=FaultClass.APPLICATION,
        action=Action.HOLD,
        root=judgement.root,
        reasons=(told, job, *judgement.reasons),
        same_step=True,
    )


def judge(
    findings: Sequence[Finding],
    *,
    unknown_action: Action,
    now: float,
    settle_s: float,
    nodes: int | None = None,
    context: Context = NO_CONTEXT,
    table: Table = TABLE,
) -> Judgement | None:
    """Return what the findings of one job in one epoch (or of one node) come to; None when there are none.

    Root: the earliest arrival among the findings with the strongest action that are no follow-ups; more in `roots`.
    `unknown_action` is the job's policy for an end nobody can explain. Only follow-ups: undecided for `settle_s`
    seconds after the first, then a restart in place. `nodes` is the number of nodes of the job, for the blast radius;
    without it the nodes that were named count. `context` is what else is known; without it no rule that needs it says
    anything.
    """
    if not findings:
        return None
    weighed = weigh(findings, unknown_action=unknown_action, now=now, context=context, table=table)
    weighed = policy.apply(weighed, context)
    items = decisive(weighed)
    if items:
        judgement, root = _decided(weighed, items, unknown_action, nodes, context)
        earlier = _same_step_elsewhere(root, context)
        return judgement if earlier is None else _of_the_job(judgement, earlier, context)
    # A cause that policy only observes explains its consequences all the same.
    cause = next((item for item in weighed if item.tabled is not None and not item.row.follow_up), None)
    consequences = [item for item in weighed if not item.aside]
    if cause is None and any(item.row.follow_up for item in consequences):
        alone = _only_follow_ups(consequences, now, settle_s, context, table)
        return policy.by_policy(alone, context.class_actions, ranks_ended=context.ranks_ended)
    return _observed(weighed, cause or weighed[0], nodes, context)


def _observed(weighed: Sequence[Weighed], first: Weighed, nodes: int | None, context: Context) -> Judgement:
    pending = max(item.pending_s for item in weighed)
    if pending > 0:
        return _waiting(weighed, f"What is known may end by itself: it is awaited for {pending:.0f} s more.")
    far = reaches(weighed, nodes, context)
    told = () if first.tabled is None else (policy.sentence(first.fault_class, first.action, first.tabled),)
    return Judgement(
        fault_class=first.fault_class,
        action=Action.OBSERVE,
        root=first.finding,
        reasons=(_told(first), first.row.advice, *told, *(each.sentence for each in far.values())),
        reach=far.get(first.row.code),
        wide=frozenset(far),
    )
