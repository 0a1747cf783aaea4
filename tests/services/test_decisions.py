"""Decisions are kept once, observed or taken as people said, judged later, and lock automatic action when wrong."""

from datetime import timedelta

import pytest
from django.contrib.auth.models import Permission, User
from django.core.exceptions import PermissionDenied

from reliability.domain.faults import Action
from reliability.domain.modes import Mode, Need
from reliability.errors import DomainError, InvalidInput, StaleProposal
from reliability.models import (
    AttemptEnd,
    Decision,
    DecisionVerdict,
    Failover,
    Hold,
    Incident,
    Job,
    ModeRule,
    Node,
    Validation,
)
from reliability.selectors import plan_samples, precision
from reliability.services import by_hand, clock, decisions, failovers, incidents, modes, node_incidents
from reliability.services.modes import Scope
from tests.services.world import World, approver

pytestmark = pytest.mark.django_db
XID = "NVRM: Xid (PCI:0000:05:00): 79, pid=7, name=python3, GPU has fallen off the bus."
XID_79, CRASH, ALL = Scope(reach="code", name="xid-79"), Scope(reach="code", name="exit-139"), Scope(reach="all")
NEED = Need(precision=0.75, decisions=2)


def rule(scope: Scope, mode: str, **more: object) -> ModeRule:
    return modes.set_mode(scope, mode=mode, by="ada", reason="to see how it does", **more)  # type: ignore[arg-type]


def judge() -> User:
    user = User.objects.create_user("olga")
    user.user_permissions.set(Permission.objects.filter(codename__in=("judge_decisions", "operate_job")))
    return User.objects.get(pk=user.pk)


def person() -> User:
    return User.objects.filter(username="olga").first() or judge()


def checked(decision: Decision, verdict: str) -> None:
    """A check of the decision's node that ended now."""
    assert decision.node is not None
    Validation.objects.create(
        node=decision.node, check_kind="sdc", verdict=verdict, started_at=clock.now(), ended_at=clock.now()
    )


def bad_gpu(world: World, name: str = "n2") -> None:
    world.agents[name].report("finding", {"code": "xid-79", "evidence": XID, "count": 1})
    world.tick()


@pytest.fixture
def world(bare_world: World) -> World:
    """Return two training nodes and a standby."""
    for name, role in (("n1", "training"), ("n2", "training"), ("s1", "standby")):
        bare_world.node(name, role)
    bare_world.tick()
    return bare_world


@pytest.fixture
def job(world: World) -> Job:
    """Return a job on both nodes that saved step 20."""
    found = world.running_job(nodes=2)
    world.save(20)
    return found


@pytest.mark.slow
def test_without_a_rule_every_decision_is_kept_once_and_taken_as_the_job_allows(world: World, job: Job) -> None:
    bad_gpu(world)
    world.tick()
    decision = Decision.objects.get()
    assert (decision.code, decision.action, decision.mode) == ("xid-79", Action.FAILOVER, Mode.AUTOMATIC)
    assert decision.node == world.agents["n2"].node
    assert (decision.rule, decision.verdict, decision.drill) == (None, "", False)
    world.recover()
    assert Decision.objects.count() == 1


def test_a_job_that_wants_approval_gets_a_proposal_although_the_rule_says_automatic(world: World) -> None:
    world.running_job(nodes=2, approval="manual")
    rule(XID_79, "automatic")
    bad_gpu(world)
    assert Decision.objects.get().mode == Mode.PROPOSE
    assert world.failover().state == "awaiting_approval"


def test_what_is_observed_only_is_kept_and_touches_nothing(world: World, job: Job) -> None:
    rule(XID_79, "shadow")
    for _ in range(3):
        bad_gpu(world)
    decision = Decision.objects.get()
    assert (decision.mode, decision.action, decision.fault_class) == (Mode.SHADOW, Action.FAILOVER, "hardware")
    assert not Failover.objects.exists()
    assert not Hold.objects.exists()
    assert Node.objects.get(name="n2").health != "unhealthy"
    assert world.job().state == Job.State.RUNNING
    incident = Incident.objects.get()
    assert incident.action == Action.OBSERVE
    assert "Observe only for xid-79: failover would have been the action" in incident.reasons[0]


