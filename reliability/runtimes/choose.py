"""Which runtime does this node use? One place that knows both."""

from pathlib import Path

from reliability.errors import InvalidInput
from reliability.ports import Runtime
from reliability.runtimes.docker import DockerRuntime
from reliability.runtimes.process import ProcessRuntime


def make_runtime(kind: str, *, engine_url: str = "unix:///run/docker.sock", state_dir: Path | None = None) -> Runtime:
    """Return a runtime: `docker` on the engine at `engine_url`, or `process` with its records in `state_dir`."""
    if kind == DockerRuntime.kind:
        return DockerRuntime(engine_url)
    if kind == ProcessRuntime.kind and state_dir is not None:
        return ProcessRuntime(state_dir)
    if kind == ProcessRuntime.kind:
        raise InvalidInput(
            "state_dir", "The process runtime needs a folder for its records.", hint="Name a local folder."
        )
    raise InvalidInput("runtime", f"{kind!r} is no runtime.", hint="Use docker or process.")
