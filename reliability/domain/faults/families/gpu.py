"""What NVIDIA's driver, query tools and health watch say, apart from Xid and SXid."""

from reliability.domain.faults.families.rows import (
    ERROR,
    FAILOVER,
    FATAL,
    HARDWARE,
    OBSERVE,
    RESTART,
    SAME_NODE_AGAIN,
    SOFTWARE,
    THERMAL,
    WARNING,
    family,
    line,
    row,
)
from reliability.domain.faults.words import Origin

DRIVER = family(
    "nvidia-driver",
    Origin.KERNEL,
    row(
        "gpu-init-failed",
        HARDWARE,
        FAILOVER,
        FATAL,
        "The driver could not initialise a GPU.",
        "Reboot; replace the GPU if it is back.",
        line(r"NVRM: (?:GPU (?P<device>[0-9a-fA-F:.]+): )?RmInitAdapter failed", "RmInitAdapter failed"),
        "NVRM: GPU 0000:4d:00.0: RmInitAdapter failed! (0x25:0x65:1457)",
    ),
)

TOOLS = family(
    "nvidia-driver",
    Origin.TOOL,
    row(
        "gpu-lost",
        HARDWARE,
        FAILOVER,
        FATAL,
        "A GPU no longer answers.",
        "Reboot the node; check power and seating of the GPU.",
        line(
            r"(?:Unable to determine the device handle for (?:GPU )?(?P<device>[0-9a-zA-Z:.]+): )?"
            r"GPU is lost\.? +Reboot the system to recover this GPU",
            "GPU is lost",
        ),
        "Unable to determine the device handle for GPU0000:4D:00.0: GPU is lost.  Reboot the system to recover "
        "this GPU",
    ),
    row(
        "driver-mismatch",
        SOFTWARE,
        FAILOVER,
        ERROR,
        "GPU driver and its library differ in version.",
        "Reboot the node or load the matching driver; nothing is broken.",
        line(r"(?:Failed to initialize NVML: )?Driver/library version mismatch", "Driver/library version mismatch"),
        "Failed to initialize NVML: Driver/library version mismatch",
    ),
    row(
        "gpu-missing",
        HARDWARE,
        FAILOVER,
        FATAL,
        "Fewer GPUs are visible than expected.",
        "Reboot the node; check power and seating of the GPU.",
        line(r"No devices were found\s*$", "No devices were found"),
        line(
            r"expected (?P<expected>\d+) GPUs?,? (?:but )?(?:only )?found (?!(?P=expected)\b)(?P<found>\d+)\b"
            r"(?: GPUs?)?\.?\s*$",
            "expected ",
        ),
        "No devices were found",
        "expected 8 GPUs but found 7",
    ),
    row(
        "gpu-remap-failed",
        HARDWARE,
        FAILOVER,
        FATAL,
        "The GPU says that a bad memory row could not be replaced.",
        "Replace the GPU.",
        line(r"\s*Remapping Failure Occurred\s*:\s*Yes\s*$", "Remapping Failure Occurred"),
        "        Remapping Failure Occurred        : Yes",
    ),
    row(
        "gpu-remap-pending",
        HARDWARE,
        OBSERVE,
        WARNING,
        "A bad memory row of the GPU is in use until its next reset.",
        "Reset the GPU before the node serves as a standby.",
        line(r"\s*Pending\s*:\s*Yes\s*$", "Pending  ", "Pending:", "Pending :"),
        "        Pending                           : Yes",
    ),
    row(
        "gpu-hot",
        THERMAL,
        OBSERVE,
        WARNING,
        "The GPU is slowed for heat; the whole job waits for it.",
        "Check cooling; take the node out after a snapshot if it lasts.",
        line(r"\s*HW (?:Thermal )?Slowdown\s*:\s*Active\s*$", "Slowdown"),
        "        HW Thermal Slowdown               : Active",
    ),
    row(
        "gpu-power-brake",
        HARDWARE,
        OBSERVE,
        WARNING,
        "The GPU is slowed by a signal of its power supply.",
        "Check the power of node and rack; take the node out after a snapshot if it lasts.",
        line(r"\s*HW Power Brake Slowdown\s*:\s*Active\s*$", "Power Brake"),
        "        HW Power Brake Slowdown           : Active",
    ),
    row(
        "gpu-sram-errors",
        HARDWARE,
        FAILOVER,
        FATAL,
        "The GPU counts uncorrectable errors of its inner memories.",
        "Reset it; a GPU with more than a few over its life is replaced.",
        line(r"\s*SRAM Uncorrectable\s*:\s*(?P<count>[1-9]\d*)\s*$", "SRAM Uncorrectable"),
        "            SRAM Uncorrectable            : 3",
    ),
)

FABRIC = family(
    "nvidia-driver",
    Origin.OUTPUT,
    row(
        "cuda-fabric",
        SOFTWARE,
        RESTART,
        ERROR,
        "CUDA cannot start: the fabric manager is not running or does not fit the driver.",
        "Restart the fabric manager of the node; reboot it if that does not help.",
        line(r"CUDA error: system not yet initialized", "system not yet initialized"),
        "RuntimeError: CUDA error: system not yet initialized",
        repeat=SAME_NODE_AGAIN,
    ),
)

DCGM = family(
    "nvidia-dcgm",
    Origin.TOOL,
    row(
        "dcgm-uncontained",
        HARDWARE,
        FAILOVER,
        FATAL,
        "The GPU health watch saw a memory error that may have hit any program.",
        "The same fault as xid-95: distrust snapshots taken after it; reset the GPU.",
        line(r"DCGM_FR_UNCONTAINED_ERROR\b", "DCGM_FR_UNCONTAINED_ERROR"),
        line(r"GPU (?:(?P<gpu>\d+) )?had an uncontained error", "had an uncontained error"),
        "GPU had an uncontained error (XID 95) Drain the GPU and reset it or reboot the node.",
        "DCGM_FR_UNCONTAINED_ERROR",
    ),
    row(
        "dcgm-remap-pending",
        HARDWARE,
        FAILOVER,
        ERROR,
        "A diagnostic found uncorrectable GPU memory errors that wait for a reset.",
        "Reset the GPU and run the diagnostic again; replace it if that fails.",
        line(
            r"GPU (?P<gpu>\d+) has uncorrectable memory errors and row\s+remappings are pending",
            "has uncorrectable memory errors",
        ),
        "GPU 5 has uncorrectable memory errors and row remappings are pending",
    ),
    row(
        "dcgm-hot",
        THERMAL,
        OBSERVE,
        WARNING,
        "A diagnostic saw the GPU slowed for heat.",
        "Check cooling before the node serves as a standby.",
        line(r"(?:GPU (?P<gpu>\d+) )?Thermal violations totaling (?P<seconds>[\d.]+)", "Thermal violations totaling"),
        "GPU 2 Thermal violations totaling 9.1 seconds started at 4.2 seconds into the test for GPU 2",
    ),
)

ROWS = (*DRIVER, *TOOLS, *FABRIC, *DCGM)
