"""An agent whose server and broker are away goes on storing snapshots on an object store, and tells of them later."""

from tests.agent.conftest import AgentProcess
from tests.agent.ingest import Ingest, until
from tests.stores.s3 import SECRET, S3Server

JOB = "lm"


def stored_steps(s3: S3Server) -> set[int]:
    names = (path.rpartition("/")[2] for path in s3.paths(f"team/{JOB}/manifests/"))
    return {int(name.removeprefix("s").removesuffix(".json")) for name in names}


def test_snapshots_are_stored_while_nobody_answers_and_told_afterwards(
    s3: S3Server, s3_url: str, ingest: Ingest, agent: AgentProcess
) -> None:
    start = agent.start_payload(storage_dir=s3_url, job_key="key")
    ingest.done("start", job=JOB, epoch=1, payload=start)
    until(lambda: stored_steps(s3), 30)
    ingest.close()
    before = max(stored_steps(s3))
    until(lambda: max(stored_steps(s3)) > before + 10, 30)
    alone = max(stored_steps(s3))
    ingest.open()
    copies = until(
        lambda: [
            copy for copy in ingest.of_kind("snapshot_copy") if copy["tier"] == "storage" and copy["step"] == alone
        ],
        30,
    )
    assert copies[0]["path"] == f"{s3_url}/{JOB}/e1/s{alone}-r0.snap"
    assert SECRET not in agent.output()
    assert all(SECRET not in str(report) for report in ingest.reports)
