"""The ledger of snapshots on pages and over REST: what is at risk, how each step stands, and never the wrong word."""

import csv
import io
import re
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.template.loader import render_to_string
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from reliability import models
from reliability.api.snapshot_serializers import TierSerializer
from reliability.domain.ledger import Standing
from reliability.domain.program_folders import FolderRule
from reliability.services import snapshot_tally
from tests.web import rows

pytestmark = [pytest.mark.django_db, pytest.mark.slow]


def text_of(client: Any, url: str) -> str:
    answer = client.get(url)
    assert answer.status_code == 200, url
    page: str = answer.content.decode()
    return page


def plain(html: str) -> str:
    return " ".join(re.sub(r"<[^>]+>", " ", html).split())


def copies(step: int, tier: str) -> Any:
    return models.SnapshotCopy.objects.filter(snapshot__job__name="gpt-small", snapshot__step=step, tier=tier)


def key(step: int) -> int:
    found: int = models.Snapshot.objects.get(job__name="gpt-small", step=step).pk
    return found


def test_a_job_s_page_says_from_what_it_could_go_on_and_what_is_at_risk(
    client_of: Any, cluster: dict[str, Any]
) -> None:
    said = plain(text_of(client_of("viewer"), "/jobs/gpt-small/snapshots/"))
    assert "Newest restorable step step 1 220" in said.replace("\u202f", " ")
    assert "The newest snapshot is restorable by every rank." in said
    assert re.search(r"A process dies 20 steps ?, 6.4 s of work; back to step 1.220, taken \d+ s ago", said)
    # 1220 is not on storage yet, so a node takes it along
    assert re.search(r"n1 40 steps ?, 12 s of work; back to step 1.200", said)


def test_the_rank_that_holds_the_newest_step_back_is_named_with_its_node(
    client_of: Any, cluster: dict[str, Any]
) -> None:
    copies(1220, "memory").filter(rank=2).update(state="lost")
    copies(1220, "ssd").filter(rank=2).delete()
    snapshot_tally.recount_all()
    said = plain(text_of(client_of("viewer"), "/jobs/gpt-small/snapshots/")).replace("\u202f", " ")
    assert "Step 1 220 is not restorable yet. Held back by rank 2 on n3." in said
    assert "Newest restorable step step 1 200" in said


def test_steps_are_listed_newest_first_with_how_they_stand_and_unfold_to_ranks(
    client_of: Any, cluster: dict[str, Any]
) -> None:
    copies(1180, "storage").filter(rank=1).update(state="corrupt")
    copies(1200, "ssd").update(verified_at=timezone.now())
    snapshot_tally.recount_all()
    client, pk = client_of("viewer"), key(1180)
    page = text_of(client, "/jobs/gpt-small/snapshots/")
    order = [int(found) for found in re.findall(r'<tr id="snap-(\d+)"', page)]
    assert order == [key(1220), key(1200), key(1180)]
    said = plain(page)
    for word in ("verified", "corrupt", "1 rank corrupt", "2 of 3 ranks", "stall 21 ms", "drain 0.40 s"):
        assert word in said, word
    assert f'id="ranks-{pk}"' not in page
    unfolded = text_of(client, f"/jobs/gpt-small/snapshots/?open={pk}")
    inside = plain(unfolded.split(f'id="ranks-{pk}"')[1].split("</tr>")[0])
    assert "corrupt 1" in inside
    assert "committed 0, 2" in inside


@pytest.mark.parametrize(
    ("query", "steps"),
    [
        ("tier=storage", [1200, 1180]),
        ("state=verified", [1200]),
        ("state=verified&tier=ssd", [1200]),
        ("state=verified&tier=storage", []),
        ("state=absent", [1220]),
        ("state=abandoned", [1220]),
        ("state=committed&tier=memory", [1200, 1180]),
        ("since_step=1200", [1200, 1180]),
    ],
)
def test_the_list_narrows_by_tier_and_state(
    query: str, steps: list[int], client_of: Any, cluster: dict[str, Any]
) -> None:
    job = cluster["training"]
    now = timezone.now()
    models.Epoch.objects.create(job=job, number=2, started_at=now, restored_epoch=1, restored_step=1200)
    copies(1200, "ssd").update(verified_at=now)
    snapshot_tally.recount_all()
    page = text_of(client_of("viewer"), f"/jobs/gpt-small/snapshots/?{query}")
    shown = [int(found) for found in re.findall(r'<tr id="snap-(\d+)"', page)]
    assert shown == [key(step) for step in steps]
    rest = client_of("viewer").get(f"/api/v1/snapshots/?job=gpt-small&{query}&ordering=-step").json()
    if "since_step" not in query:
        assert [row["step"] for row in rest["results"]] == steps


