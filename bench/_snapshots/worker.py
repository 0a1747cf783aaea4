"""One process of the measurement: all contenders in turn, save after save, and what each costs. Prints JSON lines.

python -m bench._snapshots.worker --size 256 --rounds 5 --folder DIR --python PRODUCT_PYTHON [--only NAME ...]
"""

import argparse
import json
import logging
import mmap
import os
import shutil
import sys
import threading
import time
import warnings
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch

from bench._snapshots import busy
from bench._snapshots.contenders import ALL, BESIDE, Contender, Stepkeeper, wait
from bench._snapshots.state import Reference, Training, build

COMPUTE_S = 0.1
STEPS_AFTER = 2
LONGEST_S = 60.0
CADENCE_STEPS = 20
MB = 2**20


def say(kind: str, **facts: Any) -> None:
    """Print one line of facts."""
    sys.stdout.write(json.dumps({"kind": kind, **facts}) + "\n")
    sys.stdout.flush()


class Bench:
    """The state, the training, and the contenders."""

    def __init__(self, options: argparse.Namespace) -> None:
        Stepkeeper.python = options.python
        self.folder = options.folder.absolute()
        self.state = build(options.size)
        self.training = Training(self.state, COMPUTE_S)
        self.reference = Reference(self.state, Path("/dev/shm"))  # noqa: S108
        self.contenders: dict[str, Contender] = {}
        self.number = 0

    def open(self, names: Iterable[str]) -> None:
        """Have all contenders ready."""
        for name in names:
            before = time.perf_counter()
            used = shared_bytes()
            self.contenders[name] = ALL[name](self.state, self.folder / name.replace(" ", "-"))
            say("opened", name=name, seconds=time.perf_counter() - before, shared=shared_bytes() - used)

    def round(self, kind: str, first: int) -> None:
        """Let the contenders save once, in another order each time."""
        for name in self.in_turn(first):
            self.number += 1
            say(kind, name=name, **self.save(name, self.number))

    def in_turn(self, first: int) -> list[str]:
        """Return the contenders, beginning with another one each time; those shown for comparison only at first."""
        names = [name for name in self.contenders if first == 0 or name not in BESIDE]
        turn = first % len(names)
        return names[turn:] + names[:turn]

    def save(self, name: str, number: int) -> dict[str, Any]:
        """Save once while training goes on until it is durable, and return what that took, in seconds."""
        contender, training = self.contenders[name], self.training
        os.sync()
        training.before_update = lambda: None
        base_s, memcpy_s = training.base_s(), self.reference.memcpy_s()
        contender.hook(training)
        watch = busy.Watch(os.getpid())
        began = time.perf_counter()
        taken = contender.begin(number)
        stall_s = time.perf_counter() - began
        written_s, steps, waited_s = None, 0, 0.0
        while taken and time.perf_counter() - began < LONGEST_S:
            if written_s is None and contender.done(number):
                written_s = time.perf_counter() - began
            if written_s is not None and steps >= STEPS_AFTER:
                break
            waited_s += training.step()[1]
            steps += 1
        wall_s = time.perf_counter() - began
        others = watch.others()
        wait(contender, number)
        durable_s = (written_s or LONGEST_S) + self.synced_s(contender, number)
        facts = {"base": base_s, "memcpy": memcpy_s, "durable": durable_s}
        facts |= {"begin": stall_s, "stall": stall_s + waited_s}
        contender.remove(number - len(self.contenders) if number > len(self.contenders) else 0)
        return {**facts, "taken": taken, "lost": wall_s - steps * base_s, "others": others, "steps": steps}

    def synced_s(self, contender: Contender, number: int) -> float:
        """Return what is still missing until a save is durable."""
        if contender.durable_itself:
            return 0.0
        began = time.perf_counter()
        contender.sync(number)
        return time.perf_counter() - began

    def prompt(self, name: str) -> dict[str, Any]:
        """Save with training paused, so that the time until durable is not seen a step late."""
        self.number += 1
        contender, number = self.contenders[name], self.number
        os.sync()
        watch = busy.Watch(os.getpid())
        began = time.perf_counter()
        contender.begin(number)
        wait(contender, number)
        seconds = time.perf_counter() - began + self.synced_s(contender, number)
        disk_s = self.disk_s()
        return {"number": number, "durable": seconds, "disk": disk_s, "others": watch.others()}

    def disk_s(self) -> float:
        """Return how long the disk takes for the same bytes, from touched memory, past the page cache, and synced."""
        path, size = self.folder / "limit", self.reference.bytes & ~4095
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_DIRECT)
        try:
            os.posix_fallocate(handle, 0, size)
            view, at = memoryview(self.reference._map), 0
            began = time.perf_counter()
            while at < size:
                at += os.write(handle, view[at : min(at + 8 * MB, size)])
            os.fsync(handle)
            return time.perf_counter() - began
        finally:
            os.close(handle)
            path.unlink()

    def restores(self, name: str, number: int) -> dict[str, Any]:
        """Return what it takes to bring the last save back into the live tensors."""
        watch = busy.Watch(os.getpid())
        contender, found = self.contenders[name], {"memcpy": self.reference.memcpy_s()}
        if contender.path(number).is_file():
            forget(contender.path(number))
            found["read"] = read_past_cache_s(contender.path(number))
        for what in ("cold", "warm"):
            (forget if what == "cold" else read)(contender.path(number))
            began = time.perf_counter()
            contender.load(number)
            found[what] = time.perf_counter() - began
        if hasattr(contender, "load_memory"):
            began = time.perf_counter()
            contender.load_memory(number)
            found["memory"] = time.perf_counter() - began
        return {**found, "others": watch.others()}

    def cadence(self, name: str) -> dict[str, Any]:
        """Ask for a save at every step; return how many were taken and the share of the time that trained."""
        contender, training = self.contenders[name], self.training
        training.before_update = lambda: None
        watch = busy.Watch(os.getpid())
        base_s = training.base_s(5)
        contender.hook(training)
        before = contender.run.snapshots_taken if isinstance(contender, Stepkeeper) else 0
        skipped = contender.run._tier.failed if isinstance(contender, Stepkeeper) else 0
        taken, began = 0, time.perf_counter()
        for _ in range(CADENCE_STEPS):
            training.step()
            self.number += 1
            taken += contender.begin(self.number)
        training.before_update()
        wall_s = time.perf_counter() - began
        facts = {"asked": CADENCE_STEPS, "goodput": CADENCE_STEPS * base_s / wall_s}
        if isinstance(contender, Stepkeeper):
            taken = contender.run.snapshots_taken - before
            told = contender.run._tier.failed - skipped
            wait(contender, self.number)
            facts["on_disk"] = sum(number > self.number - CADENCE_STEPS for number in contender.copies)
            facts["silent"] = CADENCE_STEPS - taken - told
        return {**facts, "kept": taken, "others": watch.others()}

    def close(self) -> None:
        """End all contenders."""
        for contender in self.contenders.values():
            contender.close()


