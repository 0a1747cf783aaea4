"""What training programs print: PyTorch, CUDA, numbers that broke, and what schedulers say of them."""

from reliability.domain.faults.families.rows import (
    BUG,
    ERROR,
    FAILOVER,
    FATAL,
    FOLLOW_UP,
    HARDWARE,
    NETWORK,
    OBSERVE,
    RESTART,
    SAME_NODE_AGAIN,
    SOFT,
    SOFTWARE,
    UNEXPLAINED,
    UNKNOWN,
    VICTIM,
    WARNING,
    family,
    line,
    row,
)
from reliability.domain.faults.words import Origin

PYTORCH = family(
    "pytorch",
    Origin.OUTPUT,
    row(
        "rendezvous-incomplete",
        *VICTIM,
        "Not all nodes came to the start of the program.",
        "The nodes that are missing are the suspects.",
        line(
            r"Timed out after (?P<seconds>\d+) seconds waiting for clients\. (?P<joined>\d+)/(?P<expected>\d+) "
            r"clients joined",
            "seconds waiting for clients",
        ),
        "torch.distributed.DistStoreError: Timed out after 601 seconds waiting for clients. 3/4 clients joined.",
        weight=FOLLOW_UP,
    ),
    row(
        "store-lost",
        *VICTIM,
        "The rank that all others meet at cannot be reached.",
        "Look at the node of rank 0 first.",
        line(
            r"(?:\S*RendezvousConnectionError\b)|The connection to the C10d store has failed",
            "RendezvousConnectionError",
            "C10d store has failed",
        ),
        "torch.distributed.elastic.rendezvous.api.RendezvousConnectionError: The connection to the C10d store "
        "has failed.",
        weight=FOLLOW_UP,
    ),
    row(
        "rendezvous-closed",
        *SOFT,
        "The meeting of the ranks was closed because one left.",
        "All ranks are started again.",
        line(r"\S*RendezvousClosedError\b", "RendezvousClosedError"),
        "torch.distributed.elastic.rendezvous.api.RendezvousClosedError",
    ),
    row(
        "connect-failed",
        NETWORK,
        OBSERVE,
        ERROR,
        "A rank could not reach another one.",
        "Check the peer first, then the address: after a restart it may be an old one.",
        line(
            r"[Tt]he client socket has timed out after .{1,80}\((?P<peer>[^,)]{1,80}), (?P<port>\d+)\)",
            "client socket has timed out after",
        ),
        line(
            r"(?:client socket has timed out after|[Tt]he client socket has failed to connect to|Failed to "
            r"connect to) .{0,80}\d",
            "Failed to connect to",
            "client socket has",
        ),
        "The client socket has timed out after 60s while trying to connect to (192.0.2.11, 29500).",
        weight=FOLLOW_UP,
    ),
    row(
        "address-in-use",
        *SOFT,
        "A port was still held by an old process.",
        "Find and end the old process if it repeats.",
        line(
            r"[Tt]he server socket has failed to (?:listen|bind).{0,300}(?:EADDRINUSE|already in use)",
            "server socket has failed",
        ),
        line(r"(?:\[Errno 98\] )?Address already in use\b", "Address already in use"),
        line(r"(?:\[Errno 98\] )?EADDRINUSE\b", "EADDRINUSE"),
        "RuntimeError: The server socket has failed to listen on any local network address. EADDRINUSE, address "
        "already "
        "in use",
    ),
    row(
        "loader-bus-error",
        *SOFT,
        "A process that loads data died on full shared memory.",
        "Raise the job's shm_bytes or clear leaked segments.",
        line(r"DataLoader worker \(pid[^)]{0,40}\) is killed by signal: Bus error", "is killed by signal: Bus error"),
        "RuntimeError: DataLoader worker (pid 411) is killed by signal: Bus error.",
    ),
    row(
        "oom-app",
        *BUG,
        "The program ran out of memory and said so.",
        "Use a smaller batch or more memory; just after a restart, look for a leftover process.",
        line(r"DataLoader worker \(pid[^)]{0,40}\) is killed by signal: Killed", "is killed by signal: Killed"),
        line(r"CUDA out of memory\. Tried to allocate (?P<wanted>[\d.]+ \w+)", "CUDA out of memory"),
        line(r"(?:torch\.(?:cuda\.)?)?OutOfMemoryError\b", "OutOfMemoryError"),
        line(r"CUBLAS_STATUS_ALLOC_FAILED\b", "CUBLAS_STATUS_ALLOC_FAILED"),
        line(r"(?:CUDA error: )?CUBLAS_STATUS_ALLOC_FAILED\b", "CUBLAS_STATUS_ALLOC_FAILED"),
        line(r"\S*MemoryError\b", "MemoryError"),
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of "
        "79.10 GiB",
        "RuntimeError: DataLoader worker (pid 8188) is killed by signal: Killed.",
        "RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
    ),
)

