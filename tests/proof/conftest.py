"""One cluster for all proofs: five hosts, made fit again before each test."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.proof.cluster import Cluster, running_cluster
from tests.proof.runs import Runs
from tests.testbed.fleet import Fleet
from tests.testbed.images import Image

TRAINING = ("a", "b", "c")
STANDBYS = ("d", "e")
# Twice the product's own limits: beside the other tests a node on two cores is sometimes not heard of for seconds.
PATIENCE = {"STEPKEEPER_LEASE_S": "8", "STEPKEEPER_SILENCE_S": "12"}


@pytest.fixture(scope="session")
def session_cluster(
    fleet: Fleet, numpy_image: Image, torch_image: Image, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Cluster]:
    fleet.up(*TRAINING, *STANDBYS)
    fleet.load(numpy_image, *TRAINING, *STANDBYS)
    fleet.load(torch_image, *TRAINING, *STANDBYS)
    folder = tmp_path_factory.mktemp("proof")
    places = {"training": TRAINING, "standbys": STANDBYS, "port": 27080, "broker_port": 27379}
    with running_cluster(fleet, folder, settings=PATIENCE, **places) as cluster:
        yield cluster


@pytest.fixture
def cluster(session_cluster: Cluster) -> Cluster:
    """The cluster with every host on, every agent joined, no hold and no job."""
    session_cluster.make_fit()
    return session_cluster


@pytest.fixture(scope="session")
def kept_outcomes() -> dict[tuple[str, int], object]:
    """Outcomes of uninterrupted runs, for all tests of the session."""
    return {}


@pytest.fixture
def runs(cluster: Cluster, numpy_image: Image, torch_image: Image, tmp_path: Path, kept_outcomes: dict) -> Runs:
    images = {"numpy_lm": numpy_image.reference, "torch_ddp": torch_image.reference}
    return Runs(cluster=cluster, images=images, folder=tmp_path, kept=kept_outcomes)
