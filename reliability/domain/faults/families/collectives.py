"""What NVIDIA's library of collectives (NCCL) prints, and PyTorch for it."""

from reliability.domain.faults.families.rows import (
    APPLICATION,
    AT_THE_ODD_ONE,
    AT_THE_PEER,
    BUG,
    ERROR,
    FAILOVER,
    FOLLOW_UP,
    HARDWARE,
    HOLD,
    INFO,
    NETWORK,
    OBSERVE,
    RESTART,
    SAME_NODE_AGAIN,
    SOFT,
    UNKNOWN,
    VICTIM,
    family,
    line,
    row,
)
from reliability.domain.faults.words import Line, Origin

_IB = r"NET/IB ?: (?:\S+ )?Got completion from peer (?P<peer>[^<\s]+)(?:<\d+>)? with (?:status|error)[= ]"
_GOT = "Got completion from peer"


def _told_by_pytorch(words: str) -> Line:
    return line(rf"NCCL error in: \S{{1,200}}, {words}\b", "NCCL error in: ")


ROWS = family(
    "nccl",
    Origin.OUTPUT,
    row(
        "collective-timeout",
        *VICTIM,
        "A collective did not finish in time on this rank.",
        AT_THE_ODD_ONE,
        line(
            r"(?:\[Rank (?P<rank>\d+)\] )?Watchdog caught collective operation timeout: "
            r"WorkNCCL\((?:SeqNum=(?P<seq>\d+), OpType=(?P<op>\w+))?",
            "Watchdog caught collective operation timeout",
        ),
        "[rank3]:[E ProcessGroupNCCL.cpp:607] [Rank 3] Watchdog caught collective operation timeout: "
        "WorkNCCL(SeqNum=912, OpType=ALLREDUCE, NumelIn=466119, NumelOut=466119, Timeout(ms)=600000) ran for 600004 "
        "milliseconds before timing out.",
        weight=FOLLOW_UP,
    ),
    row(
        "collective-progress",
        UNKNOWN,
        OBSERVE,
        INFO,
        "How far the collectives of this rank came.",
        "The rank with the lowest number stayed behind.",
        line(
            r"(?:\[PG (?:ID )?\d+[^\]]{0,60}Rank (?P<rank>\d+)\] )?Exception \(either an error or timeout\) "
            r"detected by "
            r"watchdog at work: \d+, last enqueued NCCL work: (?P<enqueued>-?\d+), last completed NCCL work: "
            r"(?P<completed>-?\d+)",
            "last enqueued NCCL work",
        ),
        line(
            r"last enqueued NCCL work: (?P<enqueued>-?\d+), last completed NCCL work: (?P<completed>-?\d+)",
            "last enqueued NCCL work",
        ),
        "[PG 1 Rank 0] Exception (either an error or timeout) detected by watchdog at work: 912, last enqueued NCCL "
        "work: 914, last completed NCCL work: 911.",
    ),
    row(
        "collective-stuck",
        *VICTIM,
        "The watchdog of the collectives hangs itself.",
        "Look for a GPU code of the same minute; without one the program is restarted.",
        line(
            r"(?:ProcessGroupNCCL's )?watchdog got stuck for (?P<seconds>\d+) seconds without making progress",
            "watchdog got stuck for",
        ),
        "ProcessGroupNCCL's watchdog got stuck for 480 seconds without making progress in monitoring enqueued "
        "collectives.",
        weight=FOLLOW_UP,
    ),
    row(
        "collective-dump",
        *VICTIM,
        "A rank was told that a collective timed out somewhere.",
        "Follow the rank that is named; 'this local rank' was the first to signal.",
        line(
            r"Received a dump signal due to a collective timeout from +(?:this local rank|rank +(?P<peer_rank>\d+))"
            r"(?:.{0,200}Last enqueued NCCL work: (?P<enqueued>-?\d+), last completed NCCL work: "
            r"(?P<completed>-?\d+))?",
            "Received a dump signal",
        ),
        line(r"Observed flight recorder dump signal from another rank", "Observed flight recorder dump signal"),
        "[rank6]:[E ProcessGroupNCCL.cpp:1987] [PG ID 0 PG GUID 0(default_pg) Rank 6] Received a dump signal due to a "
        "collective timeout from  rank 2 and we will try our best to dump the debug info. Last enqueued NCCL work: "
        "5611, last completed NCCL work: 5610.",
        weight=FOLLOW_UP,
    ),
    row(
        "collective-abort",
        *VICTIM,
        "A rank ends itself because a collective failed.",
        AT_THE_ODD_ONE,
        line(
            r"(?:\[Rank (?P<rank>\d+)\] )?To avoid data inconsistency, we are taking the entire process down",
            "To avoid data inconsistency",
        ),
        "[Rank 4] To avoid data inconsistency, we are taking the entire process down.",
        weight=FOLLOW_UP,
    ),
    row(
        "collective-mismatch",
        *BUG,
        "Ranks called different collectives or sizes.",
        "Correct the program; the restart budget ends the attempts.",
        line(r"Detected mismatch between collectives on ranks", "Detected mismatch between collectives"),
        line(r"Mismatched collective detected", "Mismatched collective detected"),
        "RuntimeError: Detected mismatch between collectives on ranks. Rank 1 is running collective: "
        "CollectiveFingerPrint(SequenceNumber=12, OpType=ALLREDUCE",
    ),
    row(
        "nccl-cuda-error",
        *VICTIM,
        "A CUDA call inside the collective library failed.",
        "The CUDA error beside it names the cause.",
        line(r"ncclUnhandledCudaError\b", "ncclUnhandledCudaError"),
        _told_by_pytorch("unhandled cuda error"),
        "ncclUnhandledCudaError: Call to CUDA function failed.",
        weight=FOLLOW_UP,
    ),
    row(
        "nccl-system-error",
        NETWORK,
        OBSERVE,
        ERROR,
        "A system call or another library failed below the collective library; often the peer is gone.",
        "Look at the peer, and at the warning before it: shared memory, sockets or InfiniBand.",
        line(r"ncclSystemError\b", "ncclSystemError"),
        _told_by_pytorch("unhandled system error"),
        "ncclSystemError: System call (e.g. socket, malloc) or external library call failed or device error.",
        weight=FOLLOW_UP,
    ),
    row(
        "nccl-remote-error",
        *VICTIM,
        "A peer of a collective went away.",
        AT_THE_PEER,
        line(r"ncclRemoteError\b", "ncclRemoteError"),
        _told_by_pytorch("remote process exited or there was a network error"),
        "ncclRemoteError: A call failed possibly due to a network error or a remote process exiting prematurely.",
        weight=FOLLOW_UP,
    ),
    row(
        "nccl-internal-error",
        *SOFT,
        "The collective library failed inside.",
        "Restarted in place; on one node again: check that node.",
        line(r"ncclInternalError\b", "ncclInternalError"),
        _told_by_pytorch("internal error"),
        "ncclInternalError: Internal check failed.",
        repeat=SAME_NODE_AGAIN,
    ),
    row(
        "nccl-misused",
        *BUG,
        "The program used the collective library wrongly, or its versions differ between ranks.",
        "Correct the program or its image; the restart budget ends the attempts.",
        line(r"ncclInvalid(?P<what>Usage|Argument)\b", "ncclInvalidUsage", "ncclInvalidArgument"),
        _told_by_pytorch("invalid (?:usage|argument)"),
        "ncclInvalidUsage: This usually reflects invalid usage of NCCL library.",
    ),
    row(
        "gpu-shared",
        APPLICATION,
        HOLD,
        ERROR,
        "Two ranks were given the same GPU.",
        "Correct the job's ranks per node or how the program chooses its GPU.",
        line(
            r"NCCL WARN Duplicate GPU detected : rank (?P<rank>\d+) and rank (?P<peer_rank>\d+) both on CUDA "
            r"device (?P<device>\w+)",
            "Duplicate GPU detected",
        ),
        line(r"Duplicate GPU detected", "Duplicate GPU detected"),
        "NCCL WARN Duplicate GPU detected : rank 1 and rank 0 both on CUDA device 5d000",
    ),
    row(
        "ib-unacknowledged",
        NETWORK,
        OBSERVE,
        ERROR,
        "Packets to a peer were not acknowledged: the path is broken or the peer is gone.",
        "Both ends may report it; the node that is in several pairs is the suspect.",
        line(_IB + r"12\b.{0,120}vendor err 129\b", _GOT),
        "NCCL WARN NET/IB : Got completion from peer 192.0.2.33<38560> with status=12 opcode=0 len=0 vendor err "
        "129 (Recv)",
        weight=FOLLOW_UP,
    ),
    row(
        "ib-flushed",
        *VICTIM,
        "A transfer was thrown away because its connection had failed before.",
        "Look for an earlier code.",
        line(_IB + r"5\b", _GOT),
        "NCCL WARN NET/IB : Got completion from peer 192.0.2.33<38560> with status=5 opcode=0 len=0 vendor err "
        "249 (Recv)",
        weight=FOLLOW_UP,
    ),
    row(
        "ib-protection",
        *SOFT,
        "A transfer touched memory that was not registered for it.",
        "Check the module for direct transfers to GPU memory.",
        line(_IB + r"4\b", _GOT),
        "NCCL WARN NET/IB : Got completion from peer 192.0.2.35<49189> with error 4, opcode 53, len 53, vendor "
        "err 81 (Send)",
    ),
    row(
        "ib-event",
        NETWORK,
        OBSERVE,
        ERROR,
        "A network adapter reported an event of a port or of itself.",
        "If training stops and the port stays away, this node is left.",
        line(r"NCCL WARN NET/IB ?: .{0,80}?Got async (?:fatal )?event ?: (?P<event>.{1,60})", "Got async "),
        "ib_plugin.c:141 NCCL WARN NET/IB : Got async event : port error",
        debounce_s=30.0,
        standing_action=FAILOVER,
    ),
    row(
        "ib-device-missing",
        HARDWARE,
        FAILOVER,
        ERROR,
        "A network adapter that was there is gone.",
        "Check the adapter of the node.",
        line(r"Call to (?P<call>ibv_\w+) failed.{0,60}No such device", "Call to ibv_"),
        "NCCL WARN Call to ibv_open_device failed with error No such device",
    ),
    row(
        "ib-limits",
        *SOFT,
        "The program may not lock enough memory for its network transfers.",
        "Raise the limit of locked memory of the container.",
        line(r"Call to (?P<call>ibv_\w+) failed.{0,60}Cannot allocate memory", "Call to ibv_"),
        "NCCL WARN Call to ibv_reg_mr failed with error Cannot allocate memory",
    ),
    row(
        "ib-call-failed",
        NETWORK,
        RESTART,
        ERROR,
        "A call to the network adapter failed.",
        "Restarted in place; on one node again: check its adapter and cable.",
        line(r"Call to (?P<call>ibv_\w+) failed with error (?!No|Ca)(?P<reason>.{6,60})", "Call to ibv_"),
        "NCCL WARN Call to ibv_modify_qp failed with error Connection timed out",
        repeat=SAME_NODE_AGAIN,
    ),
    row(
        "peer-left",
        *VICTIM,
        "The process at the other end of a connection ended.",
        AT_THE_PEER,
        line(
            r"Connection closed by remote peer(?: (?P<peer>[0-9a-zA-Z.:\-]{2,64}))?", "Connection closed by remote peer"
        ),
        "NCCL WARN socketProgress: Connection closed by remote peer 192.0.2.31<51832>",
        weight=FOLLOW_UP,
    ),
    row(
        "shm-full",
        *SOFT,
        "The shared memory of the container is full.",
        "Raise the job's shm_bytes or clear leaked segments.",
        line(r"Error while creating shared memory segment", "shared memory segment"),
        line(
            r"unable to (?:write to|open|resize|mmap|allocate) .{0,80}\bshm\b.{0,160}No space left on device",
            "No space left on device",
        ),
        line(r"\[Errno 28\] No space left on device: '(?P<path>/dev/shm/[^']{1,200})'", "No space left on device"),
        "NCCL WARN Error while creating shared memory segment /dev/shm/nccl-8eX4sq (size 9637888), error: No "
        "space left "
        "on device (28)",
    ),
)
