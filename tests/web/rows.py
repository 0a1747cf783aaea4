"""Rows for the tests of pages: a job that trains, one that waits for a decision, and what belongs to them."""

from datetime import datetime, timedelta
from typing import Any

from django.contrib.auth.models import Group, User
from django.utils import timezone

from reliability import models, roles
from reliability.services import monitors, snapshot_tally
from reliability.services.failovers import skipping

PASSWORD = "correct horse battery"


def person(name: str, role: str = "", **flags: Any) -> User:
    """A signed-up person with a role."""
    roles.ensure_roles()
    user = User.objects.create_user(name, password=PASSWORD, **flags)
    if role:
        user.groups.add(Group.objects.get(name=role))
    return user


def node(
    name: str, *, role: str = "training", health: str = "healthy", seen_s: float = 1.0, **values: Any
) -> models.Node:
    """A registered node that was heard a moment ago."""
    now = timezone.now()
    defaults: dict[str, Any] = {
        "address": "10.0.0.7",
        "runtime": "process",
        "agent_version": "0.1.0",
        "registered_at": now - timedelta(hours=3),
        "last_seen_at": now - timedelta(seconds=seen_s),
        "hardware_ids": {"machine_id": "9f2c41d07be1"},
        "host_facts": {"cpus": 8, "memory_bytes": 67_000_000_000, "kernel": "6.1"},
    }
    return models.Node.objects.create(name=name, role=role, role_hint=role, health=health, **(defaults | values))


def job(name: str, nodes: list[models.Node], *, step: int = 1240, state: str = "running", **values: Any) -> models.Job:
    """A job on these nodes, one rank each, all at `step`."""
    now = timezone.now()
    defaults: dict[str, Any] = {
        "runtime": "process",
        "program": ["train.py", "--layers", "4"],
        "storage_dir": "/srv/snapshots",
        "epoch": 1,
        "every_steps": 20,
        "created_at": now - timedelta(hours=2),
        "started_at": now - timedelta(hours=2),
        "created_by": "ops",
    }
    made = models.Job.objects.create(name=name, nodes=len(nodes), state=state, **(defaults | values))
    models.Epoch.objects.create(job=made, number=1, reason="First start.", started_at=now - timedelta(hours=2))
    for index, place in enumerate(nodes):
        slot = models.Slot.objects.create(job=made, index=index, node=place)
        models.Rank.objects.create(
            job=made,
            slot=slot,
            rank=index,
            state="running",
            epoch=made.epoch,
            step=step,
            step_s=0.32,
            loss=2.4137,
            progress_at=now - timedelta(seconds=0.4),
            plan_version=0,
        )
    return made


def snapshot(
    owner: models.Job, step: int, tiers: str = "memory ssd storage", *, age_s: float = 5.0, epoch: int = 1
) -> models.Snapshot:
    """A snapshot that is complete on the named tiers."""
    now = timezone.now()
    made = models.Snapshot.objects.create(job=owner, epoch=epoch, step=step, created_at=now - timedelta(seconds=age_s))
    for slot in owner.slots.all():
        for tier in tiers.split():
            models.SnapshotCopy.objects.create(
                snapshot=made,
                rank=slot.index,
                tier=tier,
                node=None if tier == "storage" else slot.node,
                path=f"e{epoch}-s{step}-r{slot.index}.snap",
                size_bytes=18_400_000,
                digest="blake2b:" + "0" * 32,
                stall_s=0.021 if tier == "memory" else None,
                drain_s=None if tier == "memory" else 0.4,
                committed_at=now - timedelta(seconds=age_s - 0.5),
            )
    snapshot_tally.recount([made.pk])
    return made


def validation(of: models.Node, kind: str, verdict: str = "pass", reason: str = "", **values: Any) -> models.Validation:
    """An ended check."""
    now = timezone.now()
    pairs = [{"first": of.name, "second": "n1", "bytes_per_s": 1.12e9}] if kind == "bandwidth" else []
    measured = {"pairs": pairs} if pairs else {"digests": ["a1", "a1"]}
    return models.Validation.objects.create(
        node=of,
        check_kind=kind,
        verdict=verdict,
        reason=reason or "As fast as its peers.",
        measured=measured,
        started_at=now - timedelta(seconds=62),
        ended_at=now - timedelta(seconds=60),
        **values,
    )


def incident(owner: models.Job, at: models.Node, **values: Any) -> models.Incident:
    """A hardware fault with its evidence."""
    now = timezone.now()
    defaults: dict[str, Any] = {
        "epoch": owner.epoch,
        "code": "node-lost",
        "fault_class": "hardware",
        "action": "failover",
        "summary": f"The node is gone (node-lost on {at.name})",
        "opened_at": now - timedelta(seconds=40),
        "reasons": ["Nothing is heard from it for 7.2 s, the limit is 6 s.", "No rank has made a step for 7.5 s."],
    }
    made = models.Incident.objects.create(job=owner, node=at, **(defaults | values))
    models.Finding.objects.create(
        node=at,
        job=owner,
        incident=made,
        rank=2,
        epoch=owner.epoch,
        code=made.code,
        fault_class=made.fault_class,
        action=made.action,
        severity="fatal",
        evidence="silent for 7.2 s; no step since 1240",
        found_at=now - timedelta(seconds=41),
    )
    return made


