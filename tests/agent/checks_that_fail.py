"""A host of checks of which most do not do what they should."""

import os
import sys
import time

from reliability.agent.collectors import check_host, checks
from reliability.agent.collectors.attending import attend
from reliability.agent.collectors.checking import Check, Inputs, Outcome


def _sleeping(_: Inputs) -> Outcome:
    time.sleep(3600)
    return Outcome(ok=True)


def _raising(_: Inputs) -> Outcome:
    raise ValueError("no such thing")


def _crashing(_: Inputs) -> Outcome:
    os.abort()


def _loud(_: Inputs) -> Outcome:
    sys.stdout.write("x" * 100_000)
    sys.stdout.flush()
    return Outcome(ok=True, measured={"said": "all of it"})


def _counting(inputs: Inputs) -> Outcome:
    runs = int(inputs.state.get("runs", 0)) + 1
    return Outcome(ok=True, measured={"runs": runs}, state={"runs": runs})


CHECKS = (
    Check(name="sleeping", run=_sleeping, period_s=0.2, limit_s=0.3),
    Check(name="raising", run=_raising, period_s=0.2, limit_s=5.0),
    Check(name="crashing", run=_crashing, period_s=0.2, limit_s=5.0),
    Check(name="loud", run=_loud, period_s=0.2, limit_s=5.0),
    Check(name="counting", run=_counting, period_s=0.2, limit_s=5.0),
)

if __name__ == "__main__":
    checks.CHECKS = CHECKS
    attend(check_host.serve)
