"""How are containers run on a node with a Docker Engine? Through the docker SDK, on that node's own engine.

Containers share the network of the host, as distributed training does. They get no resolver but 127.0.0.1, which
refuses at once: an unreachable one would add seconds of reverse look-ups to every rendezvous; peers are named through
`hosts`. Memory limits need headroom: pages of a tmpfs (the memory tier) are charged to the container that wrote them,
so a limit must hold the working set *and* the snapshot slots, or the container is ended for memory in mid-snapshot.
"""

import contextlib
import time
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import docker.types
from docker.errors import APIError, NotFound

from reliability.errors import ContainerMissing, EngineUnreachable, FenceUnconfirmed, ImageMissing, RuntimeFailure
from reliability.ports import ContainerInfo, ContainerSpec, ContainerState, RuntimeEvent
from reliability.runtimes import docker_images
from reliability.runtimes.docker_engine import Engine, explain, hint_for, translated
from reliability.runtimes.docker_events import EventStream, label_filters

STATES = {
    "created": ContainerState.CREATED,
    "running": ContainerState.RUNNING,
    "paused": ContainerState.RUNNING,
    "restarting": ContainerState.RUNNING,
    "removing": ContainerState.EXITED,
    "exited": ContainerState.EXITED,
    "dead": ContainerState.EXITED,
}
CONFLICT = 409
START_ATTEMPTS = 10
POLL_S = 0.01
LOG_FILES = {"max-size": "10m", "max-file": "3"}


