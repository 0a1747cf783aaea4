"""Which fault code does a line of the kernel log, or the end of a rank, stand for?

Kernel lines are matched one by one. For the end of a rank its last output is asked first, because the number alone
hides the cause: most exit codes 1 and 134 of a broken job are victims of another rank.
"""

import re

from reliability.errors import InvalidInput

_XID = re.compile(r"NVRM: Xid \((?:PCI:)?[0-9a-fA-F:.]+\): (\d+)")
_NONFATAL = re.compile(r"\bNon-?fatal\b", re.IGNORECASE)
_XIDS_WITH_SEVERITY = ("144", "145", "146")

Patterns = tuple[tuple[str, re.Pattern[str]], ...]


def _compiled(*rows: tuple[str, str]) -> Patterns:
    return tuple((code, re.compile(pattern)) for code, pattern in rows)


KERNEL_LINES = _compiled(
    ("oom", r"oom-kill:constraint=CONSTRAINT_MEMCG,|Memory cgroup out of memory: Killed process \d+"),
    ("kernel-oom-host", r"oom-kill:constraint=CONSTRAINT_NONE,|(?<!cgroup )[Oo]ut of memory: Killed process \d+"),
    ("kernel-panic", r"Kernel [Pp]anic - not syncing"),
    # Bit 61 of the bank's status says that the error was not corrected: it shows in the first hexadecimal digit.
    ("machine-check", r"Machine Check: \S+ Bank \d+: [2367abef][0-9a-f]{15}\b"),
    ("machine-check", r"\[Hardware Error\]: event severity: (fatal|recoverable)"),
    ("machine-check-logged", r"Machine Check: \S+ Bank \d+: |Machine check events logged|event severity: corrected"),
    ("memory-uncorrected", r"EDAC \S+: \d+ UE |Memory failure: 0x[0-9a-f]+: recovery action for .*: (Failed|Ignored)"),
    ("memory-corrected", r"EDAC \S+: \d+ CE "),
    ("pcie-fatal", r"AER: (Multiple )?Uncorrect(ed|able) \(Fatal\) error"),
    ("pcie-corrected", r"AER: (Multiple )?Correct(ed|able) error"),
    ("pcie-nonfatal", r"AER: (Multiple )?Uncorrect(ed|able) \(Non-Fatal\) error"),
    ("pcie-gone", r"pciehp: Slot\([^)]*\): (Link Down|Card not present)"),
    ("disk-lost", r"nvme nvme\d+: (Disabling device after reset failure|Removing after probe failure)"),
    ("disk-lost", r"no available path - failing I/O"),
    ("filesystem-read-only", r"Remounting filesystem read-only|XFS \(\S+\): .*[Ss]hutting down filesystem"),
    ("disk-error", r"I/O error, dev \S+, (sector|logical block) \d+|critical medium error, dev "),
    ("disk-error", r"EXT4-fs error \(device "),
    ("disk-error", r"Buffer I/O error on dev \S+|nvme nvme\d+: I/O .* timeout, (reset controller|aborting)"),
    ("nfs-silent", r"nfs: server \S+ not responding"),
    ("task-blocked", r"task [^ ]+:\d+ blocked for more than \d+ seconds"),
    ("soft-lockup", r"soft lockup - CPU#\d+ stuck for \d+s|rcu: INFO: rcu_\w+ (self-detected stall|detected)"),
    ("hard-lockup", r"Watchdog detected hard LOCKUP on cpu"),
    ("cpu-throttled", r"temperature (is )?above threshold, cpu clock (is )?throttled"),
    ("nic-dead", r"device's health compromised - reached miss count"),
    ("link-down", r"mlx5_core \S+ (\S+: )?Link down|NIC Link is Down|Port module event: module \d+, Cable unplugged"),
    ("gpu-init-failed", r"NVRM: .*RmInitAdapter failed"),
    # The all-clear line says "no uncorrectable hardware errors": a count above 0 is required.
    ("gpu-uncorrected", r"amdgpu: (.*\b)?[1-9]\d* (new )?uncorrectable hardware errors detected"),
    ("gpu-reset-failed", r"amdgpu: GPU reset end with ret = -\d+"),
)

