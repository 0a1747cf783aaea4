"""What does the launcher read about an attempt, and what can be learned from that when nothing else is left?"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from reliability.agent import standing
from reliability.agent.folder import JobFolder
from reliability.agent.jobrecord import JobRecord
from reliability.agent.payloads import StartPlan
from reliability.domain.policy import LeaseRule
from reliability.errors import RuntimeFailure, StaleEpoch
from reliability.tiers import shards

NO_RANKS: dict[str, Any] = {"stop": True, "program": [], "mode": "plain", "workdir": "", "ranks": []}


class PartReleased(StaleEpoch):
    """This part was released while an order for it was under way."""

    hint = "A later attempt gets a container of its own."


class EpochTaken(RuntimeFailure):
    """Ranks of this very attempt were started before, by a life of the agent or of the launcher that is over."""

    code = "epoch_taken"
    hint = "The next attempt gets a number of its own; start the job again where none follows by itself."


def order_of(
    plan: StartPlan,
    *,
    job: str,
    epoch: int,
    inside: str,
    programs: Callable[[int], Mapping[str, str]] = lambda _rank: {},
) -> dict[str, Any]:
    """Return the content of an epoch file; `inside` is where a rank sees the job's folder.

    `programs`: what a rank finds in its environment when its program writes the snapshots itself.
    """
    shared = {
        **plan.container.env,
        "WORLD_SIZE": str(plan.world_size),
        "LOCAL_WORLD_SIZE": str(len(plan.ranks)),
        "GROUP_RANK": str(plan.slot),
        "GROUP_WORLD_SIZE": str(plan.nodes),
        "MASTER_ADDR": plan.master_addr,
        "MASTER_PORT": str(plan.master_port),
        "STEPKEEPER_DIR": inside,
        "STEPKEEPER_JOB": job,
        "STEPKEEPER_EPOCH": str(epoch),
    }
    if plan.skip_steps:
        shared["STEPKEEPER_SKIP_STEPS"] = ",".join(map(str, plan.skip_steps))
    ranks = []
    for place in plan.ranks:
        env = {**shared, "RANK": str(place.rank), "LOCAL_RANK": str(place.local_rank)}
        env.update(programs(place.rank))
        if plan.restore and plan.container.snapshot_folder is None:
            env["STEPKEEPER_RESTORE"] = f"{inside}/mem/e{plan.restore[0]}-s{plan.restore[1]}-r{place.rank}.json"
        ranks.append({"rank": place.rank, "local_rank": place.local_rank, "env": env})
    program = {"program": list(plan.container.program), "mode": plan.container.mode, "workdir": plan.container.workdir}
    return {"stop": False, **program, "ranks": ranks}


def take_over(record: JobRecord, plan: StartPlan, epoch: int) -> None:
    """Write down in a job's record that an attempt begins here, and as what."""
    record.slot, record.lease_rule = plan.slot, plan.lease_rule
    record.storage_dir, record.job_key, record.world_size = plan.storage_dir, plan.job_key, plan.world_size
    record.snapshot_folder = plan.container.snapshot_folder
    record.begin(epoch, [place.rank for place in plan.ranks], plan.restore)


def unread(folder: JobFolder) -> bool:
    """Whether the launcher was told to start ranks and has not said that it did: it may still do so at any moment."""
    highest = folder.highest_epoch()
    told = folder.epoch_order(highest)
    return told is not None and not told.get("stop") and folder.pids(highest) is None


def taken(folder: JobFolder, epoch: int) -> bool:
    """Whether the launcher was told of this attempt before."""
    return folder.epoch_order(epoch) is not None or folder.pids(epoch) is not None


def recovered(job: str, folder: JobFolder) -> JobRecord:
    """Return a job's record as its folder tells it, for a record that is missing or cannot be read."""
    epoch = folder.highest_epoch()
    told = folder.epoch_order(epoch) or {}
    orders = [order for order in told.get("ranks") or () if isinstance(order, dict)]
    env: dict[str, Any] = next((order["env"] for order in orders if isinstance(order.get("env"), dict)), {})
    slot = str(env.get("GROUP_RANK", ""))
    record = JobRecord(
        job=job,
        epoch=epoch,
        started_epoch=epoch,
        slot=int(slot) if slot.isdecimal() else None,
        ranks=[order["rank"] for order in orders if isinstance(order.get("rank"), int)],
        lease_rule=_rule(folder),
        stopped=not orders,
    )
    restored = shards.parse(Path(str(env.get("STEPKEEPER_RESTORE", ""))).stem)
    if epoch:
        record.starts.append([epoch, *((restored.epoch, restored.step) if restored else (None, None))])
    return record


def _rule(folder: JobFolder) -> str:
    rule = standing.lease_rule(folder)
    return LeaseRule(rule) if rule in set(LeaseRule) else LeaseRule.STOP_WHEN_STUCK
