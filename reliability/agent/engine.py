"""What does the container runtime say by itself?

One thread follows its events. The end of the stream is a fault of its own until the engine answers again; whatever
was missed meanwhile is found by comparing what runs with what should.
"""

import logging
import threading
from collections.abc import Callable

from reliability.agent.jobs import LocalJobs
from reliability.agent.localjob import LocalJob
from reliability.errors import ReliabilityError
from reliability.ports import LABEL_JOB, ContainerInfo, ContainerState, EventKind, Runtime, RuntimeEvent

FIRST_WAIT_S = 0.2
LONGEST_WAIT_S = 2.0

log = logging.getLogger("stepkeeper.agent")


class EngineWatch:
    """Reports what happens to the containers of jobs on this node."""

    def __init__(self, runtime: Runtime, jobs: LocalJobs, report: Callable[..., None]) -> None:
        self._runtime = runtime
        self._jobs = jobs
        self._report = report
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="engine", daemon=True)

    def start(self) -> None:
        """Begin to follow the events."""
        self._thread.start()

    def stop(self) -> None:
        """Stop following; the thread ends with the stream or with the process."""
        self._stopping.set()
        close = getattr(self._runtime, "close", None)
        if close is not None:
            close()

    def compare(self) -> None:
        """Find containers that ended without an event, and those that run without being known as running.

        The list may be old when it is read: what began since is left out, and an end is confirmed by a second look.
        """
        begun = [(part, part.begun) for part in self._jobs.all()]
        found = {info.name: info for info in self._runtime.list({LABEL_JOB: ""})}
        for part, seen in begun:
            info = found.pop(part.container.name, None)
            runs = info is not None and info.state is ContainerState.RUNNING
            if runs == part.container.up and (runs or not part.record.unfenced):
                continue
            self._compared(part, seen)
        for info in found.values():
            self._jobs.adopt(info)

    def _compared(self, part: LocalJob, seen: int) -> None:
        info = part.container.inspect()
        if info is None or info.state is not ContainerState.RUNNING:
            self._died(part, info.exit_code if info else None, info, seen=seen)
            return
        with part.lock:
            part.container.up = part.container.up or part.begun == seen

    def _run(self) -> None:
        wait_s = FIRST_WAIT_S
        while not self._stopping.is_set():
            try:
                stream = self._runtime.events({LABEL_JOB: ""})
                self.compare()
                for event in stream:
                    wait_s = FIRST_WAIT_S
                    self._on(event)
            except ReliabilityError as error:
                log.warning("engine trouble: code=%s reason=%s", error.code, error.message)
            except Exception:
                # The watch over the engine must go on whatever one event brought.
                log.exception("following the engine's events failed, going on")
            self._stopping.wait(wait_s)
            wait_s = min(2 * wait_s, LONGEST_WAIT_S)

    def _on(self, event: RuntimeEvent) -> None:
        if event.kind is EventKind.STREAM_ENDED:
            self._on_stream_ended()
            return
        part = self._jobs.by_container(event.name)
        if part is None:
            return
        if event.kind is EventKind.START:
            part.container.up = True
        elif event.kind is EventKind.OOM:
            part.report("container", _body("oom", part, None, oom_killed=True))
        elif event.kind is EventKind.UNHEALTHY:
            evidence = f"The check of the image says that container {event.name} is not healthy."
            part.report("finding", {"code": "container-unhealthy", "rank": None, "evidence": evidence, "count": 1})
        elif event.kind is EventKind.DIE:
            seen = part.begun
            self._died(part, event.exit_code, self._inspected(part), seen=seen)

    def _inspected(self, part: LocalJob) -> ContainerInfo | None:
        try:
            return part.container.inspect()
        except ReliabilityError:
            return None

    def _died(self, part: LocalJob, exit_code: int | None, info: ContainerInfo | None, *, seen: int) -> None:
        """Take note of an end. `seen` is `begun` of the job before the container was looked at."""
        if info is not None and info.state is ContainerState.RUNNING:
            return  # a late event of an earlier container of that name
        with part.lock:
            if part.begun != seen:
                return  # what was seen to have ended is no longer what there is
            known = part.container.up or part.record.unfenced
            part.container.up = False
            body = _body("die", part, exit_code, oom_killed=bool(info and info.oom_killed))
            if part.record.unfenced:
                # Ranks ended with their container; the launcher can no longer say so.
                part.files.look()
                part.record.end()
                part.save()
        if known:
            part.report("container", body)

    def _on_stream_ended(self) -> None:
        if self._stopping.is_set():
            return
        self._report(
            "container", {"event": "stream_ended", "exit_code": None, "oom_killed": False, "ordered": False, "name": ""}
        )
        try:
            self._runtime.ping()
        except ReliabilityError as error:
            self._report("finding", {"code": "engine-lost", "rank": None, "evidence": error.message, "count": 1})


def _body(event: str, part: LocalJob, exit_code: int | None, *, oom_killed: bool) -> dict[str, object]:
    return {
        "event": event,
        "exit_code": exit_code,
        "oom_killed": oom_killed,
        "ordered": part.container.ordered_end,
        "name": part.container.name,
    }