CUDA = family(
    "cuda",
    Origin.OUTPUT,
    row(
        "cuda-ecc",
        HARDWARE,
        FAILOVER,
        FATAL,
        "The program hit an uncorrectable GPU memory error.",
        "Reset the GPU; replace it if the error is back.",
        line(r"CUDA error: uncorrectable ECC error encountered", "uncorrectable ECC error"),
        "RuntimeError: CUDA error: uncorrectable ECC error encountered",
    ),
    row(
        "cuda-illegal-access",
        *BUG,
        "A GPU kernel touched a bad address.",
        "Correct the kernel; on one GPU under several jobs: run its diagnostics.",
        line(r"CUDA error: an illegal memory access was encountered", "an illegal memory access"),
        "RuntimeError: CUDA error: an illegal memory access was encountered",
    ),
    row(
        "cuda-assert",
        *BUG,
        "A GPU kernel failed an assertion, often a bad index in the data.",
        "At the same step again: look at that batch.",
        line(r"CUDA error: device-side assert triggered", "device-side assert triggered"),
        "RuntimeError: CUDA error: device-side assert triggered",
    ),
    row(
        "cuda-launch-failure",
        UNKNOWN,
        OBSERVE,
        ERROR,
        "A GPU kernel crashed without saying why.",
        "Look for the GPU code of that minute in the kernel log.",
        line(r"CUDA error: unspecified launch failure", "unspecified launch failure"),
        "RuntimeError: CUDA error: unspecified launch failure",
        weight=UNEXPLAINED,
    ),
    row(
        "cuda-peer-access",
        HARDWARE,
        FAILOVER,
        FATAL,
        "Access to the memory of a peer GPU failed in hardware.",
        "Check the GPU links of the node.",
        line(
            r"CUDA error: invalid access of peer GPU memory over nvlink or a hardware error",
            "peer GPU memory over nvlink",
        ),
        "RuntimeError: CUDA error: invalid access of peer GPU memory over nvlink or a hardware error",
    ),
    row(
        "cuda-unknown",
        UNKNOWN,
        OBSERVE,
        ERROR,
        "The GPU driver gave no reason for an error.",
        "Look for the GPU code of that minute; on one node again: check its GPUs.",
        line(r"CUDA error: unknown error", "CUDA error: unknown error"),
        "what():  CUDA error: unknown error",
        weight=UNEXPLAINED,
        repeat=SAME_NODE_AGAIN,
    ),
)

_NUMBER = r"(?:nan|-?inf(?:inity)?)"
_SPELLED = (" nan", "=nan", ":nan", "NaN", "NAN", "=inf", ":inf", "-inf", ": inf", "= inf", "loss inf", "norm inf")
_LOSS = (
    r"\b(?:\w+_|(?:lm|train|training|val|validation|eval|total|mean|avg|batch|local|global|aux) )?"
    r"(?:loss|grad(?:ient)?(?:[_ ]norm)?)"
)

TRAINING = family(
    "training",
    Origin.OUTPUT,
    row(
        "not-a-number",
        UNKNOWN,
        RESTART,
        ERROR,
        "Loss or gradients are no numbers any more.",
        "After the same restore again: distrust the snapshot; on one node only: check it for silent corruption.",
        line(rf"(?i:{_LOSS}\s*[=:]\s*{_NUMBER})(?![\w-])", *_SPELLED),
        line(rf"(?i:{_LOSS}\s+{_NUMBER})(?=\s*$|[,;|)\]]|\s+[\w/]+\s*[=: ]\s*[-+]?[\d.])", *_SPELLED),
        line(
            r"\{(?:['\"][\w/]{1,40}['\"]: [-+\d.eE]{1,24}, ){0,20}['\"](?:\w{1,32}_)?(?:loss|grad_norm)['\"]: "
            r"(?:nan|NaN|-?inf|-?Infinity)\b",
            *_SPELLED,
        ),
        line(r"found N[aA]N in (?:local )?forward loss", "in forward loss", "in local forward loss"),
        line(
            r"Rank (?P<rank>\d+), node \S+, device \d+, iteration (?P<step>\d+): Unexpected result nan",
            "Unexpected result nan",
        ),
        "step 40 | loss: nan | lr 0.0003",
        "RuntimeError: Rank 5, node N, device 1, iteration 303: Unexpected result nan (message='found NaN in local "
        "forward loss calculation')",
    ),
    row(
        "time-limit",
        SOFTWARE,
        OBSERVE,
        WARNING,
        "The scheduler's time for the job is over.",
        "No fault: the job goes on in its next allocation.",
        line(r"\*\*\* (?:STEP|JOB) (?P<job>[\w.]+) .{0,120}DUE TO TIME LIMIT", "DUE TO TIME LIMIT"),
        "slurmstepd: error: *** STEP 4321.0 CANCELLED AT 2026-01-01T00:00:00 DUE TO TIME LIMIT ***",
    ),
    row(
        "scheduler-node-lost",
        HARDWARE,
        FAILOVER,
        FATAL,
        "The scheduler saw a node go away.",
        "Look at that node's power, network and console.",
        line(r"srun: error: Node failure on (?P<node>[^\s,]+)", "Node failure on "),
        line(r"\*\*\* (?:STEP|JOB) (?P<job>[\w.]+) .{0,120}DUE TO NODE FAILURE", "DUE TO NODE FAILURE"),
        line(r"srun: Force Terminated (?:job )?(?P<job>[\w.]+)", "Force Terminated"),
        line(r"(?:JobState|State)=NODE_FAIL\b", "NODE_FAIL"),
        "srun: error: Node failure on node-07",
        "slurmstepd: error: *** JOB 77 ON node-07 CANCELLED DUE TO NODE FAILURE, SEE SLURMCTLD LOG FOR DETAILS ***",
    ),
)

ROWS = (*PYTORCH, *CUDA, *TRAINING)
