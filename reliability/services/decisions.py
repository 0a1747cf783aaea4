"""Decisions: each is kept, once; some are only observed; people and what happens next say whether they were right."""

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from django.contrib.auth.models import AbstractBaseUser, AnonymousUser, PermissionsMixin
from django.core.exceptions import PermissionDenied
from django.db import transaction
from django.db.models import Q

from reliability.domain.aftermath import WINDOW_S, judged
from reliability.domain.failover import Kind
from reliability.domain.faults import Action, Judgement
from reliability.domain.modes import WORDS, Mode, bounded
from reliability.domain.policy import Approval
from reliability.domain.precision import Source, Verdict
from reliability.errors import InvalidInput
from reliability.models import Decision, DecisionVerdict, Drill, Finding, Incident, Job, Node, Rank
from reliability.selectors import aftermath, core, fault_codes, precision
from reliability.services import clock, dispatch, modes, turns
from reliability.services.failovers import fitness

PERMISSION = "reliability.judge_decisions"
OUTCOME = "what happened next"
TURN = "verdicts"
LOOK_S = 30.0
"""What happened next is asked so often, for at most LOOKED_AT decisions at a time, those longest not asked first."""
LOOKED_AT = 100
LONGEST_NOTE = 500
RECOVERIES = (Action.RESTART_IN_PLACE, Action.FAILOVER)
Person = PermissionsMixin | AnonymousUser | AbstractBaseUser


@dataclass(frozen=True, kw_only=True)
class What:
    """What was decided: the root's code and node, the class, the action, and a sentence."""

    code: str
    fault_class: str
    action: Action
    node: Node | None
    summary: str


def keep(incident: Incident, what: What | None = None, *, action: Action | None = None) -> Decision:
    """Keep what an incident comes to (or would, were it not only observed), and say how it is taken now.

    `action` is what is done about the incident now, where that is not all it calls for.

    Idempotent: the same inputs in the same mode are one decision. Called in the transaction that acts on it, so that
    the rule it goes by is the one in force when it acts.
    """
    decided = what or _of(incident, action or Action(incident.action))
    group = precision.group_of(decided.node)
    rule = precision.rule_for(decided.code, group)
    mode = _mode(incident, decided, Mode(rule.mode) if rule else Mode.AUTOMATIC)
    inputs = {
        "epoch": incident.epoch,
        "code": decided.code,
        "class": str(decided.fault_class),
        "action": str(decided.action),
        "node": decided.node.name if decided.node else "",
        "mode": str(mode),
    }
    kept, new = Decision.objects.get_or_create(
        incident=incident,
        digest=hashlib.sha256(json.dumps(inputs, sort_keys=True).encode()).hexdigest(),
        defaults={
            **_columns(incident, decided, mode),
            "group": group,
            "rule": rule,
            "inputs": {**inputs, "step": core.newest_step_reached(incident.job) if incident.job else None},
        },
    )
    if new:
        dispatch.changed("overview", f"incident:{incident.pk}")
    return kept


def taken_by_itself(incident: Incident) -> bool:
    """Keep what an incident of a node comes to, and return whether it is done by itself; if not, it is observed."""
    decision = keep(incident)
    if decision.mode == Mode.AUTOMATIC:
        return True
    word = WORDS[Mode(decision.mode)].capitalize()
    told = f"{word} for {decision.code}: {decision.get_action_display()} would have been the action."
    incident.action, incident.reasons = Action.OBSERVE, [told, *incident.reasons]
    incident.save(update_fields=["action", "reasons"])
    return False


def _of(incident: Incident, action: Action) -> What:
    return What(
        code=incident.code,
        fault_class=incident.fault_class,
        action=action,
        node=incident.node,
        summary=incident.summary,
    )


def _mode(incident: Incident, decided: What, ruled: Mode) -> Mode:
    """Return how it is taken: a hold of a job is itself a request to a person, so it is made or only observed."""
    job = incident.job
    if job is None or ruled is Mode.SHADOW or decided.action not in RECOVERIES:
        return ruled
    return bounded(ruled, kind=fitness.kind_for(incident, job), approval=Approval(job.approval))


def _columns(incident: Incident, decided: What, mode: Mode) -> dict[str, Any]:
    now = clock.now()
    return {
        "job": incident.job,
        "node": decided.node,
        "epoch": incident.epoch,
        "code": decided.code,
        "family": precision.family_of(decided.code),
        "fault_class": decided.fault_class,
        "action": decided.action,
        "mode": mode,
        "summary": decided.summary,
        "drill": incident.job is not None
        and Drill.objects.filter(job=incident.job, state=Drill.State.RUNNING).exists(),
        "at": now,
        "looked_at": now,
    }


def split(
    judgement: Judgement, findings: Sequence[Finding], rejudge: Callable[[Sequence[Finding]], Judgement | None]
) -> tuple[Judgement | None, list[What]]:
    """Return what is acted on, and what is only observed because its code is.

    A code that is observed only is left out, with the consequences it may have had, and the rest is judged again: what
    else was found is not hidden behind it. None instead of a judgement: the rest may still end by itself.
    """
    shadows: list[What] = []
    current: Judgement | None = judgement
    left = list(findings)
    while current is not None and not current.undecided and current.action is not Action.OBSERVE:
        root = _root(current, left)
        code, group = (root.code, precision.group_of(root.node)) if root else ("", "")
        if precision.mode_for(code, group) is not Mode.SHADOW:
            break
        shadows.append(_would(current, root))
        left = _others(left, code)
        current = rejudge(left) if left else None
    if not shadows:
        return judgement, []
    if current is not None and current.undecided:
        return None, []
    return _told(current, judgement, shadows), shadows