@pytest.mark.slow
def test_all_codes_can_be_observed_only_and_a_dead_job_then_waits_for_a_person(world: World, job: Job) -> None:
    rule(ALL, "shadow")
    world.agents["n2"].rank_dies(1, 139)
    world.tick(2)
    assert Decision.objects.get().action == Action.RESTART_IN_PLACE
    assert not Failover.objects.exists()
    assert world.job().state == Job.State.WAITING
    assert "Observe only" in world.job().state_reason


@pytest.mark.slow
def test_a_code_that_is_observed_only_does_not_hide_another_that_is_acted_on(world: World, job: Job) -> None:
    rule(XID_79, "shadow")
    bad_gpu(world)
    world.agents["n1"].rank_dies(0, 139)
    failover = world.recover()
    assert (failover.kind, failover.incident.code) == ("restart_in_place", "exit-139")
    assert {(each.code, each.mode) for each in Decision.objects.all()} == {
        ("xid-79", Mode.SHADOW),
        ("exit-139", Mode.AUTOMATIC),
    }
    assert failover.moves == []


@pytest.mark.parametrize(("name", "group", "mode"), [("n1", "", "automatic"), ("n2", "rack-1", "shadow")])
@pytest.mark.slow
def test_a_failure_domain_can_be_observed_only_while_the_others_are_not(
    world: World, job: Job, name: str, group: str, mode: str
) -> None:
    Node.objects.filter(name="n2").update(failure_domain="rack-1")
    rule(Scope(reach="code", name="xid-79", group="rack-1"), "shadow")
    bad_gpu(world, name)
    decision = Decision.objects.get()
    assert (decision.group, decision.mode) == (group, mode)
    assert Failover.objects.exists() is (mode == "automatic")


@pytest.mark.slow
def test_a_proposed_restart_in_place_waits_for_a_person(world: World, job: Job) -> None:
    rule(CRASH, "propose")
    world.agents["n2"].rank_dies(1, 139)
    world.until(Failover.objects.exists)
    world.tick(3)
    request = world.failover()
    assert (request.kind, request.state) == ("restart_in_place", "awaiting_approval")
    assert request.expires_at is not None
    assert world.job().state == Job.State.WAITING
    failovers.approve(request, by=approver(), digest=request.digest)
    assert world.recover().state == "completed"


@pytest.mark.slow
def test_a_mode_that_changes_before_policy_approves_is_the_one_that_counts(world: World, job: Job) -> None:
    incidents.note(world.agents["n2"].node, "exit-139", job=job, epoch=job.epoch, rank=1)
    incidents.judge(job.pk)
    request = Failover.objects.get(state="awaiting_approval")
    rule(CRASH, "propose")
    failovers.advance(request.pk)
    request.refresh_from_db()
    assert request.state == "awaiting_approval"
    assert request.expires_at is not None


@pytest.mark.slow
def test_what_was_observed_only_can_be_had_done_by_hand_and_then_asks_for_approval(world: World, job: Job) -> None:
    rule(XID_79, "shadow")
    bad_gpu(world)
    decision = Decision.objects.get()
    with pytest.raises(PermissionDenied):
        by_hand.carry_out(decision, by=User.objects.create_user("vera"))
    assert by_hand.may_be_done(decision)
    request = by_hand.carry_out(decision, by=judge())
    assert request is not None
    world.tick(2)
    request.refresh_from_db()
    assert (request.kind, request.state, request.failed_node_id) == (
        "failover",
        "awaiting_approval",
        world.agents["n2"].node.pk,
    )
    with pytest.raises(DomainError, match="olga had it done"):
        by_hand.carry_out(decision, by=User.objects.get(username="olga"))
    failovers.approve(request, by=approver(), digest=request.digest)
    assert world.recover().state == "completed"
    assert Decision.objects.count() == 1


@pytest.mark.slow
def test_nothing_is_done_by_hand_for_an_attempt_that_is_over(world: World, job: Job) -> None:
    rule(XID_79, "shadow")
    bad_gpu(world)
    world.agents["n1"].rank_dies(0, 139)
    world.recover()
    decision = Decision.objects.get(code="xid-79")
    assert not by_hand.may_be_done(decision)
    with pytest.raises(StaleProposal, match="epoch"):
        by_hand.carry_out(decision, by=judge())


