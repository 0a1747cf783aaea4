"""What a lost node held comes from those that live on: who is asked, with what proof, and what if they fail."""

import base64
import zlib
from typing import Any

import pytest

from reliability.errors import InvalidInput
from reliability.models import Failover, Finding, Job, Node, OrderRecord, ShardPart, SnapshotCopy
from reliability.selectors.partners import pairing
from reliability.services import clock, jobs, nodes, orders, partners, reports
from tests.services.world import Agent, Reply, World

pytestmark = [pytest.mark.django_db, pytest.mark.slow]
NODES = ("n1", "n2", "n3")
HEAD = base64.b64encode(zlib.compress(b"head")).decode()


@pytest.fixture
def training(world: World) -> World:
    """A job on three nodes, standbys, step 50 on storage and step 60 in memory alone."""
    world.running_job()
    world.save(50)
    return world


def save_in_memory(world: World, step: int, *, shared: dict[int, str] | None = None, head: str | None = HEAD) -> None:
    """Report data-parallel shards: every rank holds the same replicated part, unless told otherwise."""
    for agent in world.agents.values():
        for rank in agent.ranks:
            parts = {"shared_at": 4096, "shared_bytes": 8192, "sharded_bytes": 0, "local_bytes": 10, "group": ""}
            body = {
                "snapshot_epoch": agent.epoch,
                "step": step,
                "rank": rank,
                "tier": "memory",
                "path": f"/memory/lm/mem/e{agent.epoch}-s{step}-r{rank}.snap",
                "size_bytes": 16384,
                "digest": f"xxh3:{rank:032x}",
                "stall_s": 0.01,
                "parts": {**parts, "shared_digest": (shared or {}).get(rank, "bits")},
                "head": head,
            }
            agent.report("snapshot_copy", body)
    reports.process_new()


def rank_of(world: World, name: str) -> int:
    return next(iter(world.agents[name].ranks))


def lose(world: World, name: str) -> Failover:
    """The node is gone, and the ranks on the others do not get on without it."""
    for agent in world.agents.values():
        agent.stepping = False
    world.agents[name].power_off()
    world.until(Failover.objects.exists)
    for agent in world.agents.values():
        agent.stepping = True
    return world.recover(seconds=180)


def restores_of(name: str) -> list[dict[str, Any]]:
    rows = OrderRecord.objects.filter(node__name=name, kind="restore").order_by("created_at")
    return [row.payload for row in rows]


def test_a_lost_node_is_restored_from_a_survivors_memory_with_a_proof_for_both(training: World) -> None:
    save_in_memory(training, 60)
    lost = rank_of(training, "n2")
    failover = lose(training, "n2")
    assert (failover.state, failover.restore_step) == ("completed", 60), training.told()
    (payload,) = restores_of("s1")
    (rank,) = payload["ranks"]
    source = rank["sources"][0]
    assert rank["rank"] == lost
    assert (source["tier"], source["digest"]) == ("memory", f"xxh3:{lost:032x}")
    assert source["replica"]["head"] == HEAD
    served = OrderRecord.objects.get(node__name=source["node"], kind="peer_serve")
    assert source["peer"]["token"] == served.payload["token"]
    assert {"tier": "memory", "key": f"e1-s60-r{source['replica']['rank']}"} in served.payload["shards"]
    assert (served.epoch, served.payload["hold"]) == (2, True)


def test_a_rank_that_begins_on_another_node_reads_the_ssd_of_the_one_that_lives_on(world: World) -> None:
    world.running_job()
    rank = rank_of(world, "n2")
    world.save(50, tiers=("memory", "ssd"))
    jobs.stop(world.job(), by="ann")
    world.until(lambda: not world.agents["n2"].job)
    nodes.hold(Node.objects.get(name="n2"), owner="ann", reason="repair")
    jobs.start(world.job(), by="ann")
    world.until(lambda: world.job().state == Job.State.RUNNING, seconds=60)
    (order,) = [each for each in OrderRecord.objects.filter(kind="restore") if each.payload["ranks"][0]["rank"] == rank]
    source = order.payload["ranks"][0]["sources"][0]
    assert (source["tier"], source["node"], order.node.name != "n2") == ("ssd", "n2", True)
    assert source["peer"]["port"] == 24600
    assert {row.restored_step for row in world.job().epochs.filter(number=world.job().epoch)} == {50}


