"""Under which code and device does something come in that a monitor names in its own words?"""

import re
from collections.abc import Mapping

from reliability.domain.faults import Matcher
from reliability.domain.faults.words import Value

_NO_LETTERS = re.compile(r"[^a-z0-9]+")
_WORDS = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_PCI = re.compile(r"(?:PCI:)?(?:[0-9a-fA-F]{0,4}?)([0-9a-fA-F]{4}):([0-9a-fA-F]{2}):([0-9a-fA-F]{2})(?:\.[0-7])?")
_XID = re.compile(r"\b(?P<kind>(?a:s?xid))\b\D{0,12}(?P<number>[0-9]{1,5})\b(?!\.\d)", re.IGNORECASE)
_DEVICE_IN = re.compile(r"\bPCI:([0-9a-fA-F]{4}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2})\b")
_XID_NUMBER = re.compile(r"[0-9]{1,5}")
LONGEST_CODE = 64
MOST_XID = 99_999
"""SXids have five digits; 0 stands for none."""

DETECTOR_REASONS: Mapping[str, str] = {
    "OOMKilling": "kernel-oom",
    "TaskHung": "task-blocked",
    "DockerHung": "task-blocked",
    "Ext4Error": "filesystem-damaged",
    "IOError": "disk-error",
    "MemoryReadError": "memory-corrected",
    "FilesystemIsReadOnly": "filesystem-read-only",
    "ReadonlyFilesystem": "filesystem-read-only",
    "XfsHasShutdown": "filesystem-shut-down",
    "XfsShutdown": "filesystem-shut-down",
}
"""Reasons in the detector's own rules (config/kernel-monitor.json), for messages that are no line of the kernel."""


def slug(prefix: str, words: str) -> str:
    """Return a code that the table does not know, made of a monitor's own words: 'npd', 'KubeletUnhealthy' is
    'npd-kubelet-unhealthy'.
    """
    plain = _NO_LETTERS.sub("-", _WORDS.sub("-", words).lower()).strip("-")
    return f"{prefix}-{plain or 'unnamed'}"[:LONGEST_CODE].rstrip("-")


def pci(text: str) -> str:
    """Return a PCI address as the kernel writes it in Xid lines ('0000:4d:00'), '' when it is none."""
    found = _PCI.fullmatch(text.strip())
    return f"{found[1]}:{found[2]}:{found[3]}".lower() if found else ""


def device_of(labels: Mapping[str, str]) -> str:
    """Return what tells a GPU from the others of its node: its PCI address, its UUID, or its number."""
    address = pci(labels.get("pci_bus_id") or labels.get("pciBusId") or "")
    other = labels.get("UUID") or labels.get("uuid") or labels.get("gpu") or labels.get("device") or ""
    return (address or other)[:100]


def xid_number(text: str) -> int | None:
    """Return the number of an Xid that a text is, None when it is no whole number or none that an Xid can have."""
    return (int(text) or None) if _XID_NUMBER.fullmatch(text) else None


def told_by(text: str, matcher: Matcher) -> tuple[str, dict[str, Value]] | None:
    """Return code and fields that a text stands for: a line of a log, or words that name an Xid."""
    for line in text.split("\n")[:20]:
        told = matcher.find(line)
        if told is not None:
            return told.code, dict(told.fields)
    found = _XID.search(text[:4096])
    number = xid_number(found["number"]) if found else None
    if found is None or number is None:
        return None
    plain = f"{found['kind'].lower()}-{number}"
    unsaid = f"{plain}-unstated"
    device = _DEVICE_IN.search(text[:4096])
    fields: dict[str, Value] = {"device": device[1].lower()} if device else {}
    return unsaid if unsaid in matcher.table else plain, fields