@pytest.mark.parametrize("mode", ["shadow", "propose"])
def test_a_node_without_a_job_is_held_by_hand_where_that_is_not_automatic(world: World, mode: str) -> None:
    rule(XID_79, mode)
    node = world.agents["s1"].node
    incidents.note(node, "xid-79", job=None, evidence=XID)
    node_incidents.judge_node(node.pk)
    decision = Decision.objects.get()
    assert (decision.mode, decision.action) == (mode, Action.HOLD)
    assert not Hold.objects.exists()
    assert by_hand.carry_out(decision, by=judge()) is None
    assert Hold.objects.get().owner == "olga"
    assert Incident.objects.get().action == Action.HOLD


def test_a_persons_verdict_outranks_what_happened_next_and_both_are_kept(bare_world: World) -> None:
    (decision,) = made(bare_world, "")
    checked(decision, "fail")
    assert decisions.look_at(decision, clock.now())
    assert not decisions.look_at(decision, clock.now())
    decision.refresh_from_db()
    assert (decision.verdict, decision.verdict_source) == ("right", "outcome")
    decisions.give_verdict(decision, "wrong", by=person(), note="It was the cable.")
    checked(decision, "fail")
    decisions.look_at(decision, clock.now())
    decision.refresh_from_db()
    assert decision.verdict == "wrong"
    assert list(decision.verdicts.values_list("verdict", "source").order_by("pk")) == [
        ("right", "outcome"),
        ("wrong", "person"),
    ]


def test_what_happened_next_is_asked_of_the_longest_not_asked_and_not_too_often(bare_world: World) -> None:
    (decision,) = made(bare_world, "")
    checked(decision, "fail")
    assert decisions.look(clock.now()) == 1
    assert decisions.look(clock.now() + timedelta(seconds=1)) == 0
    decision.refresh_from_db()
    assert decision.looked_at == clock.now()


@pytest.mark.parametrize(
    ("verdict", "name", "error"), [("right", "vera", PermissionDenied), ("maybe", "olga", InvalidInput)]
)
def test_a_verdict_needs_the_permission_and_one_of_three_words(
    bare_world: World, verdict: str, name: str, error: type[Exception]
) -> None:
    (decision,) = made(bare_world, "")
    with pytest.raises(error):
        decisions.give_verdict(decision, verdict, by=person() if name == "olga" else User.objects.create_user(name))
    assert not DecisionVerdict.objects.exists()


@pytest.mark.slow
def test_a_restart_is_right_once_a_snapshot_lies_beyond_the_fault(world: World, job: Job) -> None:
    world.agents["n2"].rank_dies(1, 139)
    world.recover()
    decision = Decision.objects.get()
    assert not decisions.look_at(decision, clock.now())
    world.tick(1)
    world.save(25)
    assert decisions.look_at(decision, clock.now())
    assert decision.verdicts.get().rule == "proven-progress"


@pytest.mark.slow
def test_a_restart_is_wrong_when_the_same_fault_is_back_before_that(world: World, job: Job) -> None:
    world.agents["n2"].rank_dies(1, 139)
    world.recover()
    first = Decision.objects.get()
    world.agents["n2"].rank_dies(1, 139)
    world.until(lambda: Failover.objects.count() == 2)
    assert decisions.look_at(first, clock.now())
    assert first.verdicts.get().rule == "same-again"


@pytest.mark.slow
def test_a_restart_that_was_only_observed_is_wrong_when_training_went_on_without(world: World, job: Job) -> None:
    rule(ALL, "shadow")
    incidents.note(world.agents["n1"].node, "exit-139", job=job, epoch=job.epoch, rank=0)
    incidents.judge(job.pk)
    decision = Decision.objects.get()
    world.tick(1)
    world.save((decision.inputs["step"] or 0) + 5)
    assert decisions.look_at(decision, clock.now())
    assert decision.verdicts.get().rule == "went-on-without"


