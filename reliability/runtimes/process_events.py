"""What happens to the containers of the process runtime? One stream of starts and deaths, told by the kernel."""

import os
import select
import threading
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
    """Events from the moment of construction. A start in this process wakes it; others are found by looking."""

    def __init__(self, records: Records, wanted: Callable[[Mapping[str, str]], bool]) -> None:
        self._records = records
        self._wanted = wanted
        self._wake_read, self._wake_write = os.pipe()
        os.set_blocking(self._wake_read, False)
        os.set_blocking(self._wake_write, False)
        self._lock = threading.Lock()
        self._closed = False
        self._watched: dict[str, _Watched] = {}
        self._known = {record.instance for record in records if not record.running}
        for record in self._new_records():
            self._watch(record)

    def wake(self) -> None:
        """Look at the records now."""
        with self._lock:
            if not self._closed:
                try:
                    os.write(self._wake_write, b"w")
                except BlockingIOError:
                    return

    def close(self) -> None:
        """End the stream: its reader gets STREAM_ENDED."""
        with self._lock:
            if not self._closed:
                self._closed = True
                os.close(self._wake_write)

    def __iter__(self) -> Iterator[RuntimeEvent]:
        try:
            while not self._closed:
                yield from self._started()
                for watched in self._ended(RESCAN_S):
                    yield self._death(watched)
            yield RuntimeEvent(kind=EventKind.STREAM_ENDED)
        finally:
            self._release()

    def _new_records(self) -> list[Record]:
        return [
            record for record in self._records if record.instance not in self._known and self._wanted(record.labels)
        ]

    def _watch(self, record: Record) -> None:
        self._known.add(record.instance)
        try:
            exit_file = os.open(self._records.exit_of(record.name), os.O_RDONLY)
        except OSError:
            return
        self._watched[record.instance] = _Watched(record, exit_file, open_pidfd(record.shim))

    def _started(self) -> Iterator[RuntimeEvent]:
        for record in self._new_records():
            self._watch(record)
            yield RuntimeEvent(kind=EventKind.START, name=record.name, labels=record.labels)

    def _ended(self, limit_s: float) -> list[_Watched]:
        gone = [watched for watched in self._watched.values() if watched.pidfd is None]
        if gone:
            return gone
        waiter = select.poll()
        waiter.register(self._wake_read, select.POLLIN)
        by_descriptor = {watched.pidfd: watched for watched in self._watched.values()}
        for descriptor in by_descriptor:
            if descriptor is not None:
                waiter.register(descriptor, select.POLLIN)
        ready = [descriptor for descriptor, _ in waiter.poll(limit_s * 1000)]
        if self._wake_read in ready:
            self._drain()
        return [by_descriptor[descriptor] for descriptor in ready if descriptor in by_descriptor]

    def _drain(self) -> None:
        try:
            os.read(self._wake_read, 4096)
        except BlockingIOError:
            return

    def _death(self, watched: _Watched) -> RuntimeEvent:
        del self._watched[watched.record.instance]
        code = read_exit_code(watched.exit_file)
        self._forget(watched)
        record = watched.record
        return RuntimeEvent(kind=EventKind.DIE, name=record.name, labels=record.labels, exit_code=code)

    @staticmethod
    def _forget(watched: _Watched) -> None:
        os.close(watched.exit_file)
        if watched.pidfd is not None:
            os.close(watched.pidfd)

    def _release(self) -> None:
        self.close()
        os.close(self._wake_read)
        for watched in self._watched.values():
            self._forget(watched)
        self._watched.clear()