def test_a_step_has_a_page_with_every_rank_tier_digest_and_what_happened(
    client_of: Any, cluster: dict[str, Any]
) -> None:
    found = models.Snapshot.objects.get(pk=key(1200))
    bad = copies(1200, "ssd").get(rank=1)
    models.SnapshotCopy.objects.filter(pk=bad.pk).update(state="corrupt", problem="n2 could not use it: chunk 3")
    models.SnapshotEvent.objects.create(
        snapshot=found, at=timezone.now(), tier="ssd", node=bad.node, ranks=[1], target="corrupt", sentence="chunk 3"
    )
    snapshot_tally.recount_all()
    said = plain(text_of(client_of("viewer"), f"/snapshots/{found.pk}/"))
    for word in (
        "blake2b:",
        "e1-s1200-r0.snap",
        "n2 could not use it: chunk 3",
        "18.4 MB",
        "46.0 MB/s",
        "2 of 3 ranks",
    ):
        assert word in said, word
    assert "not the digest it was committed with" not in said.split("Every rank and tier")[0].split("Storage")[1][:200]
    assert re.search(r"corrupt ssd of n2 rank 1", said)


@pytest.mark.parametrize(
    ("standing", "says"),
    [("removed", "ranks left"), ("lost", "ranks left"), ("writing", "ranks"), ("corrupt", "ranks")],
)
def test_how_many_ranks_there_are_is_told_apart_from_how_many_are_gone(standing: str, says: str) -> None:
    cell = {"standing": Standing(standing), "ranks": 1, "world_size": 3, "complete": False, "size_bytes": 10}
    said = re.sub(r"<[^>]+>", " ", render_to_string("snapshots/cell.html", {"cell": cell}))
    assert re.search(r"1 of 3 (ranks left|ranks)", said)[1] == says  # type: ignore[index]


def test_an_abandoned_or_distrusted_step_says_that_it_is_never_restored(
    client_of: Any, cluster: dict[str, Any]
) -> None:
    job, client = cluster["training"], client_of("viewer")
    models.Epoch.objects.create(job=job, number=2, started_at=timezone.now(), restored_epoch=1, restored_step=1200)
    assert "this one is never restored" in text_of(client, f"/snapshots/{key(1220)}/")
    assert "this one is never restored" not in text_of(client, f"/snapshots/{key(1200)}/")
    models.Snapshot.objects.filter(pk=key(1200)).update(distrusted=True, distrust_reason="It failed twice.")
    assert "Never restored again: It failed twice." in text_of(client, f"/snapshots/{key(1200)}/")
    assert "step 1 180" in plain(text_of(client, "/jobs/gpt-small/snapshots/")).replace("\u202f", " ")


@pytest.mark.parametrize("query", ["?page=x", "?page=-1", "?page=99999999999999", "?open=x&state=nonsense&tier=%00"])
def test_a_query_that_makes_no_sense_shows_the_nearest_page(query: str, client_of: Any, cluster: Any) -> None:
    for address in ("/jobs/gpt-small/snapshots/", f"/snapshots/{key(1200)}/"):
        assert client_of("viewer").get(f"{address}{query}").status_code == 200