def made(world: World, *verdicts: str, mode: str = "shadow", code: str = "xid-79", group: str = "") -> list[Decision]:
    """Decisions of as many incidents, with these verdicts of a person."""
    node = Node.objects.filter(name="bad").first() or world.node("bad").node
    kept = []
    for verdict in verdicts:
        world.pass_time(1)
        incident = Incident.objects.create(code=code, fault_class="hardware", action="failover", opened_at=clock.now())
        decision = Decision.objects.create(
            incident=incident, code=code, family=precision.family_of(code), fault_class="hardware", action="failover",
            mode=mode, group=group, node=node, digest="d", at=clock.now(), looked_at=clock.now(),
        )  # fmt: skip
        world.pass_time(1)
        if verdict:
            decisions.give_verdict(decision, verdict, by=person())
        kept.append(decision)
    return kept


def test_each_incident_counts_once_and_drills_count_never(bare_world: World) -> None:
    first, *_ = made(bare_world, "right", "right", "wrong", "unclear", "")
    again = {"incident": first.incident, "digest": "other", "code": "xid-79", "at": first.at, "looked_at": first.at}
    Decision.objects.create(**again, action="failover", fault_class="hardware", mode="propose", verdict="right")
    counts = precision.counts("code", "xid-79")
    assert (counts.right, counts.wrong, counts.unclear, counts.missing) == (2, 1, 1, 1)
    assert precision.counts_by_code()["xid-79"] == counts
    Decision.objects.update(drill=True)
    assert precision.counts("code", "xid-79").total == 0


def test_automatic_action_is_refused_below_the_evidence_and_offered_above(bare_world: World) -> None:
    rule(XID_79, "shadow", need=NEED)
    made(bare_world, "right")
    with pytest.raises(InvalidInput, match="not allowed yet") as refused:
        rule(XID_79, "automatic", need=NEED)
    assert "1 of 2 decisions have a verdict" in refused.value.hint
    with pytest.raises(InvalidInput, match="not allowed yet"):
        modes.unlock(XID_79, by="ada", reason="now")
    made(bare_world, "right")
    assert precision.mode_for("xid-79", "") is Mode.SHADOW
    assert modes.unlock(XID_79, by="ada", reason="now").kind == "unlock"
    assert precision.mode_for("xid-79", "") is Mode.AUTOMATIC


def test_it_unlocks_itself_where_that_was_chosen_by_each_codes_own_evidence(bare_world: World) -> None:
    rule(ALL, "propose", need=NEED, unlocks_itself=True)
    made(bare_world, "right", "right", code="xid-79")
    made(bare_world, "wrong", "right", code="xid-13")
    assert precision.mode_for("xid-79", "") is Mode.AUTOMATIC
    assert precision.mode_for("xid-13", "") is Mode.PROPOSE
    assert ModeRule.objects.get(name="xid-79").changed_by == modes.AUTOMATION


def test_a_miss_of_automatic_action_locks_it_at_once_and_asks_for_new_evidence(bare_world: World) -> None:
    rule(XID_79, "propose", need=NEED, unlocks_itself=True)
    made(bare_world, "right", "right", "right", "right")
    assert precision.mode_for("xid-79", "") is Mode.AUTOMATIC
    (miss,) = made(bare_world, "wrong", mode="automatic")
    locked = precision.rule_for("xid-79", "")
    assert locked is not None
    assert (locked.mode, locked.kind, locked.because) == (Mode.PROPOSE, "lock", miss)
    assert f"Decision {miss.pk} was taken automatically and was wrong" in locked.reason
    bare_world.pass_time(1)
    with pytest.raises(InvalidInput, match="not allowed yet"):
        modes.unlock(XID_79, by="ada", reason="it was only one")
    with pytest.raises(InvalidInput, match="locked itself"):
        modes.take_back(XID_79, by="ada", reason="away with it")
    with pytest.raises(InvalidInput, match="locked itself"):
        rule(XID_79, "automatic")
    made(bare_world, "right", "right", mode="propose")
    assert precision.mode_for("xid-79", "") is Mode.AUTOMATIC


@pytest.mark.parametrize("mode", ["shadow", "propose"])
def test_a_wrong_decision_that_was_not_automatic_locks_nothing(bare_world: World, mode: str) -> None:
    rule(XID_79, "automatic")
    made(bare_world, "wrong", mode=mode)
    assert precision.mode_for("xid-79", "") is Mode.AUTOMATIC


