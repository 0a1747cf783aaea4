"""Lines whose code is a number in the text: Xid and SXid of the kernel log, and the ends of processes.

A number is only believed when it is complete: a line that was cut in the middle of it could name another code.
"""

import re

from reliability.domain.faults.words import Told, Value

XID_LITERALS = ("Xid (",)
_XID = re.compile(
    r"NVRM: Xid \((?:PCI:)?(?P<device>[0-9a-fA-F:.]{4,20})\): (?P<xid>[0-9]{1,5})(?P<rest>,.*|\s*$)", re.DOTALL
)
_SXID = re.compile(
    r"nvidia-nvswitch(?P<switch>[0-9]+): SXid \((?:PCI:)?(?P<device>[0-9a-fA-F:.]{4,20})\): "
    r"(?P<sxid>[0-9]{5}), (?P<rest>.*)",
    re.DOTALL,
)
_UNIT_XIDS = (144, 145, 146, 149, 150)
_SEVERITY = re.compile(r"\b(?P<severity>Non-?[Ff]atal|Fatal)\b")
_DETAILS = tuple(
    re.compile(pattern)
    for pattern in (
        r"\bpid='?(?P<pid>\d+)",
        r"\bname=(?P<process>[^,\s<>]{1,64})",
        r"\(GPC (?P<gpc>\d+), TPC (?P<tpc>\d+)(?:, SM (?P<sm>\d+))?\)",
        r"\bGPC(?P<gpc>\d+) GPCCLIENT_T(?P<tpc>\d+)_",
        r"\bCh(?:annel)?(?: ID)? (?P<channel>[0-9a-fA-Fx]{4,18})\b",
        r"\b(?:Link|link) (?P<link>\d+)\b",
        r"^, (?P<unit>[A-Z][A-Z0-9_]{2,24}) +(?:Non-?[Ff]atal|Fatal)\b",
        r"\b(?P<origin>XC[01])\b",
        r"recovery action changed from \S+ \((?P<recovery_before>[^)]{1,40})\) to \S+ \((?P<recovery>[^)]{1,40})\)",
    )
)
_CUT_XID_FROM = 18
"""A number at the very end of a line may have lost digits; from 18 on no known code is longer than two of them."""

_ENDS = tuple(
    re.compile(pattern)
    for pattern in (
        r"(?:(?:[Rr]ank|[Pp]rocess|[Ww]orker|[Cc]ontainer|child|task) (?P<rank>\d+|[\w.\-]{1,64}) )?"
        r"exited with (?:exit )?code (?P<exit_code>-?\d{1,3})\b(?!\s+\w)",
        r"failed \(exitcode: (?P<exit_code>-?\d{1,3})\) local_rank: (?P<local_rank>\d+) \(pid: (?P<pid>\d+)\)",
        r"srun: error: (?P<node>[\w.\-]{1,64}): tasks? [\d,\-]{1,64}: Exited with exit code (?P<exit_code>\d{1,3})\b",
        r"(?P<named>Bus error|Segmentation fault|Aborted|Illegal instruction|Floating point exception) \(core dumped\)",
        r"[Rr]ank (?P<rank>\d+) \w+ died(?: during \w+)? \(exit code: (?P<exit_code>-?\d{1,3})\)",
        r"[Rr]ank (?P<rank>\d+) died from signal (?P<signal>\d{1,2})\b",
        r"Signal (?P<signal>\d{1,2}) \(SIG[A-Z]{2,6}\) received by PID (?P<pid>\d+)",
        r"Fatal Python error: (?P<named>Bus error|Segmentation fault|Aborted|Illegal instruction|Floating point "
        r"exception)",
    )
)
_STATE = re.compile(
    r'"OOMKilled": ?(?P<oom>true|false),(?:[^{}"]{0,40}"\w{1,20}": ?[^{},]{1,80},){0,8}'
    r'\s{0,20}"ExitCode": ?(?P<code>\d{1,3})[,}\s]'
)
END_LITERALS = (
    "exited with ",
    "Exited with exit code",
    "(core dumped)",
    "(exitcode: ",
    "(exit code: ",
    "died from signal",
    "received by PID",
    "Fatal Python error",
)
STATE_LITERALS = ('"OOMKilled"',)
_NAMED = {
    "Bus error": 7,
    "Segmentation fault": 11,
    "Aborted": 6,
    "Illegal instruction": 4,
    "Floating point exception": 8,
}


