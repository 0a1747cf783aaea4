"""A host of checks of which one stands still in a way that no kill ends, until it is thawed."""

import contextlib
import os
import time
from pathlib import Path
from types import TracebackType

from reliability.agent.collectors import check_host, checks
from reliability.agent.collectors.attending import attend
from reliability.agent.collectors.checking import Check, Inputs, Outcome

ROOT = Path("/sys/fs/cgroup/freezer")
GROUP = ROOT / "stepkeeper-test-checks"


class Freezer:
    """A control group that freezes who enters it."""

    @staticmethod
    def usable() -> bool:
        return ROOT.is_dir() and os.access(ROOT, os.W_OK)

    @staticmethod
    def members() -> list[int]:
        return [int(pid) for pid in (GROUP / "cgroup.procs").read_text().split()]

    @staticmethod
    def thaw() -> None:
        with contextlib.suppress(OSError):
            (GROUP / "freezer.state").write_text("THAWED")

    def __enter__(self) -> "Freezer":
        GROUP.mkdir(exist_ok=True)
        (GROUP / "freezer.state").write_text("FROZEN")
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.thaw()
        end = time.monotonic() + 10
        while self.members() and time.monotonic() < end:
            time.sleep(0.01)
        GROUP.rmdir()


def _freezing(_: Inputs) -> Outcome:
    if (GROUP / "freezer.state").read_text().strip() != "THAWED":
        (GROUP / "cgroup.procs").write_text(str(os.getpid()))
    return Outcome(ok=True)


def _counting(inputs: Inputs) -> Outcome:
    runs = int(inputs.state.get("runs", 0)) + 1
    return Outcome(ok=True, measured={"runs": runs}, state={"runs": runs})


CHECKS = (
    Check(name="freezing", run=_freezing, period_s=0.2, limit_s=1.0),
    Check(name="counting", run=_counting, period_s=0.2, limit_s=30.0),
)

if __name__ == "__main__":
    checks.CHECKS = CHECKS
    attend(check_host.serve)
