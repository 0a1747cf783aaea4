"""What does a raw line say, and who can have said it? Control bytes are taken off, and what loggers put in front.

A kernel's message must follow at once after what the system's log puts before it; a program's error may follow levels,
times, ranks and names of files or exceptions, but no sentence. So text that merely speaks of a fault is no fault.
Every check is linear in the length of the line, and only the first JUDGED characters count.
"""

import re

JUDGED = 4096
"""Characters of a line, or of its part behind a carriage return, that are looked at."""
PARTS = 8
"""Parts of a line between carriage returns that are looked at: progress bars write thousands."""
_ANSI = re.compile(rb"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b\n]{0,256}(?:\x07|\x1b\\)?|[@-Z\\^_])")
_CONTROLS = bytes(code for code in range(32) if code not in b"\t\n\r") + b"\x7f"
_TIME = r"(?:[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d(?:\.\d+)?|\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d[\d.,:+\-Z]{0,16})"
_KERNEL = re.compile(
    r"(?:<\d{1,3}>)?(?:\d{1,3},\d+,\d+,[^;\s]{0,80};)?"
    rf"(?:{_TIME}\s+)?(?:kern\s{{0,4}}:\w{{1,8}}\s{{0,4}}:\s?)?(?:(?:[\w.\-]{{1,64}}\s+)?kernel(?:\[\d+\])?:\s?)?"
    r"(?:\[(?:\s*\d+\.\d+|[A-Z][a-z]{2} [A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d \d{4})\]\s?)?(?:\[\s*[TC]\d+\]\s?)?"
)
_SYSLOG = re.compile(rf'\s*(?:{_TIME}\s+[\w.\-]{{1,64}} [\w.\-/@]{{1,64}}\[\d+\]: |\{{"(?:log|msg|message)": ?")')
_GROUPS = re.compile(r"\[[^\[\]]{0,160}\]:?|\([^()]{0,120}\)")
_THROWN = re.compile(r"terminate called after throwing an instance of '[^']{1,120}'|\bwhat\(\):")
_TOKEN = re.compile(
    r"[\w.\-/~+@<>]{1,160}(?::\d+)*:|[\w.\-/]{1,120}(?::\d+)+\]?|\.{3}|[\d.,:+\-/TZ]{1,40}|[EWFI]\d{4}"
    r"|NCCL|DEBUG|INFO|WARN|WARNING|ERROR|Error|FATAL|CRITICAL|[EWFI]|[|\-*>]|stdout|stderr|[Rr]ank"
)
_TOKENS = 16
PREFIX = 512
"""Characters that may stand before an error of a program."""
_METRIC = re.compile(
    r"[\w/\-.()]{1,24}(?: [\w/\-.()]{1,24}){0,2}[:= ]\s{0,4}[-+]?\d[\d.eE+\-/%]{0,24}(?: ?(?:ms|s|[KMGT]i?B|%))?"
)


def cleaned(raw: bytes) -> bytes:
    """Return bytes without colours and control bytes; tabs, line ends and carriage returns stay."""
    plain = _ANSI.sub(b"", raw) if b"\x1b" in raw else raw
    return plain.translate(None, _CONTROLS)


def parts(line: bytes) -> list[str]:
    """Return what is looked at of a line: its last parts between carriage returns, each at most JUDGED characters."""
    split = line.split(b"\r") if b"\r" in line else [line]
    last = [part for part in split if part][-PARTS:]
    return [part[:JUDGED].decode("utf-8", "replace") for part in last]


def kernel_message(text: str) -> str:
    """Return the message of a kernel line: without priority, time, host and the word kernel."""
    found = _KERNEL.match(text)
    return text[found.end() :] if found else text


def may_follow(before: str) -> bool:
    """Return whether an error of a program may stand behind this text: levels, times, names, but no sentence."""
    if not before or before.isspace():
        return True
    if len(before) > PREFIX:
        return False
    left = _SYSLOG.sub("", before, count=1)
    left = _GROUPS.sub(" ", _GROUPS.sub(" ", _THROWN.sub(" ", left)))
    tokens = left.split()
    return len(tokens) <= _TOKENS and all(_TOKEN.fullmatch(token) for token in tokens)


def may_follow_metrics(before: str) -> bool:
    """Return whether a number of training may stand behind this text: other numbers with names, loggers' marks."""
    return len(before) <= PREFIX and all(_metric(chunk.strip()) for chunk in re.split(r"[|,;]", before))


def _metric(chunk: str) -> bool:
    if not chunk or _METRIC.fullmatch(chunk) or may_follow(chunk):
        return True
    front, _, named = chunk.rpartition(": ")
    return may_follow(f"{front}:") and _METRIC.fullmatch(named) is not None
