"""Changes of how much is done by itself: by people, and by what decisions turned out to be. Each keeps who and why.

Automatic action that a rule gave locks itself when a decision taken by it was wrong: from then on it is proposed, and
only decisions made later count as evidence for unlocking it again.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db import IntegrityError, transaction

from reliability.domain.modes import DEFAULT_NEED, Mode, Need, Reach
from reliability.domain.precision import Counts, Verdict, shortfall
from reliability.errors import InvalidInput, StaleProposal
from reliability.models import Decision, ModeRule
from reliability.selectors import fault_codes, precision
from reliability.services import clock, dispatch

Kind = ModeRule.Kind
AUTOMATION = "stepkeeper"
LONGEST_REASON = 500
TRIES = 5


@dataclass(frozen=True, kw_only=True)
class Scope:
    """Which codes and which nodes a rule is about."""

    reach: str
    name: str = ""
    group: str = ""

    def keys(self) -> dict[str, str]:
        """Return it as the columns of a rule."""
        return {"reach": self.reach, "name": self.name, "group": self.group}

    def counts(self, since: datetime | None) -> Counts:
        """Return its evidence since an instant."""
        return precision.counts(self.reach, self.name, self.group, since=since)


def read_scope(reach: str, name: str, group: str) -> Scope:
    """Return a scope that exists. Raises InvalidInput that names what does not."""
    if reach not in list(Reach):
        raise InvalidInput("reach", f"{reach!r} is none", hint=f"One of {', '.join(Reach)}.")
    if reach == Reach.CODE and fault_codes.table().get(name) is None:
        raise InvalidInput("name", f"{name!r} is no code of the table", hint="Look it up on the page of fault codes.")
    if reach == Reach.FAMILY and name not in fault_codes.families(fault_codes.table()):
        raise InvalidInput("name", f"{name!r} is no family of codes", hint="The page of fault codes lists them.")
    if reach == Reach.ALL and name:
        raise InvalidInput("name", f"{name!r} does not go with all codes", hint="Leave it empty.")
    if group and group not in precision.groups():
        raise InvalidInput("group", f"no node is of the failure domain {group!r}", hint="Name it on a node's page.")
    return Scope(reach=reach, name=name, group=group)


def set_mode(
    scope: Scope,
    *,
    mode: str,
    by: str,
    reason: str,
    need: Need | None = None,
    unlocks_itself: bool = False,
    seen_version: int | None = None,
) -> ModeRule:
    """Say how much is done by itself, and what evidence automatic action needs.

    Raises InvalidInput, also when automatic action is asked for that the evidence does not allow, and StaleProposal
    when somebody changed the rule after `seen_version`.
    """
    if mode not in list(Mode):
        raise InvalidInput("mode", f"{mode!r} is none", hint=f"One of {', '.join(Mode)}.")
    if unlocks_itself and need is None:
        raise InvalidInput("unlocks_itself", "needs evidence to go by", hint="Give the precision that is needed.")
    standing = _standing(scope)
    since = standing.evidence_since if standing else None
    if since is not None and need is None:
        raise InvalidInput(
            "needed_precision",
            "is needed: automatic action locked itself here after a wrong decision",
            hint="Say which share of right decisions unlocks it again, and how many.",
        )
    if mode == Mode.AUTOMATIC and need is not None:
        _check_evidence(scope.counts(since), need)
    values = {**_asking(need), "mode": mode, "unlocks_itself": unlocks_itself, "evidence_since": since}
    return _keep(scope, Kind.SET, values, by=by, reason=reason, standing=standing, seen_version=seen_version)


def take_back(scope: Scope, *, by: str, reason: str, seen_version: int | None = None) -> ModeRule:
    """Take a rule back, so that a wider one decides, or none. Raises InvalidInput and StaleProposal."""
    standing = _standing(scope)
    if standing is None or not standing.mode:
        raise InvalidInput("name", "there is no rule for it", hint="There is nothing to take back.")
    if standing.evidence_since is not None:
        raise InvalidInput(
            "mode",
            "automatic action locked itself here after a wrong decision, so the rule stays",
            hint="Set another mode, or the evidence that is needed.",
        )
    return _keep(scope, Kind.RESET, {"mode": ""}, by=by, reason=reason, standing=standing, seen_version=seen_version)


def unlock(scope: Scope, *, by: str, reason: str) -> ModeRule:
    """Allow automatic action of a code because its evidence is enough, by what the rule in force for it asks.

    Raises InvalidInput when no rule asks for evidence, it is automatic already, or the evidence is not enough.
    """
    rule = precision.rule_for(scope.name, scope.group)
    need = precision.need_of(rule)
    if scope.reach != Reach.CODE or rule is None or need is None or rule.mode == Mode.AUTOMATIC:
        raise InvalidInput("name", "there is nothing to unlock", hint="Set a mode and the evidence that is needed.")
    _check_evidence(scope.counts(rule.evidence_since), need)
    values = {**_carried(rule), "mode": Mode.AUTOMATIC}
    return _keep(scope, Kind.UNLOCK, values, by=by, reason=reason, standing=_standing(scope))


def follow(decision: Decision) -> ModeRule | None:
    """Lock or unlock automatic action after a verdict of this decision. Returns the rule that was made, if any.

    Called in the transaction that keeps the verdict. A code without any rule neither locks nor unlocks: the job's
    approval and its budget of restarts bound it.
    """
    for _ in range(TRIES):
        try:
            with transaction.atomic():
                return _follow(decision)
        except StaleProposal:
            continue  # somebody else changed the rule in this moment: look at it again
    raise StaleProposal("The rule is being changed by somebody else.", hint="Try again.")


def _follow(decision: Decision) -> ModeRule | None:
    rule = precision.rule_for(decision.code, decision.group)
    if rule is None or decision.drill or not decision.code:
        return None
    scope = Scope(reach=Reach.CODE, name=decision.code, group=rule.group)
    if rule.mode == Mode.AUTOMATIC:
        return _lock(scope, rule, decision) if _missed(decision, rule) else None
    return _unlock_by_itself(scope, rule)


def _missed(decision: Decision, rule: ModeRule) -> bool:
    before = rule.evidence_since is not None and decision.at <= rule.evidence_since
    return decision.verdict == Verdict.WRONG and decision.mode == Mode.AUTOMATIC and not before


def _lock(scope: Scope, rule: ModeRule, decision: Decision) -> ModeRule:
    need = precision.need_of(rule) or DEFAULT_NEED
    values = {
        **_asking(need),
        "unlocks_itself": rule.unlocks_itself,
        "mode": Mode.PROPOSE,
        "evidence_since": clock.now(),
        "because": decision,
    }
    told = decision.verdicts.order_by("-id").values_list("reason", flat=True).first() or "No reason was given."
    reason = f"Decision {decision.pk} was taken automatically and was wrong. {told}"
    return _keep(scope, Kind.LOCK, values, by=AUTOMATION, reason=reason, standing=_standing(scope))


def _unlock_by_itself(scope: Scope, rule: ModeRule) -> ModeRule | None:
    need = precision.need_of(rule)
    if not rule.unlocks_itself or need is None:
        return None
    counts = scope.counts(rule.evidence_since)
    if shortfall(counts, need):
        return None
    asked = f"{need.precision:.1%} of at least {need.decisions} are needed"
    reason = f"{counts.right} of {counts.decided} decisions were right; {asked}."
    values = {**_carried(rule), "mode": Mode.AUTOMATIC}
    return _keep(scope, Kind.UNLOCK, values, by=AUTOMATION, reason=reason, standing=_standing(scope))


def _check_evidence(counts: Counts, need: Need) -> None:
    missing = shortfall(counts, need)
    if missing:
        raise InvalidInput(
            "mode", "automatic action is not allowed yet", hint=f"{missing} Until then: propose or observe only."
        )


def _asking(need: Need | None) -> dict[str, Any]:
    if need is None:
        return {"needed_precision": None, "least_decisions": None}
    return {"needed_precision": need.precision, "least_decisions": need.decisions}


def _carried(rule: ModeRule) -> dict[str, Any]:
    names = ("needed_precision", "least_decisions", "unlocks_itself", "evidence_since")
    return {name: getattr(rule, name) for name in names}


def _standing(scope: Scope) -> ModeRule | None:
    return ModeRule.objects.filter(**scope.keys()).order_by("-version").first()


def _keep(
    scope: Scope,
    kind: ModeRule.Kind,
    values: Mapping[str, Any],
    *,
    by: str,
    reason: str,
    standing: ModeRule | None,
    seen_version: int | None = None,
) -> ModeRule:
    why = reason.strip()
    if not why or (kind in (Kind.SET, Kind.RESET) and len(why) > LONGEST_REASON):
        raise InvalidInput("reason", f"is needed, at most {LONGEST_REASON} characters", hint="It is kept with it.")
    version = standing.version if standing else 0
    if seen_version is not None and seen_version != version:
        raise _overtaken()
    try:
        with transaction.atomic():
            kept = ModeRule.objects.create(
                **scope.keys(),
                **values,
                version=version + 1,
                kind=kind,
                reason=why,
                changed_by=by,
                changed_at=clock.now(),
            )
    except IntegrityError as error:
        raise _overtaken() from error
    dispatch.changed("overview")
    return kept


def _overtaken() -> StaleProposal:
    return StaleProposal("Somebody changed this rule meanwhile.", hint="Look at it again before you change it.")