class DockerRuntime:
    """Runs containers on the engine at `url`."""

    kind = "docker"

    def __init__(
        self,
        url: str,
        *,
        tls_folder: Path | None = None,
        call_limit_s: float = 10.0,
        pull_limit_s: float = 1800.0,
        confirm_s: float = 5.0,
    ) -> None:
        self._engine = Engine(url, call_limit_s=call_limit_s, tls_folder=tls_folder)
        self._call_limit_s = call_limit_s
        self._pull_limit_s = pull_limit_s
        self._confirm_s = confirm_s
        self._streams: weakref.WeakSet[EventStream] = weakref.WeakSet()

    def ping(self) -> None:
        """Return when the engine answers."""
        with translated("ping"):
            self._engine.api.ping()

    def ensure_image(self, image: str) -> str:
        """Return the image's id, pulling it when absent."""
        return docker_images.ensure(self._engine, image, pull_limit_s=self._pull_limit_s) if image else ""

    def start(self, spec: ContainerSpec) -> ContainerInfo:
        """Create and start the container, or return the running one of that name."""
        if not spec.image:
            raise ImageMissing(f"{spec.name}: no image is named.", hint="A job for container nodes names an image.")
        for _ in range(START_ATTEMPTS):
            info = self._joined(spec.name) or self._created(spec)
            if info:
                return info
        raise RuntimeFailure(f"{spec.name}: the name is taken and released again and again.", hint="Look who uses it.")

    def stop(self, name: str, *, grace_s: float) -> None:
        """SIGTERM, grace, SIGKILL, remove, and confirm that it is gone."""
        try:
            found = self._raw(name)
        except ContainerMissing:
            return
        identity = str(found["Id"])
        if grace_s > 0 and self._signalled(identity, "SIGTERM"):
            self._await(lambda: not self._running(identity), grace_s)
        if self._running(identity):
            self._signalled(identity, "SIGKILL")
        if not self._await(lambda: not self._running(identity), self._confirm_s):
            raise FenceUnconfirmed(f"{name}: still running {self._confirm_s:g} s after a kill.")
        self._remove(identity, name)

    def inspect(self, name: str) -> ContainerInfo:
        """Return what is known of it."""
        return described(self._raw(name))

    def list(self, labels: Mapping[str, str]) -> Sequence[ContainerInfo]:
        """Return all containers that carry these labels."""
        with translated("list"):
            found = self._engine.api.containers(all=True, filters={"label": label_filters(labels)})
        infos = []
        for summary in found:
            try:
                infos.append(self.inspect(str(summary["Id"])))
            except ContainerMissing:
                continue
        return infos

    def logs(self, name: str, *, tail: int) -> str:
        """Return the last lines of its output."""
        with translated(name):
            return bytes(self._engine.api.logs(name, tail=max(tail, 0))).decode(errors="replace")

    def events(self, labels: Mapping[str, str]) -> Iterator[RuntimeEvent]:
        """Subscribe now; the iterator yields what happens from now on.

        A stream of an engine behind a broken network stays silent and does not end: follow only the node's own engine.
        """
        stream = EventStream(self._engine, labels, limit_s=self._call_limit_s)
        self._streams.add(stream)
        return iter(stream)

    def close(self) -> None:
        """End all event streams and the connection. Containers go on."""
        for stream in list(self._streams):
            stream.close()
        self._engine.close()

    def _joined(self, name: str) -> ContainerInfo | None:
        """Return the container of that name, running; None when there is none, a dead one being removed first."""
        try:
            found = self._raw(name)
            if described(found).state is ContainerState.EXITED:
                self._remove(str(found["Id"]), name)
                return None
            return self._started(str(found["Id"]), name)
        except ContainerMissing:
            return None

    def _created(self, spec: ContainerSpec) -> ContainerInfo | None:
        """Create and start it; None when another caller took the name in between."""
        image = self.ensure_image(spec.image)
        with translated(spec.name):
            try:
                made = self._engine.api.create_container(**self._creation(spec, image))
            except APIError as error:
                if error.status_code == CONFLICT:
                    return None
                raise
        try:
            return self._started(str(made["Id"]), spec.name)
        except ContainerMissing:
            return None
        except EngineUnreachable:
            raise
        except RuntimeFailure:
            self._remove(str(made["Id"]), spec.name)
            raise

    def _started(self, identity: str, name: str) -> ContainerInfo:
        """Start it by id, which does nothing when it runs already, and describe it."""
        with translated(name):
            try:
                self._engine.api.start(identity)
            except APIError as error:
                if error.status_code == CONFLICT:
                    raise ContainerMissing(f"{name}: is being removed.") from error
                raise
        return described(self._raw(identity))

    def _creation(self, spec: ContainerSpec, image: str) -> dict[str, Any]:
        host = self._engine.api.create_host_config(
            network_mode="host",
            mounts=[
                docker.types.Mount(mount.target, str(mount.source), type="bind", read_only=mount.read_only)
                for mount in spec.mounts
            ],
            shm_size=spec.shm_bytes or None,
            mem_limit=spec.memory_bytes or None,
            memswap_limit=spec.memory_bytes or None,
            nano_cpus=int(spec.cpus * 1e9) or None,
            extra_hosts=dict(spec.hosts) or None,
            dns=["127.0.0.1"],
            log_config=docker.types.LogConfig(type="json-file", config=LOG_FILES),
        )
        return {
            "image": image,
            "command": list(spec.argv),
            "name": spec.name,
            "environment": dict(spec.env),
            "labels": dict(spec.labels),
            "working_dir": spec.workdir or None,
            "stop_signal": "SIGTERM",
            "host_config": host,
        }

    def _raw(self, name: str) -> dict[str, Any]:
        with translated(name):
            found: dict[str, Any] = self._engine.api.inspect_container(name)
        return found

    def _running(self, identity: str) -> bool:
        try:
            return bool(self._raw(identity)["State"]["Running"])
        except ContainerMissing:
            return False

    def _signalled(self, identity: str, name: str) -> bool:
        """Send a signal; return whether it went. The engine may refuse or hang: the confirmation afterwards tells."""
        try:
            with translated(identity), contextlib.closing(self._engine.connect(limit_s=self._confirm_s)) as client:
                client.kill(identity, signal=name)
        except RuntimeFailure:
            return False
        return True

    def _remove(self, identity: str, name: str) -> None:
        """Remove by id, so that never the successor of the same name is hit, and wait until it is gone."""
        problem = ""
        with translated(name):
            try:
                self._engine.api.remove_container(identity, force=True, v=True)
            except NotFound:
                return
            except APIError as error:
                problem = explain(error)
        if not self._await(lambda: not self._exists(identity), self._confirm_s):
            raise RuntimeFailure(f"{name}: cannot be removed: {problem or 'it stays'}", hint=hint_for(problem))

    def _exists(self, identity: str) -> bool:
        try:
            self._raw(identity)
        except ContainerMissing:
            return False
        return True

    @staticmethod
    def _await(condition: Callable[[], bool], limit_s: float) -> bool:
        deadline = time.monotonic() + limit_s
        while not condition():
            if time.monotonic() > deadline:
                return False
            time.sleep(POLL_S)
        return True


def described(raw: Mapping[str, Any]) -> ContainerInfo:
    """Return an engine's description of a container in our words."""
    state = raw["State"]
    known = STATES.get(str(state["Status"]), ContainerState.EXITED)
    return ContainerInfo(
        name=str(raw["Name"]).lstrip("/"),
        state=known,
        image_digest=str(raw["Image"]),
        labels=dict(raw["Config"].get("Labels") or {}),
        pid=int(state["Pid"]),
        exit_code=int(state["ExitCode"]) if known is ContainerState.EXITED else None,
        oom_killed=bool(state["OOMKilled"]),
    )