def test_nobody_is_asked_to_serve_when_every_rank_finds_its_own(training: World) -> None:
    save_in_memory(training, 60)
    training.agents["n2"].rank_dies(rank_of(training, "n2"), 1)
    failover = training.recover(seconds=60)
    assert failover.restore_step == 60
    assert not OrderRecord.objects.filter(kind="peer_serve").exists()


def test_survivors_that_do_not_answer_cost_some_seconds_and_the_step_on_storage_is_taken(training: World) -> None:
    save_in_memory(training, 60)
    for name in ("n1", "n3"):
        training.agents[name].replies["peer_serve"] = lambda _order: None
    failover = lose(training, "n2")
    assert (failover.state, failover.restore_step) == ("completed", 50), training.told()


def test_a_survivor_that_cannot_be_read_from_is_passed_over(training: World) -> None:
    save_in_memory(training, 60)

    def unreachable(order: Any) -> Reply:
        bad = [
            {
                "rank": each["rank"], "tier": source["tier"], "path": source["path"], "code": "tier_unreachable",
                "message": "no route", "from": {"node": source["node"], "rank": source["replica"]["rank"]},
            }
            for each in order.payload["ranks"] for source in each["sources"] if "peer" in source
        ]  # fmt: skip
        if not bad:
            return training.agents["s1"]._restore(order)
        error = {"code": "tier_unreachable", "message": "no route", "hint": ""}
        return {"status": "failed", "result": {"bad": bad}, "error": error}

    training.agents["s1"].replies["restore"] = unreachable
    failover = lose(training, "n2")
    assert (failover.state, failover.restore_step) == ("completed", 50), training.told()
    assert "s1" in {slot.node.name for slot in training.job().slots.all() if slot.node}


def test_a_node_is_believed_only_about_copies_that_its_order_had_it_read(training: World) -> None:
    save_in_memory(training, 60)
    lost = rank_of(training, "n2")

    def slander(order: Any) -> Reply:
        ranks = [
            {
                "rank": each["rank"], "tier": each["sources"][0]["tier"],
                "skipped": [
                    {"tier": "ssd", "code": "digest_mismatch", "message": "x", "from": {"node": "n1", "rank": 0}},
                ],
            }
            for each in order.payload["ranks"]
        ]  # fmt: skip
        return {"status": "done", "result": {"ranks": ranks, "seconds": 0.1}}

    training.agents["s1"].replies["restore"] = slander
    lose(training, "n2")
    assert lost is not None
    assert not SnapshotCopy.objects.filter(state="corrupt").exists()


def test_without_the_head_only_storage_gives_a_lost_rank_back(training: World) -> None:
    save_in_memory(training, 60, head=None)
    assert lose(training, "n2").restore_step == 50


def test_ranks_that_should_hold_the_same_bits_and_do_not_are_a_finding_once(training: World) -> None:
    odd = rank_of(training, "n3")
    save_in_memory(training, 60, shared={odd: "other bits"})
    save_in_memory(training, 60, shared={odd: "other bits"})
    (found,) = Finding.objects.filter(code="replica-differs")
    assert "after step 60" in found.evidence
    assert lose(training, "n3").restore_step == 50, "what differs is in nobody's memory"


