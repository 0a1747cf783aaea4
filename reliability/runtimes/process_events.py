"""What happens to the containers of the process runtime? One stream of starts and deaths, told by the kernel."""

import contextlib
import os
import select
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from reliability.ports import EventKind, RuntimeEvent
from reliability.runtimes.process_table import open_pidfd
from reliability.runtimes.records import Record, Records, read_exit_code

RESCAN_S = 0.25


@dataclass
class _Watched:
    record: Record
    exit_file: int
    pidfd: int | None


class EventStream:
    """Events from the moment of construction.

    A start in this process is told to the stream, which holds on to its exit file and its process at once, so that
    nothing is missed however late the reader asks; starts by other processes are found by looking at the records.
    """

    def __init__(self, records: Records, wanted: Callable[[Mapping[str, str]], bool]) -> None:
        self._records = records
        self._wanted = wanted
        self._wake_read, self._wake_write = os.pipe()
        os.set_blocking(self._wake_read, False)
        os.set_blocking(self._wake_write, False)
        self._lock = threading.Lock()
        self._closed = False
        self._released = False
        self._watched: dict[str, _Watched] = {}
        self._fresh: deque[Record] = deque()
        self._known = {record.instance for record in records if not record.running}
        for record in records:
            self.tell(record)
        self._fresh.clear()

    def tell(self, record: Record) -> None:
        """Take note of a container, once; its start and its death will be told."""
        with self._lock:
            if self._released or record.instance in self._known or not self._wanted(record.labels):
                return
            try:
                exit_file = os.open(self._records.exit_of(record.name), os.O_RDONLY)
            except OSError:
                return
            self._known.add(record.instance)
            self._watched[record.instance] = _Watched(record, exit_file, open_pidfd(record.shim))
            self._fresh.append(record)
            self._wake()

    def close(self) -> None:
        """End the stream: its reader gets STREAM_ENDED."""
        with self._lock:
            self._closed = True
            self._wake()

    def __iter__(self) -> Iterator[RuntimeEvent]:
        try:
            while not self._closed:
                for record in self._records:
                    self.tell(record)
                yield from self._starts()
                for watched in self._ended(RESCAN_S):
                    yield self._death(watched)
            yield RuntimeEvent(kind=EventKind.STREAM_ENDED)
        finally:
            self._release()

    def _wake(self) -> None:
        if not self._released:
            with contextlib.suppress(BlockingIOError):
                os.write(self._wake_write, b"w")

    def _starts(self) -> Iterator[RuntimeEvent]:
        """Tell starts, each after the death of the container whose name it took over."""
        while self._fresh:
            record = self._fresh.popleft()
            for watched in list(self._watched.values()):
                same = watched.record.name == record.name and watched.record.instance != record.instance
                if same and not watched.record.running:
                    yield self._death(watched)
            yield RuntimeEvent(kind=EventKind.START, name=record.name, labels=record.labels)

    def _ended(self, limit_s: float) -> list[_Watched]:
        """Wait for an end, a new start, or the limit; return the ended ones whose start was told."""
        with self._lock:
            untold = {record.instance for record in self._fresh}
            told = [watched for instance, watched in self._watched.items() if instance not in untold]
        by_descriptor = {watched.pidfd: watched for watched in told}
        waiter = select.poll()
        waiter.register(self._wake_read, select.POLLIN)
        for descriptor in by_descriptor:
            if descriptor is not None:
                waiter.register(descriptor, select.POLLIN)
        ready = [descriptor for descriptor, _ in waiter.poll(0 if None in by_descriptor else limit_s * 1000)]
        if self._wake_read in ready:
            with contextlib.suppress(BlockingIOError):
                os.read(self._wake_read, 4096)
        return [watched for descriptor, watched in by_descriptor.items() if descriptor is None or descriptor in ready]

    def _death(self, watched: _Watched) -> RuntimeEvent:
        record = watched.record
        with self._lock:
            del self._watched[record.instance]
        code = read_exit_code(watched.exit_file)
        _forget(watched)
        return RuntimeEvent(kind=EventKind.DIE, name=record.name, labels=record.labels, exit_code=code)

    def __del__(self) -> None:
        self._release()

    def _release(self) -> None:
        with self._lock:
            if self._released:
                return
            self._closed = self._released = True
            os.close(self._wake_read)
            os.close(self._wake_write)
            for watched in self._watched.values():
                _forget(watched)
            self._watched.clear()


def _forget(watched: _Watched) -> None:
    os.close(watched.exit_file)
    if watched.pidfd is not None:
        os.close(watched.pidfd)