def proposal(standby: str, *, step: int = 1220) -> dict[str, Any]:
    """What services.failovers.proposals shows."""
    return {
        "kind": "failover",
        "cause": {"code": "node-lost", "class": "hardware", "summary": "gone"},
        "moves": [{"slot": 2, "from": "n3", "to": standby, "why": "node-lost: silent for 7.2 s"}],
        "missing_standbys": 0,
        "candidates": [
            {
                "node": standby,
                "tier": 1,
                "eligible": True,
                "fresh": True,
                "warm": True,
                "reasons": ["Best tier.", "Checked 60 s ago: passed.", "Container is warm."],
            },
            {
                "node": "s9",
                "tier": 2,
                "eligible": True,
                "fresh": False,
                "warm": False,
                "reasons": ["Tier 2.", "Never checked."],
            },
            {
                "node": "s3",
                "tier": 2,
                "eligible": False,
                "fresh": False,
                "warm": False,
                "reasons": ["Held by ops: memory errors."],
            },
        ],
        "restore": {
            "step": step,
            "epoch": 1,
            "reasons": ["Newest step that every rank can read.", "Ranks 0, 1 from own memory, rank 2 from storage."],
            "skipped": ["Step 1240 (epoch 1): rank 2 has no copy outside its lost node."],
            "sources": {"0": "memory", "1": "memory", "2": "storage"},
        },
    }


def failover(
    cause: models.Incident, standby: models.Node | None, *, state: str = "awaiting_approval", **values: Any
) -> models.Failover:
    """A recovery with its first event."""
    now = timezone.now()
    assert cause.job is not None
    defaults: dict[str, Any] = {
        "kind": "failover",
        "state_since": now - timedelta(seconds=38),
        "from_epoch": 1,
        "to_epoch": 2,
        "restore_epoch": 1,
        "restore_step": 1220,
        "fault_step": 1240,
        "digest": "9c41e2" * 10 + "abcd",
        "fault_at": now - timedelta(seconds=41),
        "created_at": now - timedelta(seconds=38),
        "expires_at": now + timedelta(seconds=522),
        "proposal": proposal(standby.name if standby else ""),
    }
    made = models.Failover.objects.create(
        incident=cause, job=cause.job, state=state, failed_node=cause.node, standby=standby, **(defaults | values)
    )
    event(made, "", "proposed", "awaiting_approval", made.created_at, "Proposed: this is what would be done.")
    return made


def event(
    of: models.Failover, source: str, name: str, target: str, at: datetime, sentence: str, actor: str = "stepkeeper"
) -> None:
    """One transition."""
    models.FailoverEvent.objects.create(
        failover=of, at=at, source=source, event=name, target=target, sentence=sentence, actor=actor
    )


def completed(cause: models.Incident, standby: models.Node) -> models.Failover:
    """A recovery that went through, with every stage."""
    start = timezone.now() - timedelta(minutes=20)
    made = failover(
        cause,
        standby,
        state="completed",
        fault_at=start,
        created_at=start + timedelta(seconds=7.1),
        state_since=start + timedelta(seconds=19),
        ended_at=start + timedelta(seconds=19),
        decided_by="ops",
        decided_at=start + timedelta(seconds=15),
        decision_note="as planned",
    )
    stages = [
        ("awaiting_approval", "approved", "fencing", 15.0, "Approved: stop every rank of the old attempt."),
        ("fencing", "fenced", "validating", 15.4, "No rank of the old attempt runs: check the standby."),
        ("validating", "standby_passed", "restoring", 15.9, "Every node is fit: bring each rank's snapshot to it."),
        ("restoring", "restored", "starting", 17.3, "All ranks hold the restore point: start the new attempt."),
        ("starting", "started", "verifying", 17.9, "All ranks run: wait for the first step of each."),
        ("verifying", "verified", "completed", 19.0, "Every rank is past its first step: the job goes on."),
    ]
    for source, name, target, after, sentence in stages:
        event(
            made,
            source,
            name,
            target,
            start + timedelta(seconds=after),
            sentence,
            "ops" if name == "approved" else "stepkeeper",
        )
    return made