def shared_bytes() -> int:
    """Return what lies in shared memory."""
    found = os.statvfs("/dev/shm")  # noqa: S108
    return (found.f_blocks - found.f_bfree) * found.f_frsize


def read(path: Path) -> None:
    """Have a file, or all below a folder, in the page cache."""
    buffer = bytearray(8 * MB)
    for file in [path] if path.is_file() else [each for each in path.rglob("*") if each.is_file()]:
        with file.open("rb", buffering=0) as opened:
            while opened.readinto(buffer):
                pass


def read_past_cache_s(path: Path) -> float:
    """Return how long the disk takes to give a file, read past the page cache by two threads."""
    handle, size = os.open(path, os.O_RDONLY | os.O_DIRECT), path.stat().st_size
    buffers = threading.local()

    def piece(at: int) -> None:
        if not hasattr(buffers, "own"):
            buffers.own = mmap.mmap(-1, 8 * MB)
        os.preadv(handle, [buffers.own], at)

    try:
        began = time.perf_counter()
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(piece, range(0, size, 8 * MB)))
        return time.perf_counter() - began
    finally:
        os.close(handle)


def forget(path: Path) -> None:
    """Drop a file, or all below a folder, from the page cache."""
    for file in [path] if path.is_file() else [each for each in path.rglob("*") if each.is_file()]:
        with file.open("rb") as opened:
            os.fsync(opened.fileno())
            os.posix_fadvise(opened.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--size", type=int, required=True, help="MB of state")
    parser.add_argument("--rounds", type=int, required=True)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--python", required=True)
    parser.add_argument("--only", action="append", choices=ALL)
    parser.add_argument("--parts", default="saves,durable,restores,cadence")
    options = parser.parse_args()
    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)
    torch.set_num_threads(1)
    shutil.rmtree(options.folder, ignore_errors=True)
    bench = Bench(options)
    try:
        bench.open(options.only or ALL)
        measure(bench, options.rounds, set(options.parts.split(",")))
    finally:
        bench.close()
        shutil.rmtree(options.folder, ignore_errors=True)
    sys.stdout.flush()
    os._exit(0)  # some peers leave threads that do not end


def measure(bench: Bench, rounds: int, parts: set[str]) -> None:
    """Go through the parts."""
    bench.round("first", 0)
    for turn in range(rounds if "saves" in parts else 0):
        say("progress", what=f"save {turn + 1} of {rounds}")
        bench.round("save", turn)
    for name, contender in bench.contenders.items():
        if isinstance(contender, Stepkeeper):
            say("memory", name=name, used=contender.used_bytes(), state=bench.reference.bytes)
    for turn in range(rounds if "durable" in parts else 0):
        say("progress", what=f"drain and restore {turn + 1} of {rounds}")
        for name in bench.in_turn(turn):
            end_to_end(bench, name, restore="restores" in parts)
    for name in {"ours lazy", "dlrover"} & set(bench.contenders) if "cadence" in parts else ():
        say("cadence", name=name, **bench.cadence(name))


def end_to_end(bench: Bench, name: str, *, restore: bool) -> None:
    """Save with training paused, and bring that save back."""
    facts = bench.prompt(name)
    say("durable", name=name, **facts)
    if restore:
        say("restore", name=name, **bench.restores(name, facts["number"]))
    bench.contenders[name].remove(facts["number"])


if __name__ == "__main__":
    main()
