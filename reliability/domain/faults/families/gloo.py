"""What the library of collectives on processors (gloo) prints."""

from reliability.domain.faults.families.rows import (
    AT_THE_ODD_ONE,
    AT_THE_PEER,
    BUG,
    ERROR,
    FOLLOW_UP,
    NETWORK,
    OBSERVE,
    VICTIM,
    family,
    line,
    row,
)
from reliability.domain.faults.words import Origin

ROWS = family(
    "gloo",
    Origin.OUTPUT,
    row(
        "peer-closed",
        *VICTIM,
        "A rank lost the connection to another: a victim, not the cause.",
        AT_THE_PEER,
        line(r"[Cc]onnection closed by peer(?: \[?(?P<peer>[0-9a-fA-F.:]+))?", "onnection closed by peer"),
        line(r"Read error (?:\[(?P<peer>[^\]]{1,64})\])?.{0,40}Connection reset by peer", "Connection reset by peer"),
        "RuntimeError: [/third_party/gloo/gloo/transport/tcp/pair.cc:598] Connection closed by peer [192.0.2.17]:12717",
        "RuntimeError: [../third_party/gloo/gloo/transport/tcp/pair.cc:589] Read error [192.0.2.92]:25266: Connection "
        "reset by peer",
        weight=FOLLOW_UP,
    ),
    row(
        "peer-silent",
        *VICTIM,
        "A peer did not answer in time: hung, slow, or not at the same call.",
        AT_THE_ODD_ONE,
        line(
            r"Timed out waiting (?P<milliseconds>\d+)ms for (?P<what>recv|send) operation to complete",
            "Timed out waiting ",
        ),
        "RuntimeError: [../third_party/gloo/gloo/transport/tcp/unbound_buffer.cc:81] Timed out waiting 1800000ms for "
        "recv operation to complete",
        weight=FOLLOW_UP,
    ),
    row(
        "pair-given-up",
        *VICTIM,
        "This rank gave up waiting and closed its connection.",
        "Look for the first time-out.",
        line(r"Application timeout caused pair closure", "Application timeout caused pair closure"),
        "RuntimeError: Application timeout caused pair closure",
        weight=FOLLOW_UP,
    ),
    row(
        "mesh-incomplete",
        NETWORK,
        OBSERVE,
        ERROR,
        "Not all ranks could be connected at the start.",
        "Check the named peer, then the choice of network interface and the firewall.",
        line(r"Gloo connectFullMesh failed with", "connectFullMesh failed"),
        "RuntimeError: Gloo connectFullMesh failed with [../third_party/gloo/gloo/transport/tcp/pair.cc:144] no error",
        weight=FOLLOW_UP,
    ),
    row(
        "sizes-differ",
        *BUG,
        "Ranks exchanged different sizes.",
        "Correct the program; the restart budget ends the attempts.",
        line(r"op\.preamble\.length <= op\.nbytes", "op.preamble.length"),
        "terminate called after throwing an instance of 'gloo::EnforceNotMet' what(): [enforce fail at "
        "../third_party/gloo/gloo/transport/tcp/pair.cc:446] op.preamble.length <= op.nbytes. 8 vs 4",
    ),
)
