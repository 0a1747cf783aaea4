"""Accelerators of other makes: AMD, Ascend, MetaX."""

from reliability.domain.faults.families.rows import (
    APPLICATION,
    ERROR,
    FAILOVER,
    FATAL,
    FOLLOW_UP,
    HARDWARE,
    NETWORK,
    OBSERVE,
    RESTART,
    SAME_GPU_AGAIN,
    SAME_NODE_AGAIN,
    SOFTWARE,
    UNKNOWN,
    WARNING,
    family,
    line,
    row,
)
from reliability.domain.faults.words import Origin

_AMD = r"(?:amdgpu (?P<device>[0-9a-f:.]+): )?amdgpu: "

AMD = family(
    "amd-gpu",
    Origin.KERNEL,
    # The all-clear line says "no uncorrectable hardware errors": a count above 0 is required.
    row(
        "gpu-uncorrected",
        HARDWARE,
        FAILOVER,
        FATAL,
        "The GPU counts uncorrectable memory or cache errors.",
        "Reset the GPU; replace it if memory is hit again.",
        line(
            _AMD + r"(?:socket: \d+,? .{0,40})?(?P<count>[1-9]\d*) (?:new )?uncorrectable hardware errors "
            r"detected in (?P<block>\w+) block",
            "uncorrectable hardware errors",
        ),
        "amdgpu 0000:1a:00.0: amdgpu: 3 uncorrectable hardware errors detected in umc block",
    ),
    row(
        "gpu-corrected",
        HARDWARE,
        OBSERVE,
        WARNING,
        "The GPU corrected memory or cache errors.",
        "Nothing at once; look closer if the rate rises.",
        line(
            _AMD + r"(?:socket: \d+,? .{0,40})?(?P<count>[1-9]\d*) (?:new )?correctable hardware errors detected",
            " correctable hardware errors",
        ),
        "amdgpu 0000:1a:00.0: amdgpu: 1 correctable hardware errors detected in gfx block",
    ),
    row(
        "gpu-ring-timeout",
        SOFTWARE,
        RESTART,
        ERROR,
        "A queue of the GPU stopped.",
        "Restarted in place; reset the GPU if it is back.",
        line(
            r"(?:amdgpu (?P<device>[0-9a-f:.]+): amdgpu: |\[drm:amdgpu_job_timedout[^\]]*\]\]? )?(?:\*ERROR\* )?"
            r"ring (?P<ring>\S+) timeout, signaled seq=\d+, emitted seq=\d+",
            " timeout, signaled seq=",
        ),
        "[drm:amdgpu_job_timedout [amdgpu]] *ERROR* ring sdma1 timeout, signaled seq=90210, emitted seq=90212",
        repeat=SAME_NODE_AGAIN,
    ),
    row(
        "gpu-reset-begun",
        HARDWARE,
        RESTART,
        ERROR,
        "The driver resets a GPU; all GPUs that are linked with it may be reset too.",
        "Their programs end; look at the GPU if it is back.",
        line(_AMD + r"GPU reset begin", "GPU reset begin"),
        "amdgpu 0000:2c:00.0: amdgpu: GPU reset begin!",
        repeat=SAME_GPU_AGAIN,
    ),
    row(
        "gpu-reset-failed",
        HARDWARE,
        FAILOVER,
        FATAL,
        "The driver could not reset the GPU.",
        "Reboot the node before it serves again.",
        line(_AMD + r"GPU reset end with ret = (?P<result>-\d+)", "GPU reset end with ret"),
        "amdgpu 0000:2c:00.0: amdgpu: GPU reset end with ret = -110",
    ),
    row(
        "gpu-page-fault",
        APPLICATION,
        RESTART,
        ERROR,
        "A program touched an unmapped GPU address.",
        "Correct the program.",
        line(_AMD + r"\[(?P<hub>\w+hub\d*)\] (?:no-retry )?page fault", "page fault"),
        "amdgpu 0000:2c:00.0: amdgpu: [gfxhub0] no-retry page fault (src_id:0 ring:24 vmid:8 pasid:32771)",
    ),
)


def _of_npu(number: int) -> tuple[str, str]:
    return (
        rf"(?:(?:NPU (?:error|warning)|[\w ]{{3,60}} failed|\w{{4,64}}), )?error code is (?P<number>{number})\b",
        f"error code is {number}",
    )


ASCEND = family(
    "ascend-npu",
    Origin.OUTPUT,
    row(
        "ascend-507035",
        HARDWARE,
        FAILOVER,
        FATAL,
        "The accelerator raised an exception while it ran a program.",
        "Check the accelerator before the node serves again.",
        line(*_of_npu(507035)),
        "RuntimeError: ACL stream synchronize failed, error code is 507035",
    ),
    row(
        "ascend-507046",
        UNKNOWN,
        OBSERVE,
        WARNING,
        "A stream of the accelerator did not finish in time.",
        "Look for the rank that stayed behind, then at the network.",
        line(*_of_npu(507046)),
        "W NPUStream.cpp:409] Warning: NPU warning, error code is 507046",
        weight=FOLLOW_UP,
    ),
    row(
        "ascend-507048",
        UNKNOWN,
        OBSERVE,
        WARNING,
        "A communication task of the accelerator did not finish in time.",
        "Look for the rank that stayed behind.",
        line(*_of_npu(507048)),
        "AclrtSynchronizeDeviceWithTimeout, error code is 507048",
        weight=FOLLOW_UP,
    ),
    row(
        "ascend-107020",
        UNKNOWN,
        OBSERVE,
        WARNING,
        "A task of the accelerator did not finish in time.",
        "Look for the rank that stayed behind.",
        line(*_of_npu(107020)),
        "[W NPUStream.cpp:365] Warning: NPU warning, error code is 107020",
        weight=FOLLOW_UP,
    ),
    row(
        "ascend-ei0002",
        UNKNOWN,
        OBSERVE,
        WARNING,
        "A collective of the accelerators did not finish in time.",
        "Another accelerator failed or is slow: look for the rank with an earlier error.",
        line(
            r"EI0002: .{0,120}Notify register times out(?:.{0,200}remote rank \[(?P<peer_rank>\d+)\])?",
            "Notify register times out",
        ),
        "EI0002: The wait execution of the Notify register times out. Reason: no record from remote rank [3].",
        weight=FOLLOW_UP,
    ),
    row(
        "ascend-ei0006",
        NETWORK,
        OBSERVE,
        WARNING,
        "Two accelerators could not connect in time.",
        "Check the remote rank first, then the network.",
        line(r"EI0006\b", "EI0006"),
        line(r"Getting socket times out", "Getting socket times out"),
        "EI0006: Getting socket times out. Reason: Remote Rank did not send the data in time.",
        weight=FOLLOW_UP,
    ),
)

METAX = family(
    "metax-gpu",
    Origin.KERNEL,
    row(
        "metax-error",
        UNKNOWN,
        OBSERVE,
        WARNING,
        "The driver of a MetaX accelerator reports an error.",
        "Look the named part up in the maker's list.",
        line(
            r"(?P<module>METAX|MXCD|MXGVM)\.(?P<device>B[0-9a-fA-F]+)\.(?P<part>\w+)\.ERROR\b",
            "METAX.B",
            "MXCD.B",
            "MXGVM.B",
        ),
        "METAX.B10300.ATU.ERROR hwip DMAW0 fault code(7) perm code: 2",
    ),
)

ROWS = (*AMD, *ASCEND, *METAX)
