"""Fixtures for tests of any folder: several real hosts, images for them, and a registry."""

import os
import shutil
from collections.abc import Iterator

import pytest

from tests.testbed import images
from tests.testbed.fleet import Fleet
from tests.testbed.images import Image
from tests.testbed.registry import PORT, Registry

PROGRAMS = {
    "dockerd": "docker.io",
    "docker-registry": "docker-registry",
    "iptables": "iptables",
    "ip": "iproute2",
    "nsenter": "util-linux",
    "debootstrap": "debootstrap",
    "mkfs.ext4": "e2fsprogs",
    "openssl": "openssl",
}


def what_is_lacking() -> str:
    """Return in words why several hosts cannot be had on this machine, '' when they can."""
    if os.geteuid() != 0:
        return "the test-bed makes namespaces and needs root"
    absent = sorted(package for program, package in PROGRAMS.items() if not shutil.which(program))
    return f"the test-bed needs the Debian packages {' '.join(absent)}" if absent else ""


@pytest.fixture(scope="session")
def fleet() -> Iterator[Fleet]:
    """The hosts of this test session: `fleet.up("a", "b")` switches some on, `fleet.reset()` makes all as new."""
    lacking = what_is_lacking()
    if lacking and os.environ.get("CI"):
        pytest.fail(lacking)
    if lacking:
        pytest.skip(lacking)
    made = Fleet()
    try:
        yield made
    finally:
        made.close()


@pytest.fixture
def clean_fleet(fleet: Fleet) -> Fleet:
    """The fleet with all its hosts on and as new."""
    fleet.reset()
    return fleet


@pytest.fixture(scope="session")
def base_image(fleet: Fleet) -> Image:
    """A small Debian with Python."""
    return images.base(fleet.builder)


@pytest.fixture(scope="session")
def numpy_image(fleet: Fleet) -> Image:
    """The image of examples/numpy_lm."""
    return images.example(fleet.builder, "numpy_lm", ["numpy==2.4.6"])


@pytest.fixture(scope="session")
def torch_image(fleet: Fleet) -> Image:
    """The image of examples/torch_ddp."""
    return images.example(fleet.builder, "torch_ddp", ["torch==2.13.0", "numpy==2.4.6"])


@pytest.fixture(scope="session")
def registry(fleet: Fleet) -> Iterator[Registry]:
    """A registry that all hosts reach."""
    folder = fleet.folder / "registry"
    folder.mkdir()
    made = Registry(f"{fleet.control_address}:{PORT}", folder)
    try:
        made.start()
        yield made
    finally:
        made.stop()