def skip(owner: models.Job, cause: models.Incident, step: int = 1241) -> models.BatchSkip:
    """A batch that is offered to be left out, and the two attempts that ended before it."""
    now = timezone.now()
    for number in (1, 2):
        models.AttemptEnd.objects.create(
            job=owner,
            number=number,
            at=now - timedelta(minutes=3 - number),
            code="exit-1",
            cause="application/exit-code",
            signature="exit-1 RuntimeError",
            node=f"n{number}",
            rank=number,
            start_epoch=1 if number > 1 else None,
            start_step=1220 if number > 1 else None,
            reached=step - 1,
            last_step=step - 1,
            saved=1220,
            why="The program ended with a general error.",
        )
    return models.BatchSkip.objects.create(
        job=owner,
        incident=cause,
        step=step,
        reason=f"It ends after step {step - 1} again and again.",
        digest=skipping.digest(owner, cause, step),
        offered_at=now,
    )


def maintenance() -> models.MaintenanceWindow:
    """A planned window of tomorrow for a failure domain."""
    now = timezone.now()
    ends = now + timedelta(hours=26)
    return models.MaintenanceWindow.objects.create(
        scope="domain", domain="row-7", starts_at=now + timedelta(hours=24), ends_at=ends, planned_until=ends,
        reason="new switches", planned_by="ops", planned_at=now,
    )  # fmt: skip


def full_cluster() -> dict[str, Any]:
    """Five nodes and two standbys in every condition; one job trains, one waits for a decision."""
    trainers = [node(f"n{number}") for number in range(1, 4)]
    lost = node("n4", health="unreachable", health_reason="Nothing heard for 7 s; the limit is 6 s.", seen_s=47)
    worn = node("n5", health="degraded", health_reason="Corrected memory errors rise.")
    standby = node("s1", role="standby", tier=1, containers={"gpt-small": {"epoch": 1, "container": "warm"}})
    second = node("s2", role="standby", tier=2, preemptible=True)
    bad = node("s3", role="standby", tier=2, health="unhealthy", health_reason="Silent corruption in 1 of 5 rounds.")
    for kind in ("bandwidth", "sdc"):
        validation(standby, kind)
    validation(bad, "sdc", "fail", "Round 3 gave another digest than 4 of 5 nodes.")
    hold = models.Hold.objects.create(
        node=bad, owner="automation", reason="Failed the silent-corruption check.", created_at=timezone.now()
    )
    quarantine = models.Quarantine.objects.create(
        node=bad, found_as="s3", identities=["board:pf2k9abc"], reason="Silent corruption in 1 of 5 rounds.",
        created_at=timezone.now(), created_by="automation",
    )  # fmt: skip
    training = job("gpt-small", trainers)
    for step, age in ((1180, 19.2), (1200, 12.8)):
        snapshot(training, step, age_s=age)
    snapshot(training, 1220, "memory ssd", age_s=6.4)
    waiting = job("vit-base", [lost, worn], step=8410, state="waiting", state_reason="The node is gone.")
    snapshot(waiting, 8400, age_s=50)
    models.Plan.objects.create(
        job=training,
        version=1,
        inputs={},
        outputs={},
        every_steps=20,
        period_s=6.4,
        step_s=0.32,
        target=0.9,
        planned_ettr=0.93,
        from_step=600,
        newest_step=590,
        applied_by="ops",
        applied_at=timezone.now() - timedelta(minutes=31),
    )
    past = incident(
        training,
        trainers[2],
        closed_at=timezone.now(),
        close_reason="Recovered.",
        opened_at=timezone.now() - timedelta(minutes=20),
    )
    done = completed(past, standby)
    models.Drill.objects.create(
        job=training,
        node=trainers[2],
        what="kill_node",
        state="recovered",
        started_by="ops",
        started_at=done.fault_at,
        ended_at=done.ended_at,
        failover=done,
    )
    cause = incident(waiting, lost)
    request = failover(cause, second)
    decision = models.Decision.objects.create(
        incident=cause,
        job=waiting,
        node=lost,
        epoch=waiting.epoch,
        code=cause.code,
        fault_class=cause.fault_class,
        action=cause.action,
        mode="shadow",
        summary=cause.summary,
        digest="d",
        at=cause.opened_at,
        looked_at=cause.opened_at,
    )
    told = {"by": "ada", "reason": "The cable was loose.", "at": timezone.now()}
    models.DecisionVerdict.objects.create(decision=decision, verdict="wrong", source="person", **told)
    changed = {"reason": "New here.", "changed_by": "ada", "changed_at": timezone.now()}
    models.ModeRule.objects.create(reach="code", name=cause.code, version=1, mode="shadow", **changed)
    models.Report.objects.create(
        node=trainers[0],
        incarnation="a1",
        seq=7,
        kind="snapshot_copy",
        job_name="gpt-small",
        epoch=0,
        body={},
        received_at=timezone.now(),
        state="refused",
        refusal="Epoch 0 is older than the job's epoch 1.",
    )
    return {
        "training": training,
        "waiting": waiting,
        "request": request,
        "done": done,
        "incident": cause,
        "quarantine": quarantine,
        "decision": decision,
        "skip": skip(training, past),
        "hold": hold,
        "monitor": monitors.give_token("dcgm of rack 7", node=lost, by="ada")[0],
        "node": lost,
        "standby": standby,
        "maintenance": maintenance(),
    }
