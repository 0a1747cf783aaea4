"""What a node's collectors tell of a process decides whom a fault belongs to, and what an end is worth."""

from typing import Any

import pytest

from reliability.models import Finding, Incident
from tests.services.world import World

pytestmark = [pytest.mark.django_db, pytest.mark.slow]

SEGFAULT = "sshd[77]: segfault at 0 ip 00007f1d2c0ab3f1 sp 00007ffc2d1a7b10 error 4 in libc.so.6[7f1d2c000000+8a000]"


def _finding(code: str, evidence: str, **fields: Any) -> dict[str, Any]:
    return {"code": code, "rank": None, "evidence": evidence, "count": 1, "fields": fields}


def test_a_line_about_a_process_of_somebody_else_does_not_explain_the_end_of_a_rank(world: World) -> None:
    world.running_job(approval="automatic")
    world.save(20)
    other = _finding("segfault", SEGFAULT, pid=77, process="sshd", process_of="other")
    agent = world.agents["n3"]
    job, agent.job = agent.job, ""
    agent.report("finding", other)
    agent.job = job
    agent.rank_dies(2, 2)
    world.until(lambda: Incident.objects.filter(job=world.job()).exists())
    segfault = Finding.objects.get(code="segfault")
    assert segfault.job is None
    assert Incident.objects.get(job=world.job()).code == "exit-2"


@pytest.mark.parametrize(("killed", "code"), [(True, "oom"), (False, "exit-137"), (None, "exit-137")])
def test_a_rank_that_was_killed_for_memory_is_the_programs_affair(world: World, killed: bool | None, code: str) -> None:
    world.running_job(approval="automatic")
    world.save(20)
    body = {"rank": 2, "exit_code": 137, "signal": 9, "tail": "", "last_step": 20}
    world.agents["n3"].report("rank_exit", body | ({} if killed is None else {"oom_killed": killed}), epoch=1)
    world.until(lambda: Finding.objects.filter(job=world.job()).exists())
    found = Finding.objects.get(job=world.job(), rank=2)
    assert (found.code, found.fault_class) == (code, "application" if killed else "unknown")