def test_pages_and_rest_ask_as_often_for_many_steps_and_ranks_as_for_few(
    client_of: Any, cluster: dict[str, Any]
) -> None:
    client, addresses = client_of("viewer"), (
        "/", "/jobs/gpt-small/", "/snapshots/", "/jobs/gpt-small/snapshots/",
        f"/jobs/gpt-small/snapshots/?open={key(1220)}",
        f"/snapshots/{key(1200)}/", "/api/v1/snapshots/?job=gpt-small", f"/api/v1/snapshots/{key(1200)}/",
        f"/api/v1/snapshots/{key(1200)}/copies/", "/api/v1/jobs/gpt-small/risk/",
    )  # fmt: skip

    def asked(address: str) -> int:
        with CaptureQueriesContext(connection) as seen:
            assert client.get(address).status_code == 200
        return len(seen)

    few = {address: asked(address) for address in addresses}
    for step in range(100, 160):
        rows.snapshot(cluster["training"], step, age_s=400 - step)
    assert {address: asked(address) for address in addresses} == few
    assert max(few.values()) <= 35


def test_what_runs_full_is_told_on_every_page_that_it_concerns(client_of: Any, cluster: dict[str, Any]) -> None:
    now = timezone.now()
    models.Room.objects.create(
        node=models.Node.objects.get(name="n1"), tier="ssd", free_bytes=10**9, total_bytes=10**11, anchor_bytes=10**9,
        anchor_at=now, looked_at=now, changed_at=now, level="low", words="Full in about 40 min at this rate.",
    )  # fmt: skip
    client = client_of("viewer")
    for address in ("/", "/jobs/gpt-small/", "/jobs/gpt-small/snapshots/", "/snapshots/", "/nodes/n1/"):
        assert "Full in about 40 min at this rate." in text_of(client, address), address
    for address in ("/jobs/vit-base/", "/nodes/n2/"):
        assert "Full in about 40 min" not in text_of(client, address), address


def test_a_copy_that_failed_is_told_with_words_until_its_incident_is_closed(
    client_of: Any, cluster: dict[str, Any]
) -> None:
    job, node, now = cluster["training"], models.Node.objects.get(name="n1"), timezone.now()
    made = models.Incident.objects.create(
        job=job, node=node, fault_class="storage", action="observe", summary="A disk is full", opened_at=now
    )
    models.Finding.objects.create(
        node=node, job=job, incident=made, code="disk-full", fault_class="storage", action="observe", severity="error",
        evidence="Step 1240 rank 0 on ssd: tier_full: no space left <b>", count=7, found_at=now,
    )  # fmt: skip
    page = text_of(client_of("viewer"), "/jobs/gpt-small/snapshots/")
    assert "tier_full: no space left &lt;b&gt;" in page
    assert "7 times" in plain(page)
    models.Incident.objects.filter(pk=made.pk).update(closed_at=now)
    assert "tier_full" not in text_of(client_of("viewer"), "/jobs/gpt-small/snapshots/")


def test_rest_tells_work_at_risk_overall_and_for_each_node(client_of: Any, cluster: dict[str, Any]) -> None:
    said = client_of("viewer").get("/api/v1/jobs/gpt-small/risk/").json()
    assert (said["process"]["restore_step"], said["process"]["steps"]) == (1220, 20)
    assert 6 <= said["process"]["age_s"] < 60
    assert {each["node"]: each["restore_step"] for each in said["nodes"]} == {"n1": 1200, "n2": 1200, "n3": 1200}
    assert said["held_back"] is None
    assert client_of("").get("/api/v1/jobs/gpt-small/risk/").status_code == 401


def test_state_that_ranks_have_in_common_is_not_at_risk_with_one_node(client_of: Any, cluster: dict[str, Any]) -> None:
    found = models.Snapshot.objects.get(pk=key(1220))
    for rank in range(3):
        models.ShardPart.objects.create(
            snapshot=found, rank=rank, digest="blake2b:" + "0" * 32, size_bytes=18_400_000, shared_at=100,
            shared_bytes=18_000_000, shared_digest="same", group="all", head=b"x" if rank != 2 else None,
        )  # fmt: skip
    said = client_of("viewer").get("/api/v1/jobs/gpt-small/risk/").json()
    # rank 2's head did not travel: its shard cannot be put together from what the others hold
    assert {each["node"]: each["restore_step"] for each in said["nodes"]} == {"n1": 1220, "n2": 1220, "n3": 1200}