def test_a_wrong_decision_from_before_the_last_lock_does_not_lock_again(bare_world: World) -> None:
    rule(XID_79, "automatic")
    old, miss = made(bare_world, "", "", mode="automatic")
    decisions.give_verdict(miss, "wrong", by=person())
    bare_world.pass_time(1)
    modes.set_mode(XID_79, mode="propose", need=Need(precision=0.5, decisions=1), by="ada", reason="less will do")
    made(bare_world, "right", mode="propose")
    modes.unlock(XID_79, by="ada", reason="it is enough")
    decisions.give_verdict(old, "wrong", by=person())
    assert precision.mode_for("xid-79", "") is Mode.AUTOMATIC


def test_a_code_without_a_rule_neither_locks_nor_unlocks(bare_world: World) -> None:
    made(bare_world, "wrong", "wrong", mode="automatic")
    assert not ModeRule.objects.exists()


def test_a_miss_under_a_wide_rule_locks_only_the_code_that_missed(bare_world: World) -> None:
    rule(ALL, "automatic")
    made(bare_world, "wrong", mode="automatic")
    assert precision.mode_for("xid-79", "") is Mode.PROPOSE
    assert precision.mode_for("xid-13", "") is Mode.AUTOMATIC


def test_changes_of_a_rule_are_versions_and_an_overtaken_one_is_refused(bare_world: World) -> None:
    rule(XID_79, "shadow")
    with pytest.raises(StaleProposal):
        rule(XID_79, "propose", seen_version=0)
    rule(XID_79, "propose", seen_version=1)
    modes.take_back(XID_79, by="ada", reason="as before", seen_version=2)
    assert precision.rule_for("xid-79", "") is None
    assert [each.version for each in precision.history("code", "xid-79")] == [3, 2, 1]


@pytest.mark.parametrize(
    ("scope", "field"),
    [
        (("code", "no-such-code", ""), "name"),
        (("family", "no-such-family", ""), "name"),
        (("all", "xid-79", ""), "name"),
        (("every", "", ""), "reach"),
        (("code", "xid-79", "no-such-rack"), "group"),
    ],
)
def test_a_scope_that_does_not_exist_is_refused_by_name(
    bare_world: World, scope: tuple[str, str, str], field: str
) -> None:
    with pytest.raises(InvalidInput) as refused:
        modes.read_scope(*scope)
    assert refused.value.field == field
    assert refused.value.hint


def test_a_lock_that_meets_another_change_of_the_rule_is_made_all_the_same(
    bare_world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    rule(XID_79, "automatic")
    (miss,) = made(bare_world, "", mode="automatic")
    standing, calls = modes._standing, []

    def overtaken(scope: Scope) -> ModeRule | None:
        found = standing(scope)
        calls.append(scope)
        if found is not None and len(calls) == 1:
            version = found.version + 1
            ModeRule.objects.create(reach="code", name="xid-79", version=version, mode="shadow", changed_at=clock.now())
        return found

    monkeypatch.setattr(modes, "_standing", overtaken)
    decisions.give_verdict(miss, "wrong", by=person())
    assert precision.mode_for("xid-79", "") is Mode.PROPOSE
    assert len(calls) == 2


@pytest.mark.slow
def test_a_request_that_was_withdrawn_because_many_nodes_show_it_was_not_wrong_for_that(world: World) -> None:
    world.running_job(nodes=2, approval="manual")
    world.save(20)
    bad_gpu(world, "n1")
    asked = world.failover()
    assert asked.state == "awaiting_approval"
    bad_gpu(world, "n2")
    asked.refresh_from_db()
    assert (asked.state, world.job().state) == ("cancelled", Job.State.RUNNING)
    assert not AttemptEnd.objects.exists()
    assert plan_samples.faults(world.job(), since=asked.created_at - timedelta(hours=1)) == plan_samples.Faults(0, 0)
    decision = Decision.objects.get(action=Action.FAILOVER)
    assert not decisions.look_at(decision, clock.now())
    decision.refresh_from_db()
    assert (decision.verdict, decision.node) == ("", world.agents["n1"].node)