def _root(judgement: Judgement, findings: Sequence[Finding]) -> Finding | None:
    return next((each for each in findings if judgement.root and each.pk == judgement.root.order), None)


def _would(judgement: Judgement, root: Finding | None) -> What:
    meaning = fault_codes.table().lookup(root.code).meaning if root else "Only consequences are known."
    return What(
        code=root.code if root else "",
        fault_class=judgement.fault_class,
        action=judgement.action,
        node=root.node if root else None,
        summary=f"{meaning} ({root.code} on {root.node.name})" if root else meaning,
    )


def _others(findings: Sequence[Finding], code: str) -> list[Finding]:
    table = fault_codes.table()
    kept = [each for each in findings if not table.lookup(each.code).follow_up] if code else []
    shadowed = precision.shadowed_codes((each.code, precision.group_of(each.node)) for each in kept)
    return [each for each in kept if (each.code, precision.group_of(each.node)) not in shadowed]


def _told(current: Judgement | None, judgement: Judgement, shadows: Sequence[What]) -> Judgement:
    acting = current or replace(judgement, action=Action.OBSERVE)
    sentences = tuple(
        f"Observe only for {each.code or 'consequences'}: {each.action.replace('_', ' ')} would have been the action, "
        "and nothing is done."
        for each in shadows
    )
    return replace(acting, reasons=(*sentences, *acting.reasons))


def observe(job: Job, incident: Incident, shadows: Sequence[What]) -> None:
    """Keep what would have been done. A job whose attempt has ended waits for a person."""
    for what in shadows:
        keep(incident, what)
    ended = Rank.objects.filter(job=job, epoch=job.epoch, state=Rank.State.FAILED).exists()
    if shadows and ended and incident.action == Action.OBSERVE and core.open_failover(job) is None:
        reason = f"Observe only: {incident.summary} Somebody must decide what is done."
        Job.objects.filter(pk=job.pk).exclude(state__in=Job.TERMINAL).update(
            state=Job.State.WAITING, state_reason=reason
        )
        dispatch.changed("overview", f"job:{job.pk}")


def give_verdict(decision: Decision, verdict: str, *, by: Person, note: str = "") -> DecisionVerdict:
    """Keep what a person says of a decision; it outranks what happened next. Raises PermissionDenied, InvalidInput."""
    if not getattr(by, "is_active", False) or not by.has_perm(PERMISSION):  # type: ignore[union-attr]
        raise PermissionDenied("Saying whether a decision was right needs the permission judge_decisions.")
    if verdict not in list(Verdict):
        raise InvalidInput("verdict", f"{verdict!r} is none", hint=f"One of {', '.join(Verdict)}.")
    if len(note) > LONGEST_NOTE:
        raise InvalidInput("note", "is too long", hint=f"At most {LONGEST_NOTE} characters.")
    name = str(by.get_username())  # type: ignore[union-attr]
    return _say(decision, verdict, source=Source.PERSON, by=name, reason=note.strip())


def _say(decision: Decision, verdict: str, *, source: Source, by: str, reason: str, rule: str = "") -> DecisionVerdict:
    with transaction.atomic():
        locked = Decision.objects.select_for_update(no_key=True).get(pk=decision.pk)
        said = DecisionVerdict.objects.create(
            decision=locked, verdict=verdict, source=source, rule=rule, by=by, reason=reason, at=clock.now()
        )
        if source is Source.PERSON or locked.verdict_source != Source.PERSON:
            locked.verdict, locked.verdict_source = verdict, source
            locked.save(update_fields=["verdict", "verdict_source"])
            modes.follow(locked)
        decision.refresh_from_db()
        dispatch.changed("overview", f"incident:{locked.incident_id}")
    return said


def look(now: datetime) -> int:
    """Ask of recent decisions what happened next; returns how many verdicts that gave."""
    if not turns.take(TURN, now, LOOK_S):
        return 0
    recent = Decision.objects.filter(at__gte=now - timedelta(seconds=WINDOW_S)).filter(Q(drill=False))
    asked = list(recent.select_related("job", "node", "incident").order_by("looked_at", "pk")[:LOOKED_AT])
    given = sum(look_at(decision, now) for decision in asked)
    Decision.objects.filter(pk__in=[each.pk for each in asked]).update(looked_at=now)
    return given


def look_at(decision: Decision, now: datetime) -> bool:
    """Ask of one decision what happened next. Returns whether that gave another verdict than the last time."""
    told = judged(*aftermath.facts(decision, now=now))
    if told is None:
        return False
    last = decision.verdicts.filter(source=Source.OUTCOME).order_by("-id").first()
    if last is not None and last.verdict == told.verdict:
        return False
    _say(decision, told.verdict, source=Source.OUTCOME, by=OUTCOME, reason=told.reason, rule=told.rule)
    return True


def how(decision: Decision) -> str:
    """Return in words how a decision was taken."""
    return WORDS[Mode(decision.mode)]


__all__ = ["PERMISSION", "Kind", "What", "give_verdict", "how", "keep", "look", "look_at", "observe", "split"]
