"""What a measurement hands back, and how it is printed and kept."""

import json
import os
import platform
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path


@dataclass(frozen=True, kw_only=True)
class Figure:
    """One measured quantity with all its samples; `unit` is 's', 'bytes/s' and so on, `note` says how it was taken."""

    name: str
    samples: Sequence[float]
    unit: str = "s"
    note: str = ""

    @property
    def line(self) -> str:
        """Return it for a person: median, spread, number of samples."""
        low, high = min(self.samples), max(self.samples)
        middle = statistics.median(self.samples)
        spread = f"{low:.3g} .. {high:.3g}"
        return (
            f"  {self.name:<52} {middle:>9.3g} {self.unit:<8} {spread:<20} n={len(self.samples)}  {self.note}".rstrip()
        )


def machine() -> dict[str, object]:
    """Return what the figures depend on."""
    return {
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "cpus": os.cpu_count(),
        "load_1min": os.getloadavg()[0],
        "kernel": platform.release(),
        "python": platform.python_version(),
    }


def keep(folder: Path, facts: Mapping[str, object], results: Mapping[str, Sequence[Figure]]) -> Path:
    """Write everything as JSON beside the earlier runs; returns the file."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}.json"
    content = {
        "machine": dict(facts),
        "results": {name: [asdict(row) for row in rows] for name, rows in results.items()},
    }
    path.write_text(json.dumps(content, indent=1))
    return path