def test_a_head_is_kept_with_the_newest_snapshots_and_not_in_the_report(training: World) -> None:
    for step in range(60, 160, 10):
        save_in_memory(training, step)
    kept = ShardPart.objects.filter(snapshot__job=training.job())
    assert {row.snapshot.step for row in kept} == set(range(80, 160, 10))
    assert all(bytes(row.head) == base64.b64decode(HEAD) for row in kept)
    bodies = training.agents["n1"].node.reports.filter(kind="snapshot_copy").values_list("body", flat=True)
    assert not any(body.get("head") for body in bodies)


def pair_up(world: World) -> None:
    world.until(lambda: OrderRecord.objects.filter(kind="partner_keep", state="done").count() >= 3)


@pytest.fixture
def paired(world: World, monkeypatch: pytest.MonkeyPatch) -> World:
    """One stretch of tokens: none ends while a test runs, which may be at any hour."""
    monkeypatch.setattr(partners, "STRETCH_S", 1e10)
    world.running_job(partner_copies=True, partner_bytes_per_s=5e6)
    world.save(50)
    pair_up(world)
    return world


def keeper_of(world: World, owner: str) -> Agent:
    (each,) = [each for each in pairing(world.job()).pairs if each.owner == owner]
    return world.agents[each.keeper]


def keep_copy(world: World, owner: str, step: int, *, by: str = "") -> Reply:
    agent = world.agents[by] if by else keeper_of(world, owner)
    rank = rank_of(world, owner)
    body = {
        "snapshot_epoch": 1, "step": step, "rank": rank, "tier": "partner", "size_bytes": 1000, "stall_s": None,
        "path": f"/memory/.partners/lm/e1-s{step}-r{rank}.snap", "digest": "blake2b:00",
    }  # fmt: skip
    (told,) = agent.report("snapshot_copy", body)
    reports.process_new()
    return told


def test_each_node_serves_its_newest_shards_to_one_partner_once(paired: World) -> None:
    served = OrderRecord.objects.filter(kind="peer_serve")
    assert served.count() == 3
    assert not any(order.payload["hold"] for order in served)
    for order in OrderRecord.objects.filter(kind="partner_keep"):
        owner = Node.objects.get(name=order.payload["peer"]["node"])
        assert order.payload["peer"]["token"] == served.get(node=owner).payload["token"]
        assert order.payload["bytes_per_s"] == 5e6
        assert order.node != owner
    for _ in range(10):
        paired.tick(1.0)
    assert served.count() == 3


def test_a_job_that_does_not_ask_for_it_has_no_partner_copies(training: World) -> None:
    for _ in range(5):
        training.tick(1.0)
    assert not OrderRecord.objects.filter(kind="partner_keep").exists()


def test_a_lost_node_is_restored_from_its_partners_memory(paired: World) -> None:
    for agent in paired.agents.values():
        agent.save(60, tiers=("memory",))
    reports.process_new()
    keep_copy(paired, "n2", 60)
    keeper = keeper_of(paired, "n2").name
    failover = lose(paired, "n2")
    assert (failover.state, failover.restore_step) == ("completed", 60), paired.told()
    (payload,) = restores_of("s1")
    source = payload["ranks"][0]["sources"][0]
    assert (source["tier"], source["node"]) == ("partner", keeper)
    assert "peer" in source


def test_a_partner_copy_counts_only_from_who_was_told_to_keep_it(paired: World) -> None:
    other = next(name for name in NODES if name not in ("n2", keeper_of(paired, "n2").name))
    keep_copy(paired, "n2", 60, by=other)
    assert not SnapshotCopy.objects.filter(tier="partner").exists()
    keep_copy(paired, "n2", 60)
    assert SnapshotCopy.objects.filter(tier="partner").count() == 1


def test_pairing_follows_a_new_attempt(paired: World) -> None:
    paired.agents["n2"].rank_dies(rank_of(paired, "n2"), 1)
    paired.recover(seconds=60)
    paired.until(lambda: OrderRecord.objects.filter(kind="partner_keep", epoch=2, state="done").count() >= 3)


