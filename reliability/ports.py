"""What a container runtime and a storage tier must be able to do, and what they exchange."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, Protocol

from reliability.domain.snapshots import EpochStart

LABEL_JOB = "stepkeeper.job"
LABEL_SLOT = "stepkeeper.slot"
LABEL_EPOCH = "stepkeeper.epoch"


@dataclass(frozen=True, kw_only=True)
class Mount:
    """A folder of the host that the container sees at `target`."""

    source: Path
    target: str
    read_only: bool = False


@dataclass(frozen=True, kw_only=True)
class ContainerSpec:
    """What to run. `image` is empty for the process runtime. Limits: bytes and CPU cores; 0 means none."""

    name: str
    argv: Sequence[str]
    image: str = ""
    env: Mapping[str, str] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    mounts: Sequence[Mount] = ()
    workdir: str = ""
    shm_bytes: int = 0
    memory_bytes: int = 0
    cpus: float = 0.0
    hosts: Mapping[str, str] = field(default_factory=dict)


class ContainerState(StrEnum):
    """Whether the container's main process runs."""

    CREATED = "created"
    RUNNING = "running"
    EXITED = "exited"


@dataclass(frozen=True, kw_only=True)
class ContainerInfo:
    """What the runtime knows of a container. `pid` is 0 when it does not run."""

    name: str
    state: ContainerState
    image_digest: str
    labels: Mapping[str, str]
    pid: int = 0
    exit_code: int | None = None
    oom_killed: bool = False


class EventKind(StrEnum):
    """What a runtime reports by itself."""

    START = "start"
    DIE = "die"
    OOM = "oom"
    UNHEALTHY = "unhealthy"
    STREAM_ENDED = "stream_ended"


@dataclass(frozen=True, kw_only=True)
class RuntimeEvent:
    """One event. STREAM_ENDED has no name: engine or host is lost until proven otherwise."""

    kind: EventKind
    name: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    exit_code: int | None = None


class Runtime(Protocol):
    """Runs containers on this node. One contract suite (tests/contract) runs over every implementation."""

    kind: str

    def ping(self) -> None:
        """Return when the engine answers; raise EngineUnreachable."""

    def ensure_image(self, image: str) -> str:
        """Return the image's digest or id, pulling it when absent. Raises ImageMissing. '' in gives '' back."""

    def start(self, spec: ContainerSpec) -> ContainerInfo:
        """Create and start the container, or return the running one of that name (idempotent by name).

        A dead container of that name is removed first. Raises ImageMissing, EngineUnreachable, RuntimeFailure.
        """

    def stop(self, name: str, *, grace_s: float) -> None:
        """End the container and all its processes and remove it; no error when there is none.

        Raises FenceUnconfirmed when it still runs after the grace and a kill.
        """

    def inspect(self, name: str) -> ContainerInfo:
        """Return what is known of it. Raises ContainerMissing."""

    def list(self, labels: Mapping[str, str]) -> Sequence[ContainerInfo]:
        """Return all containers, running or not, that carry these labels ('' as value: any value)."""

    def logs(self, name: str, *, tail: int) -> str:
        """Return the last lines of output, '' when there are none. Raises ContainerMissing."""

    def events(self, labels: Mapping[str, str]) -> Iterator[RuntimeEvent]:
        """Yield events from now on for containers with these labels; ends after one STREAM_ENDED."""

    def close(self) -> None:
        """End all event streams and connections of this object; containers go on."""


Record = Mapping[str, Any] | Callable[[], Mapping[str, Any]]
"""What is kept beside a shard. One that is called is called when the shard is durable: it may tell how long it took."""


class TierStore(Protocol):
    """Keeps shard files of one job on one tier. One contract suite runs over every implementation."""

    def claim(self, job_key: str, *, ranks: int) -> None:
        """Make this place that of one job of so many ranks, told from others of its name by `job_key`.

        May be repeated. Raises TierConflict when it is another's, or holds shards of nobody knows whom.
        """

    def ranks(self) -> int:
        """Return how many ranks the job has whose place this is; 0 when nobody said so."""

    def note_start(self, start: EpochStart) -> None:
        """Keep how an attempt began; what is kept of it already stays."""

    def starts(self) -> Sequence[EpochStart]:
        """Return how attempts began, of those that are kept here."""

    def put(self, source: Path, key: str, *, digest: str, record: Record | None = None) -> int:
        """Store a file under a key, durable before it returns, replacing nothing half-way. Returns bytes.

        `record` is kept beside it; one that is called is called when the content is durable: it may say how long that
        took. Verifies what was written; the same content again costs nothing. Raises TierFull,
        TierUnreachable, DigestMismatch, CopyMissing for a source that is gone, TierConflict for a place of another.
        """

    def get(self, key: str, target: Path, *, digest: str) -> int:
        """Copy a stored file to `target` (temp, fsync, rename), verified. Raises CopyMissing, DigestMismatch."""

    def pieces(self, key: str) -> Iterator[bytes]:
        """Yield a stored file in order; raises DigestMismatch at its end when it is not what was committed."""

    def record(self, key: str) -> dict[str, Any]:
        """Return what was kept with a key, at least size_bytes and digest. Raises CopyMissing, RecordUnusable."""

    def place(self, key: str) -> str:
        """Return the address by which reports and orders name a key."""

    def keys(self, prefix: str) -> Sequence[str]:
        """Return the committed keys below a prefix, sorted."""

    def damaged(self) -> Sequence[str]:
        """Return what is wrong with lists of keys that cannot be believed; what they listed is in no `keys`."""

    def delete(self, key: str) -> None:
        """Remove a stored file and its record; no error when there is none."""

    def sweep(self, wanted: Collection[str] = ()) -> int:
        """Remove what unfinished copies left: this writer's unless of a `wanted` key, others' when long untouched."""