def _values(found: "re.Match[str]") -> dict[str, Value]:
    told = {name: value for name, value in found.groupdict().items() if value is not None}
    return {name: int(value) if value.isdecimal() else value for name, value in told.items()}


def values(found: "re.Match[str]") -> dict[str, Value]:
    """Return the named groups of a match as fields: numbers as numbers."""
    return _values(found)


def _details(rest: str) -> dict[str, Value]:
    fields: dict[str, Value] = {}
    for pattern in _DETAILS:
        found = pattern.search(rest)
        if found is not None:
            fields |= _values(found)
    return fields


def _severity(rest: str, fields: dict[str, Value]) -> str:
    """Note the severity word; return 'fatal', 'nonfatal' or '' when the line has none."""
    found = _SEVERITY.search(rest)
    if found is None:
        return ""
    fields["severity"] = found["severity"]
    return "nonfatal" if found["severity"].lower().startswith("non") else "fatal"


def xid(message: str) -> Told | None:
    """Return the code of an Xid line of the kernel, 'xid-<number>' also for numbers that nobody knows."""
    found = _XID.match(message)
    if found is None:
        return None
    number, rest = int(found["xid"]), found["rest"]
    if not rest.startswith(",") and number < _CUT_XID_FROM:
        return None
    fields: dict[str, Value] = {"device": found["device"].lower(), "xid": number, **_details(rest)}
    word = _severity(rest, fields)
    code = f"xid-{number}"
    if number in _UNIT_XIDS:
        code += {"fatal": "", "nonfatal": "-nonfatal", "": "-unstated"}[word]
    return Told(code=code, fields=fields)


def sxid(message: str) -> Told | None:
    """Return the code of an SXid line of the kernel; the registers of an error are 'sxid-data'."""
    found = _SXID.match(message)
    if found is None:
        return None
    number, rest = int(found["sxid"]), found["rest"]
    fields: dict[str, Value] = {"device": found["device"].lower(), "sxid": number, "switch": int(found["switch"])}
    if rest.startswith("Data "):
        return Told(code="sxid-data", fields=fields)
    fields |= _details(rest)
    passing = _severity(rest, fields) == "nonfatal"
    return Told(code=f"sxid-{number}-nonfatal" if passing else f"sxid-{number}", fields=fields)


def end(text: str) -> tuple[Told, int] | None:
    """Return the end of a process that a launcher tells of, and where in the line it stands."""
    for pattern in _ENDS:
        found = pattern.search(text)
        if found is not None:
            fields = _values(found)
            return Told(code=exit_name(_number(fields)), fields=fields), found.start()
    return None


def _number(fields: dict[str, Value]) -> int:
    if "named" in fields:
        return 128 + _NAMED[str(fields["named"])]
    if "signal" in fields:
        return 128 + int(fields["signal"])
    return plain_exit_code(int(fields["exit_code"]))


def state(text: str) -> Told | None:
    """Return the end that a container engine's own record of a container tells of; None while it runs or ended well."""
    found = _STATE.search(text)
    if found is None or (found["oom"] == "false" and int(found["code"]) == 0):
        return None
    fields: dict[str, Value] = {"oom_killed": found["oom"], "exit_code": int(found["code"])}
    return Told(code="oom" if found["oom"] == "true" else exit_name(int(found["code"])), fields=fields)


def plain_exit_code(exit_code: int) -> int:
    """Return an exit code as 128 + signal where a signal is written as a negative number."""
    return 128 - exit_code if exit_code < 0 else exit_code


EXIT_NUMBERS = frozenset(
    {0, 1, 2, 14, 86, 125, 126, 127, 128, 129, 130, 132, 134, 135, 136, 137, 139, 143, 201, 202, 247, 255}
)


def exit_name(number: int) -> str:
    """Return the fault code of an exit code."""
    return f"exit-{number}" if number in EXIT_NUMBERS else "exit-other"
