"""Which rule says how much is done by itself, and how often were decisions right?"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from datetime import datetime

from django.db.models import Count, Q, QuerySet

from reliability.domain.failover import Kind
from reliability.domain.modes import Mode, Need, Reach, bounded, most_specific
from reliability.domain.policy import Approval
from reliability.domain.precision import Counts, Verdict
from reliability.models import Decision, Incident, Job, ModeRule, Node
from reliability.selectors import fault_codes

NAMES = {Verdict.RIGHT: "right", Verdict.WRONG: "wrong", Verdict.UNCLEAR: "unclear", "": "missing"}


def _newest(rows: QuerySet[ModeRule]) -> list[ModeRule]:
    """Return the last version of every rule among the rows that was not taken back."""
    newest = {(rule.reach, rule.name, rule.group): rule for rule in rows.order_by("id")}
    return [rule for rule in newest.values() if rule.mode]


def in_force() -> list[ModeRule]:
    """Return all rules in force: for all codes first, then by family and code."""
    rows = _newest(ModeRule.objects.all())
    return sorted(rows, key=lambda rule: (-list(Reach).index(Reach(rule.reach)), rule.name, rule.group))


def about(code: str) -> list[ModeRule]:
    """Return the rules in force that may decide for a code."""
    mine = Q(reach=Reach.CODE, name=code) | Q(reach=Reach.FAMILY, name=family_of(code)) | Q(reach=Reach.ALL)
    return _newest(ModeRule.objects.filter(mine))


def family_of(code: str) -> str:
    """Return the family of a code, '' for consequences only."""
    return fault_codes.table().lookup(code).source if code else ""


def group_of(node: Node | None) -> str:
    """Return the group that a node belongs to: its failure domain."""
    return node.failure_domain if node is not None else ""


def rule_for(code: str, group: str) -> ModeRule | None:
    """Return the rule that decides for a code on the nodes of a failure domain."""
    return most_specific(about(code), code=code, family=family_of(code), group=group)


def mode_for(code: str, group: str) -> Mode:
    """Return how much is done by itself for a code there; automatic where no rule says otherwise."""
    rule = rule_for(code, group)
    return Mode(rule.mode) if rule else Mode.AUTOMATIC


def mode_of(incident: Incident, job: Job, *, kind: Kind) -> Mode:
    """Return how a recovery of this incident is taken now: by its rule, bounded by the job's own approval."""
    mode = mode_for(incident.code, group_of(incident.node))
    return bounded(mode, kind=kind, approval=Approval(job.approval))


def history(reach: str, name: str, group: str = "") -> list[ModeRule]:
    """Return the versions of one rule, newest first."""
    return list(ModeRule.objects.filter(reach=reach, name=name, group=group).order_by("-version"))


def changes_of(code: str) -> list[ModeRule]:
    """Return all versions of the rules of one code, whatever the group, newest first."""
    return list(ModeRule.objects.filter(reach=Reach.CODE, name=code).order_by("-id"))


def newest_change() -> int:
    """Return the number of the newest change of any rule, 0 when there is none."""
    return ModeRule.objects.order_by("-id").values_list("id", flat=True).first() or 0


def version_seen(keys: Mapping[str, str], seen: int) -> int:
    """Return the version of a rule that somebody saw who saw no change newer than number `seen`."""
    rows = ModeRule.objects.filter(**keys, pk__lte=seen).order_by("-version")
    return rows.values_list("version", flat=True).first() or 0


def need_of(rule: ModeRule | None) -> Need | None:
    """Return what evidence a rule asks for, None when it asks for none."""
    if rule is None or rule.needed_precision is None or rule.least_decisions is None:
        return None
    return Need(precision=rule.needed_precision, decisions=rule.least_decisions)


def _counted(rows: Iterable[tuple[str, int]]) -> Counts:
    found: dict[str, int] = defaultdict(int)
    for verdict, count in rows:
        found[NAMES[verdict]] += count
    return Counts(**found)


def _real() -> QuerySet[Decision]:
    """Drills were made on purpose: that they were recognised is no evidence."""
    return Decision.objects.filter(drill=False)


def counts(reach: str, name: str, group: str = "", *, since: datetime | None = None) -> Counts:
    """Return the counts of a code, a family or all codes, on all nodes or those of a failure domain.

    Each incident counts once for each verdict, however often the same was decided in it; only those after `since`.
    """
    wanted = {Reach.CODE: {"code": name}, Reach.FAMILY: {"family": name}, Reach.ALL: {}}[Reach(reach)]
    rows = _real().filter(**wanted)
    rows = rows.filter(group=group) if group else rows
    rows = rows.filter(at__gt=since) if since else rows
    return _counted(rows.order_by().values_list("verdict").annotate(Count("incident", distinct=True)))


def counts_by_code(codes: Iterable[str] | None = None) -> Mapping[str, Counts]:
    """Return code -> its counts on all nodes, of every code that was ever decided on. One query."""
    rows = _real() if codes is None else _real().filter(code__in=list(codes))
    found: dict[str, list[tuple[str, int]]] = defaultdict(list)
    for code, verdict, count in (
        rows.order_by().values_list("code", "verdict").annotate(Count("incident", distinct=True))
    ):
        found[code].append((verdict, count))
    return {code: _counted(each) for code, each in found.items()}


def groups() -> list[str]:
    """Return the failure domains that people or agents named."""
    named = Node.objects.exclude(failure_domain="").values_list("failure_domain", flat=True)
    return sorted(set(named) | set(ModeRule.objects.exclude(group="").values_list("group", flat=True)))


def shadowed_codes(codes: Iterable[tuple[str, str]]) -> set[tuple[str, str]]:
    """Return those of (code, failure domain) that are only observed."""
    return {pair for pair in set(codes) if mode_for(*pair) is Mode.SHADOW}