def test_what_a_node_could_not_do_is_asked_again_after_a_while(world: World) -> None:
    failed = {"code": "probe_crashed", "message": "no port", "hint": ""}
    world.agents["n1"].replies["peer_serve"] = lambda _order: {"status": "failed", "result": {}, "error": failed}
    world.running_job(partner_copies=True)
    world.until(lambda: OrderRecord.objects.filter(kind="peer_serve", state="failed").exists())
    del world.agents["n1"].replies["peer_serve"]
    world.until(lambda: OrderRecord.objects.filter(kind="partner_keep", state="done").count() >= 3, seconds=60)
    assert orders.succeeded(OrderRecord.objects.filter(kind="peer_serve", node__name="n1").latest("created_at"))


def test_partners_lie_outside_the_failure_domain_that_a_person_or_the_agent_names(paired: World) -> None:
    nodes.set_failure_domain(Node.objects.get(name="n1"), "rack-1")
    nodes.set_failure_domain(Node.objects.get(name="n2"), "rack-1")
    assert keeper_of(paired, "n1").name == "n3"
    assert keeper_of(paired, "n2").name == "n3"
    paired.agents["n1"].facts.pop("failure_domain", None)
    register_again(paired, "n1")
    assert Node.objects.get(name="n1").failure_domain == "rack-1", "an agent that names none leaves it"
    paired.agents["n1"].facts["failure_domain"] = "rack-2"
    register_again(paired, "n1")
    assert keeper_of(paired, "n1").name == "n2"


def test_a_look_at_pairs_that_are_kept_costs_two_queries_however_many_there_are(
    paired: World, django_assert_num_queries: Any
) -> None:
    job = paired.job()
    with django_assert_num_queries(2):
        partners.keep(job, clock.now())


def test_the_keys_of_orders_fit_however_long_names_and_lives_are(world: World) -> None:
    """A column of so many characters takes no more on PostgreSQL."""
    job = world.running_job(partner_copies=True)
    for number, name in enumerate(NODES):
        Node.objects.filter(name=name).update(name=str(number) * 80, incarnation="i" * 64)
    now = clock.now()
    partners.keep(job, now)
    OrderRecord.objects.filter(kind="peer_serve").update(state="done", result={"result": {"port": 1}})
    partners.keep(job, now)
    keys = OrderRecord.objects.filter(kind__in=("peer_serve", "partner_keep")).values_list("key", flat=True)
    assert sum("kept" in key for key in keys) >= 3
    assert max(map(len, keys)) <= OrderRecord._meta.get_field("key").max_length


def test_a_keeper_is_told_of_all_ranks_it_keeps_when_its_pairs_change(paired: World) -> None:
    """So that it lets go of the shards of those that another node keeps by now."""
    for name in ("n1", "n2"):
        nodes.set_failure_domain(Node.objects.get(name=name), "rack-1")
    wanted = sorted([rank_of(paired, "n1"), rank_of(paired, "n2")])

    def told() -> list[list[int]]:
        rows = OrderRecord.objects.filter(kind="partner_keep", node__name="n3", state="done").order_by("-created_at")
        return [payload["kept_ranks"] for payload in rows.values_list("payload", flat=True)]

    paired.until(lambda: told()[:2] == [wanted, wanted])


def register_again(world: World, name: str) -> None:
    world.pass_time(60)
    world.agents[name].join()


@pytest.mark.parametrize("domain", ["x" * 81, "a\nb"])
def test_a_failure_domain_that_is_none_is_refused_by_name(world: World, domain: str) -> None:
    with pytest.raises(InvalidInput, match="domain"):
        nodes.set_failure_domain(Node.objects.get(name="n1"), domain)


def test_partner_copies_of_a_job_on_one_node_are_refused_when_it_is_submitted(world: World) -> None:
    with pytest.raises(InvalidInput, match="partner_copies"):
        world.submit(nodes=1, partner_copies=True)
