"""What the pages of decisions and modes show: how a code stands, which rules are in force, what decisions came to."""

from dataclasses import dataclass

from reliability.domain.modes import WORDS, Mode, Need, Reach, most_specific
from reliability.domain.precision import Counts, shortfall
from reliability.models import Decision, Incident, ModeRule
from reliability.selectors import precision

SHOWN = 20


@dataclass(frozen=True, kw_only=True)
class CodeMode:
    """How a code stands on the nodes of a group: the mode, where it comes from, and the evidence."""

    group: str
    mode: str
    rule: ModeRule | None
    counts: Counts
    need: Need | None
    missing: str

    @property
    def word(self) -> str:
        """The mode in words."""
        return WORDS[Mode(self.mode)]

    @property
    def own(self) -> bool:
        """Whether the rule is this code's and this group's own."""
        return self.rule is not None and self.rule.reach == Reach.CODE and self.rule.group == self.group

    @property
    def may_unlock(self) -> bool:
        """Whether the evidence that is asked for is there, and automatic action is not allowed yet."""
        return self.need is not None and not self.missing and self.mode != Mode.AUTOMATIC


def code_modes(code: str) -> list[CodeMode]:
    """Return how a code stands: on all nodes, then on each failure domain with a rule or a decision of its own."""
    rules = precision.about(code)
    decided = Decision.objects.filter(code=code).exclude(group="").values_list("group", flat=True).distinct()
    groups = sorted({rule.group for rule in rules if rule.group} | set(decided))
    return [_code_mode(code, group, rules) for group in ("", *groups)]


def _code_mode(code: str, group: str, rules: list[ModeRule]) -> CodeMode:
    rule = most_specific(rules, code=code, family=precision.family_of(code), group=group)
    need, since = precision.need_of(rule), rule.evidence_since if rule else None
    evidence = precision.counts(Reach.CODE, code, group, since=since)
    return CodeMode(
        group=group,
        mode=rule.mode if rule else Mode.AUTOMATIC,
        rule=rule,
        counts=precision.counts(Reach.CODE, code, group),
        need=need,
        missing=shortfall(evidence, need) if need else "",
    )


def recent(code: str) -> list[Decision]:
    """Return the newest decisions about a code."""
    rows = Decision.objects.filter(code=code).select_related("job", "node", "incident").prefetch_related("verdicts")
    return list(rows[:SHOWN])


def of_incident(incident: Incident) -> list[Decision]:
    """Return the decisions of an incident, newest first, with what was said of them."""
    rows = Decision.objects.filter(incident=incident).select_related("job", "node", "rule")
    return list(rows.prefetch_related("verdicts"))


def latest_changes() -> list[ModeRule]:
    """Return the newest changes of any rule."""
    return list(ModeRule.objects.select_related("because")[:SHOWN])
