"""What a rank prints is told while it goes on: from the first line of an attempt, once, and nothing behind a link."""

import os
import signal
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from reliability.agent.collectors.node_program_output import NodeProgramOutput
from reliability.agent.collectors.standing import Standings
from reliability.agent.folder import JobFolder
from reliability.agent.probes.children import Children
from tests.agent.ingest import until

MISMATCH = "RuntimeError: CUDA error: an illegal memory access was encountered"
FULL = "OSError: [Errno 28] No space left on device: '/ckpt/step-{}'"


@dataclass
class Record:
    """As much of a job's record as is asked for."""

    job: str = "lm"
    started_epoch: int = 1
    ranks: list[int] = field(default_factory=lambda: [0, 1])
    unfenced: bool = True


@dataclass
class Part:
    """A node's part of a job."""

    folder: JobFolder
    record: Record = field(default_factory=Record)

    def print(self, rank: int, *lines: str) -> None:
        """Have a rank of the present attempt print lines."""
        path = self.folder.log_path(self.record.started_epoch, rank)
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a") as log:
            log.writelines(f"{line}\n" for line in lines)


class Told:
    """Takes what is told."""

    def __init__(self) -> None:
        self.found: list[tuple[dict[str, Any], str, int]] = []

    def report_found(self, found: Any, *, source: str, place: str | None) -> None:
        self.found += found

    def codes(self) -> list[tuple[str, int, int]]:
        """Return (code, rank, count) of each."""
        return [(body["code"], body["rank"], body["count"]) for body, _, _ in self.found]


class Node:
    """A node whose output is followed by a child."""

    def __init__(self, folder: Path) -> None:
        self.part = Part(JobFolder(folder / "memory" / "lm"))
        self.told, self.standings = Told(), Standings()
        self.output = NodeProgramOutput(
            children=Children(folder / "log"),
            standings=self.standings,
            reports=self.told,
            parts=lambda: [self.part],  # type: ignore[list-item,return-value]
        )

    def hears(self, count: int) -> list[tuple[str, int, int]]:
        """Wait until so many were told and return them."""

        def enough() -> bool:
            self.output.look()
            return len(self.told.found) >= count

        until(enough)
        return self.told.codes()


@pytest.fixture
def node(folder: Path) -> Iterator[Node]:
    made = Node(folder)
    made.part.print(0, MISMATCH)
    made.output.start()
    until(lambda: made.standings.told()["program_output"]["ok"])
    yield made
    made.output.stop()


def test_an_attempt_is_followed_from_its_first_line_and_what_was_printed_before_is_not_told(node: Node) -> None:
    node.output.look()
    node.part.record.started_epoch = 2
    node.part.print(1, "step 1 loss 2.31", MISMATCH, "step 2 loss 2.30")
    assert node.hears(1) == [("cuda-illegal-access", 1, 1)]
    body, job, epoch = node.told.found[0]
    assert (job, epoch, body["source"], body["evidence"]) == ("lm", 2, "output", MISMATCH)
    node.part.print(0, FULL.format(40))
    assert node.hears(2)[1] == ("disk-full", 0, 1)


def test_a_line_that_comes_a_thousand_times_is_told_a_few_times_with_its_count(node: Node) -> None:
    node.part.record.started_epoch = 2
    node.part.print(1, *[MISMATCH] * 1000)
    until(lambda: (node.output.look(), sum(count for _, _, count in node.told.codes()) == 1000)[1])
    assert len(node.told.found) <= 4


def test_a_child_that_was_killed_is_followed_by_one_that_tells_nothing_twice(node: Node) -> None:
    node.part.record.started_epoch = 2
    node.part.print(1, MISMATCH)
    node.hears(1)
    first = node.output.pid()
    os.kill(first or 0, signal.SIGKILL)
    until(lambda: node.output.pid() not in {None, first})
    until(lambda: node.standings.told()["program_output"]["ok"])
    node.part.record.started_epoch = 3
    node.part.print(0, FULL.format(1))
    assert node.hears(2) == [("cuda-illegal-access", 1, 1), ("disk-full", 0, 1)]


@pytest.mark.parametrize("how", ["the file", "its folder"])
def test_nothing_is_read_by_way_of_a_link(node: Node, folder: Path, how: str) -> None:
    elsewhere = folder / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "2-1.log").write_text(f"{MISMATCH}\n")
    logs = node.part.folder.log_path(2, 1).parent
    if how == "the file":
        (logs / "2-1.log").symlink_to(elsewhere / "2-1.log")
    else:
        logs.rename(folder / "away")
        logs.symlink_to(elsewhere)
    node.part.record.started_epoch = 2
    node.output.look()
    until(lambda: node.standings.told()["program_output"]["measured"].get("ranks") == 2)
    if how == "its folder":
        logs.unlink()
        (folder / "away").rename(logs)
    node.part.print(0, FULL.format(1))
    assert node.hears(1) == [("disk-full", 0, 1)]


def test_what_a_program_puts_in_place_of_its_output_takes_no_node_out_of_use(node: Node) -> None:
    node.part.print(0)
    node.output.stop()
    odd = Node(node.part.folder.root.parent.parent)
    odd.part.folder.log_path(2, 0).symlink_to("/proc/1/mem")  # an odd thing that the program put there says nothing
    odd.part.record.started_epoch = 2
    odd.output.start()
    odd.output.look()
    until(lambda: odd.standings.told()["program_output"]["ok"])
    odd.output.stop()


def test_a_change_of_the_fault_table_counts_for_lines_that_come_later(node: Node) -> None:
    node.output.use({"disk-full": {"enabled": False}})
    node.part.record.started_epoch = 2
    node.output.look()
    node.part.print(0, FULL.format(1), MISMATCH)
    assert node.hears(1) == [("cuda-illegal-access", 0, 1)]