def test_rest_gives_copies_by_tier_and_state_in_pages_and_as_csv(client_of: Any, cluster: dict[str, Any]) -> None:
    client, pk = client_of("viewer"), key(1200)
    copies(1200, "ssd").filter(rank=2).update(state="lost")
    snapshot_tally.recount_all()
    address = f"/api/v1/snapshots/{pk}/copies/"
    assert client.get(address).json()["count"] == 9
    assert client.get(f"{address}?page_size=4&page=3").json()["results"][0]["rank"] == 2
    assert [row["rank"] for row in client.get(f"{address}?tier=ssd&state=lost").json()["results"]] == [2]
    assert client.get(f"{address}?node=n1").json()["count"] == 2
    answer = client.get(f"{address}?format=csv&tier=storage")
    table = list(csv.DictReader(io.StringIO(b"".join(answer.streaming_content).decode())))
    assert [(row["rank"], row["state"]) for row in table] == [
        ("0", "committed"),
        ("1", "committed"),
        ("2", "committed"),
    ]
    for query, name in (("rnk=1", "rnk"), ("rank=x", "rank"), ("state=fine", "state"), ("tier=tape", "tier")):
        refused = client.get(f"{address}?{query}")
        assert (refused.status_code, list(refused.json())) == (400, [name])
    assert client.get("/api/v1/snapshots/999999/copies/").status_code == 404


def test_a_snapshot_over_rest_has_what_happened_to_it(client_of: Any, cluster: dict[str, Any]) -> None:
    found = models.Snapshot.objects.get(pk=key(1200))
    models.SnapshotEvent.objects.create(
        snapshot=found, at=timezone.now(), tier="ssd", ranks=[1], target="lost", sentence="n2 is gone."
    )
    said = client_of("viewer").get(f"/api/v1/snapshots/{found.pk}/").json()
    assert said["events"][0]["sentence"] == "n2 is gone."
    fields = set(TierSerializer().fields)
    assert all(set(tier) == fields for tier in said["tiers"].values())
    assert said["tiers"]["ssd"]["bytes_per_s"] == pytest.approx(3 * 18_400_000 / 0.4)
    assert (said["ranks"], said["held"], said["durable"], said["in_line"]) == (3, 3, 3, True)


def test_a_job_that_never_saved_is_at_risk_since_it_began(client_of: Any, cluster: dict[str, Any]) -> None:
    made = rows.job("fresh", [rows.node("f1")], step=30)
    models.Epoch.objects.filter(job=made).update(running_at=timezone.now() - timedelta(minutes=5))
    said = plain(text_of(client_of("viewer"), "/jobs/fresh/snapshots/"))
    assert "none yet" in said
    assert re.search(r"30 steps ?, 9.6 s of work; back to the beginning, 5 min \d+ s ago", said)


def test_where_a_program_that_tells_of_no_steps_would_go_on_is_told(client_of: Any, cluster: dict[str, Any]) -> None:
    models.Rank.objects.filter(job__name="gpt-small").update(step=None, step_s=None)
    models.Job.objects.filter(name="gpt-small").update(mode=models.Job.Mode.PLAIN)
    said = client_of("viewer").get("/api/v1/jobs/gpt-small/risk/").json()
    assert (said["process"]["restore_step"], said["process"]["steps"], said["process"]["seconds"]) == (1220, None, None)
    assert 6 <= said["process"]["age_s"] < 60
    assert {each["node"]: each["restore_step"] for each in said["nodes"]} == {"n1": 1200, "n2": 1200, "n3": 1200}
    for address in ("/jobs/gpt-small/", "/jobs/gpt-small/snapshots/", "/snapshots/"):
        page = plain(text_of(client_of("viewer"), address)).replace("\u202f", " ")
        assert re.search(r"back to step 1 220, taken \d+ s ago", page), address


