"""What Stepkeeper finds by watching how training gets on (docs/progress.md). No line of a log tells of it."""

from dataclasses import replace

from reliability.domain.faults.families.rows import (
    APPLICATION,
    DAY_S,
    ERROR,
    FAILOVER,
    INFO,
    OBSERVE,
    RESTART,
    SOFTWARE,
    UNKNOWN,
    WARNING,
    family,
    row,
)
from reliability.domain.faults.words import Origin, Repeat

HANG_CODES = ("hang", "hang-newcomer", "hang-somewhere")
_SUSPECTED = Repeat(times=3, window_s=DAY_S, place="node", fault_class=UNKNOWN, action=FAILOVER, moves_once=True)
"""That ranks stand still may as well be the program's doing: the node is replaced once a day, and not called bad."""

ROWS = family(
    "stepkeeper",
    Origin.TOOL,
    row(
        "hang",
        SOFTWARE,
        RESTART,
        ERROR,
        "Training stands still, and one node's ranks differ from the others.",
        "See each rank's last step and phase; a stack of the suspect's threads says where it waits.",
        repeat=_SUSPECTED,
    ),
    row(
        "hang-newcomer",
        SOFTWARE,
        RESTART,
        ERROR,
        "Training stands still a short while after this node joined the job.",
        "Look at the node first: its network, its clock, its version of the driver.",
        repeat=replace(_SUSPECTED, times=2),
    ),
    row(
        "hang-somewhere",
        SOFTWARE,
        RESTART,
        ERROR,
        "Training stands still, and no node differs from the others.",
        "Mark collectives and phases in the program (docs/progress.md): then the suspect can be named.",
    ),
    row(
        "progress-again",
        UNKNOWN,
        OBSERVE,
        INFO,
        "What stood still or was slow goes on as usual.",
        "Nothing to do.",
    ),
    row(
        "loss-no-number",
        APPLICATION,
        OBSERVE,
        ERROR,
        "The program reports a loss that is no number.",
        "Look at data and learning rate of that step. To have it restarted from before, set the action to restart in "
        "place: snapshots since then are distrusted.",
    ),
    row(
        "loss-spike",
        APPLICATION,
        OBSERVE,
        WARNING,
        "The loss jumped far above what was usual.",
        "Watch whether it comes down again; else go back to a snapshot before it, or skip those batches.",
    ),
    row(
        "straggler",
        UNKNOWN,
        OBSERVE,
        WARNING,
        "A rank computes longer than the others, which wait for it in every step.",
        "Compare its clocks, temperature and neighbours with those of the others. Nothing is moved by itself.",
    ),
    row(
        "throughput-drop",
        UNKNOWN,
        OBSERVE,
        WARNING,
        "Training is slower than it was in the same attempt.",
        "Look for a straggler, a slow store of data, a throttled device or another program on the nodes.",
    ),
)
