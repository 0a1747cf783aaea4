"""Runs the measurements that were named, or all: prints them and keeps them in build/bench."""

import argparse
import importlib
import pkgutil
import sys
from pathlib import Path

import bench
from bench.figures import Figure, keep, machine

FRAME = {"figures"}
KEPT = Path(__file__).resolve().parents[1] / "build" / "bench"


def names() -> list[str]:
    """Return every measurement that there is: the modules with `measure()`; a name with _ in front is a part of one."""
    found = {module.name for module in pkgutil.iter_modules(bench.__path__)}
    return sorted(name for name in found - FRAME if not name.startswith("_"))


def main() -> int:
    """Measure; returns 1 when a measurement failed."""
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"one or more of: {', '.join(names())}")
    chosen = parser.parse_args().names or names()
    unknown = sorted(set(chosen) - set(names()))
    if unknown:
        parser.error(f"no such measurement: {', '.join(unknown)}; there are: {', '.join(names())}")
    facts, results, failed = machine(), dict[str, list[Figure]](), False
    sys.stdout.write("  ".join(f"{name}={value}" for name, value in facts.items()) + "\n")
    for name in chosen:
        module = importlib.import_module(f"bench.{name}")
        sys.stdout.write(f"\n{name}: {(module.__doc__ or '').splitlines()[0]}\n")
        results[name] = []
        try:
            for figure in module.measure():
                results[name].append(figure)  # what was measured before a failure is kept
        except Exception as error:
            failed = True
            sys.stdout.write(f"  FAILED: {error}\n")
        if not getattr(module, "SHOWS_A_TABLE", False):
            sys.stdout.writelines(f"{figure.line}\n" for figure in results[name])
    sys.stdout.write(f"\nKept in {keep(KEPT, facts, results)}\n")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