def test_a_program_that_never_saved_would_begin_anew(client_of: Any, cluster: dict[str, Any]) -> None:
    made = rows.job("fresh", [rows.node("f1")], mode=models.Job.Mode.PLAIN)
    models.Rank.objects.filter(job=made).update(step=None)
    models.Epoch.objects.filter(job=made).update(running_at=timezone.now() - timedelta(minutes=5))
    said = client_of("viewer").get("/api/v1/jobs/fresh/risk/").json()
    assert (said["process"]["restore_step"], said["process"]["steps"]) == (0, None)
    assert said["process"]["since"]
    assert "takes no snapshots of a plain program" in plain(text_of(client_of("viewer"), "/jobs/fresh/"))
    models.Job.objects.filter(pk=made.pk).update(snapshot_folder=FolderRule().as_dict())
    assert "A process dies back to the beginning, 5 min" in plain(text_of(client_of("viewer"), "/jobs/fresh/"))


def test_what_retention_removed_everywhere_is_left_out_and_counted_until_it_is_asked_for(
    client_of: Any, cluster: dict[str, Any]
) -> None:
    gone = models.Snapshot.objects.get(job=cluster["training"], step=1200)
    models.Snapshot.objects.filter(pk=gone.pk).update(held=0)
    models.SnapshotTier.objects.filter(snapshot=gone).update(ranks=0, removed=2, state="removed")
    client, link = client_of("viewer"), f'href="/snapshots/{gone.pk}/"'
    page = text_of(client, "/jobs/gpt-small/snapshots/")
    assert link not in page
    assert "1 that was removed" in plain(page)
    for asked in ("?removed=shown", "?state=removed"):
        assert link in text_of(client, f"/jobs/gpt-small/snapshots/{asked}"), asked
    assert "1 that was removed" in plain(text_of(client, "/jobs/gpt-small/snapshots/?page=1"))
    for bad in ("corrupt", "lost"):
        models.SnapshotTier.objects.filter(snapshot=gone, tier="ssd").update(**{"corrupt": 0, "lost": 0, bad: 1})
        assert link in text_of(client, "/jobs/gpt-small/snapshots/"), "what went bad is no tidying up"


def test_with_a_node_that_is_not_heard_the_ledger_says_what_is_left_and_shows_the_open_recovery(
    client_of: Any, cluster: dict[str, Any]
) -> None:
    lost = models.Slot.objects.filter(job=cluster["training"]).exclude(node=None).order_by("index")[0].node
    models.Node.objects.filter(pk=lost.pk).update(health="unreachable")
    recovery = models.Failover.objects.filter(job=cluster["training"]).order_by("-pk")[0]
    models.Failover.objects.filter(pk=recovery.pk).update(state="validating", ended_at=None)
    page = text_of(client_of("viewer"), "/jobs/gpt-small/snapshots/")
    assert f"nothing is read from {lost.name}, which is not heard" in plain(page)
    assert "every rank can read it where it runs now" not in page
    assert f"Without {lost.name}" in plain(page)
    assert f'<a class="btn btn-primary" href="/failovers/{recovery.pk}/">Open</a>' in page


def test_of_a_step_that_is_gone_everywhere_no_restore_is_offered(client_of: Any, cluster: dict[str, Any]) -> None:
    client, pk = client_of("operator"), key(1180)
    assert "Try to restore it on a standby" in text_of(client, f"/snapshots/{pk}/")
    models.SnapshotCopy.objects.filter(snapshot=pk).update(state="deleted")
    snapshot_tally.recount_all()
    assert "Try to restore it on a standby" not in text_of(client, f"/snapshots/{pk}/")


def test_the_csv_of_a_ledger_lists_what_the_page_lists(client_of: Any, cluster: dict[str, Any]) -> None:
    client = client_of("viewer")
    models.SnapshotCopy.objects.filter(snapshot=key(1180)).update(state="deleted")
    snapshot_tally.recount_all()
    for query, steps in (("", {1200, 1220}), ("?removed=shown", {1180, 1200, 1220}), ("?since_step=1200", {1200})):
        page = text_of(client, f"/jobs/gpt-small/snapshots/{query}")
        link = re.search(r'href="([^"]+format=csv)"', page)
        assert link is not None
        told = b"".join(client.get(link[1].replace("&amp;", "&")).streaming_content).decode()
        assert {int(row["step"]) for row in csv.DictReader(io.StringIO(told))} == steps, query
