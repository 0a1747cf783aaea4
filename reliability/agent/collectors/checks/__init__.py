"""Checks of a node: each looks at one thing again and again, and says whether it is well (docs/checks.md)."""

from reliability.agent.collectors.checking import Check
from reliability.agent.collectors.checks import (
    clock_skew,
    disks,
    ecc,
    file_servers,
    gpus,
    infiniband,
    links,
    memory,
    shared_memory,
    temperatures,
    tiers,
)
from reliability.agent.collectors.checks.asked import runs

CHECKS: tuple[Check, ...] = (
    Check(name="tiers", run=runs(tiers.look), period_s=30, limit_s=15, options=tiers.OPTIONS),
    Check(name="disks", run=runs(disks.look), period_s=15, options=disks.OPTIONS),
    Check(name="file_servers", run=runs(file_servers.look), period_s=20, limit_s=12, options=file_servers.OPTIONS),
    Check(name="memory", run=runs(memory.look), period_s=15, options=memory.OPTIONS),
    Check(name="shared_memory", run=runs(shared_memory.look), period_s=15, options=shared_memory.OPTIONS),
    Check(name="ecc", run=runs(ecc.look), period_s=30, options=ecc.OPTIONS),
    Check(name="links", run=runs(links.look), period_s=10, options=links.OPTIONS),
    Check(name="infiniband", run=runs(infiniband.look), period_s=10, options=infiniband.OPTIONS),
    Check(name="gpus", run=runs(gpus.look), period_s=30, limit_s=20, options=gpus.OPTIONS),
    Check(name="temperatures", run=runs(temperatures.look), period_s=30, options=temperatures.OPTIONS),
    Check(name="clock", run=runs(clock_skew.look), period_s=5, options=clock_skew.OPTIONS),
)
"""All checks, in the order in which they first run."""
