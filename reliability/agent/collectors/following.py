"""Who keeps a collector alive and listens to it?

One thread each: it starts the child, hands its messages on, and starts it again, later each time, when it ended, said
nothing for longer than its beats allow, or said what cannot be understood. The thread lives as long as the agent, which
matters: a child asks to end with the thread that started it.
"""

import contextlib
import json
import logging
import os
import select
import threading
from collections.abc import Callable, Mapping
from typing import Any

from reliability.agent import processes
from reliability.agent.clock import steady
from reliability.agent.collectors import saying
from reliability.agent.probes.children import Child, Children

FIRST_WAIT_S = 0.2
LONGEST_WAIT_S = 10.0
SILENT_S = 15.0
"""A child that says nothing for so long hangs: it beats each second."""

log = logging.getLogger("stepkeeper.agent")


class Following:
    """One collector.

    wanted: what a new child is asked first. hear: gets each message, in the thread of this collector. lost: is told in
    words when a child ended or was ended.
    """

    def __init__(
        self,
        name: str,
        module: str,
        children: Children,
        *,
        wanted: Callable[[], Mapping[str, Any]],
        hear: Callable[[Mapping[str, Any]], None],
        lost: Callable[[str], None],
    ) -> None:
        self._name = name
        self._module = module
        self._children = children
        self._wanted = wanted
        self._hear = hear
        self._lost = lost
        self._stopping = threading.Event()
        self._lock = threading.Lock()
        self._child: Child | None = None
        self._left: int | None = None
        self._missed: dict[str, Any] = {}
        self._thread = threading.Thread(target=self._keep, name=f"collector-{name}", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """End the child and the thread."""
        self._stopping.set()
        with self._lock:
            child = self._child
        if child is not None:
            self._children.signal_end(child)
        if self._thread.is_alive():
            self._thread.join(timeout=2.0)

    def pid(self) -> int | None:
        """Return the child's process id, None while there is none."""
        with self._lock:
            return self._child.pid if self._child else None

    def tell(self, message: Mapping[str, Any]) -> None:
        """Say something to the child. One that is not there gets it with what it is asked first."""
        with self._lock:
            if self._child is None or self._child.stdin is None:
                self._missed |= message
            else:
                self._write(self._child, message)

    def _write(self, child: Child, message: Mapping[str, Any]) -> None:
        """Write without waiting. A child that a message does not reach whole is ended: the next one is asked anew."""
        if child.stdin is None or not message:
            return
        data, written = json.dumps(message).encode() + b"\n", 0
        with contextlib.suppress(OSError, ValueError):
            written = os.write(child.stdin.fileno(), data)
        if written < len(data):
            self._children.signal_end(child)

    def _keep(self) -> None:
        wait_s = FIRST_WAIT_S
        while not self._stopping.is_set():
            began = steady()
            why = self._run_guarded()
            if self._stopping.is_set():
                return
            log.warning("collector ended, starting it again: collector=%s why=%s", self._name, why)
            self._lost(why)
            self._await_gone()
            wait_s = FIRST_WAIT_S if steady() - began > 2 * LONGEST_WAIT_S else min(2 * wait_s, LONGEST_WAIT_S)
            self._stopping.wait(wait_s)

    def _await_gone(self) -> None:
        """A child that hangs in the kernel cannot be killed: no second one is started beside it."""
        while self._left is not None and processes.alive(self._left) and not self._stopping.wait(saying.BEAT_S):
            pass

    def _run_guarded(self) -> str:
        """Run a child to its end and return why it ended. Boundary: whatever happens, it is started again."""
        with self._lock:
            self._missed = {}
        try:
            child = self._children.attend(self._module, self._wanted())
        except OSError as error:
            return f"It cannot be started: {error}."
        with self._lock:
            self._write(child, self._missed)  # said between the wish and now
            self._child = child
        try:
            return self._listen(child)
        except Exception as error:
            log.exception("collector not heard: collector=%s", self._name)
            return f"{type(error).__name__}: {error}"
        finally:
            with self._lock:
                self._child = None
            self._left = child.pid
            self._children.end(child)

    def _listen(self, child: Child) -> str:
        hearing, out = saying.Hearing(), child.stdout
        if out is None:
            return "It has no output."
        while not self._stopping.is_set():
            readable, _, _ = select.select([out], [], [], SILENT_S)
            if not readable:
                return f"It said nothing for {SILENT_S:.0f} s and was ended."
            data = os.read(out.fileno(), 65536)
            if not data:
                return f"It ended by itself; see {self._name} in the agent's log folder."
            for message in hearing.feed(data):
                self._hear(message)
            if hearing.deaf:
                return "What it said was too long."
        return ""
