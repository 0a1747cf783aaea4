"""Is the image on the node, and under which digest? Pulls it when absent, with a limit, and says why it cannot."""

import threading
from typing import Any

import docker
from docker.errors import APIError, NotFound
from docker.utils import parse_repository_tag

from reliability.errors import ImageMissing
from reliability.runtimes.docker_engine import LOST, Engine, explain, translated

BAD_REQUEST = 400
REFERENCE_HINT = "Name the image as repository@sha256:..., repository:tag, or sha256:... for one that is on the node."


def ensure(engine: Engine, image: str, *, pull_limit_s: float) -> str:
    """Return the image's id (`sha256:...`), the same on every node whether it was pulled, loaded or built.

    A tag that is present is not looked up again: it is resolved to what it means on this node now.
    Raises ImageMissing, EngineUnreachable.
    """
    found = image_id(engine, image)
    if found:
        return found
    if image.startswith("sha256:"):
        raise ImageMissing(
            f"The image {image} is not on this node, and an image id cannot be pulled.",
            hint="Load the image on the node, or name it as repository@sha256:... so that it can be pulled.",
        )
    problem = pull(engine, image, limit_s=pull_limit_s)
    found = image_id(engine, image)
    if not found:
        raise ImageMissing(
            f"The image {image} is not on this node and cannot be pulled: {problem or 'no reason given'}"
        )
    return found


def image_id(engine: Engine, image: str) -> str:
    """Return the id of an image on this node, '' when it is absent."""
    with translated(image):
        try:
            return str(engine.api.inspect_image(image)["Id"])
        except NotFound:
            return ""
        except APIError as error:
            if error.status_code == BAD_REQUEST:
                raise ImageMissing(f"{image} is no image reference: {explain(error)}", hint=REFERENCE_HINT) from error
            raise


def pull(engine: Engine, image: str, *, limit_s: float) -> str:
    """Pull an image; return the engine's complaint, '' when there was none.

    The SDK reads a pull without any time-out, so it runs on a connection of its own in a thread that is left behind
    (with its connection closed) when the limit is over.
    """
    with translated(image):
        client = engine.connect(limit_s=limit_s)
    problems: list[str] = []
    worker = threading.Thread(target=_pull, args=(client, image, problems), name="image-pull", daemon=True)
    worker.start()
    worker.join(limit_s)
    client.close()
    if worker.is_alive():
        return f"the pull did not end within {limit_s:g} s"
    return problems[-1] if problems else ""


def _pull(client: docker.APIClient, image: str, problems: list[str]) -> None:
    repository, tag = parse_repository_tag(image)
    try:
        lines: list[dict[str, Any]] = client.pull(repository, tag=tag or "latest", stream=True, decode=True)
        problems += [str(line["error"]) for line in lines if "error" in line]
    except APIError as error:
        problems.append(explain(error))
    except LOST as error:
        problems.append(f"the engine did not answer ({type(error).__name__})")