_OWN_ERRORS = _compiled(
    ("shm-full", r"\bshm\b.*No space left|creating shared memory segment|killed by signal: Bus error"),
    ("exit-disk-full", r"No space left on device|os error 28|Disk quota exceeded"),
    ("oom-app", r"CUDA out of memory|OutOfMemoryError|CUBLAS_STATUS_ALLOC_FAILED|killed by signal: Killed"),
    ("oom-app", r"(?m:^)\S*MemoryError\b"),
    ("cuda-ecc", r"uncorrectable ECC error encountered"),
    ("cuda-peer-access", r"invalid access of peer GPU memory over nvlink or a hardware error"),
    ("cuda-illegal-access", r"an illegal memory access was encountered"),
    ("cuda-assert", r"device-side assert triggered"),
    ("driver-mismatch", r"Driver/library version mismatch"),
    ("gpu-missing", r"No devices were found|expected \d+ GPUs?,? (?:but )?found \d+|GPU is lost"),
    ("collective-mismatch", r"[Mm]ismatch(ed)? (between )?collectives?\b|op\.preamble\.length <= op\.nbytes"),
    ("address-in-use", r"Address already in use|EADDRINUSE"),
)
"""What only the rank itself can have met: it outranks any sign that a peer went away."""

_VICTIM_SIGNS = _compiled(
    ("peer-closed", r"[Cc]onnection (was )?closed by (remote )?peer|[Cc]onnection reset by peer|Broken pipe"),
    ("peer-closed", r"ConnectionResetError|ConnectionAbortedError|BrokenPipeError|EOFError: peer|peer (has )?closed"),
    ("peer-closed", r"ncclRemoteError|Application timeout caused pair closure|gloo.*(Read|Write) error"),
    ("peer-closed", r"ConnectionRefusedError|[Cc]onnection refused"),
    ("peer-closed", r"The connection to the C10d store has failed|RendezvousConnectionError|RendezvousClosedError"),
    ("collective-timeout", r"Watchdog caught collective operation timeout|Timed out waiting \d+ms for (recv|send)"),
    ("collective-timeout", r"dump signal|To avoid data inconsistency, we are taking the entire process down"),
)
_NUMBERS = frozenset({1, 2, 125, 128, 129, 130, 132, 134, 135, 136, 137, 139, 143})
_OUR_OWN_NUMBERS = frozenset({86, 126, 127})
"""Numbers that mean one thing alone, so that no output can explain them better."""


def _first(patterns: Patterns, text: str) -> str | None:
    return next((code for code, pattern in patterns if pattern.search(text)), None)


def match_line(line: str) -> str | None:
    """Return the fault code of one kernel log line, None when it says nothing of a fault.

    An Xid gives 'xid-<number>' also for numbers that the table does not know.
    """
    xid = _XID.search(line)
    if xid is None:
        return _first(KERNEL_LINES, line)
    number = xid.group(1)
    passing = number in _XIDS_WITH_SEVERITY and _NONFATAL.search(line) is not None
    return f"xid-{number}-nonfatal" if passing else f"xid-{number}"


def code_for_exit(exit_code: int, tail: str, *, oom_killed: bool = False) -> str:
    """Return the fault code for a rank that ended with `exit_code` after writing `tail`.

    `exit_code` is 128 + signal for a signal (the negative form is understood too). `oom_killed` is the runtime's own
    word. The rank's own error outranks the signs of a lost peer, these outrank the runtime's flag, the number comes
    last. Raises InvalidInput for 0: a good end is no fault.
    """
    if exit_code == 0:
        raise InvalidInput("exit_code", "0 is a good end, not a fault", hint="Ask only for ranks that failed.")
    number = 128 - exit_code if exit_code < 0 else exit_code
    if number in _OUR_OWN_NUMBERS:
        return f"exit-{number}"
    told = _first(_OWN_ERRORS, tail) or _first(_VICTIM_SIGNS, tail)
    if told is not None:
        return told
    if oom_killed:
        return "oom"
    return f"exit-{number}" if number in _NUMBERS else "exit-other"
