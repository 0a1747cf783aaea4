"""How does a node join, and how does an agent come back?

The join token is for a new node; afterwards the node's own token is used. A server that is away is asked again for
ever; a refusal that will not change by waiting ends the agent with a sentence that says what to do.
"""

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from reliability.agent import identity as identities
from reliability.agent.collectors import host
from reliability.agent.config import AgentConfig
from reliability.agent.identity import Identity
from reliability.agent.server import Server, ServerAway, ServerRefused
from reliability.domain.retrying import LONGEST_WAIT_S
from reliability.errors import InvalidInput, ReliabilityError

VERSION = "0.1.0"
_TAKEN = 409
_UNAUTHORIZED = {401, 403}

log = logging.getLogger("stepkeeper.agent")


class JoinRefused(ReliabilityError):
    """The server does not let this node in."""

    code = "join_refused"


def body_of(config: AgentConfig, incarnation: str, containers: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the registration of this node."""
    return {
        "name": config.name,
        "address": config.address,
        "runtime": config.runtime,
        "incarnation": incarnation,
        "role_hint": config.role,
        "tier": config.tier,
        "preemptible": config.preemptible,
        "failure_domain": config.failure_domain,
        "hardware_ids": host.hardware_ids(),
        "host": host.host_facts(),
        "version": VERSION,
        "containers": list(containers),
    }


def register(
    config: AgentConfig,
    server: Server,
    *,
    incarnation: str,
    containers: Callable[[], Sequence[Mapping[str, Any]]],
    stopping: threading.Event,
) -> Identity | None:
    """Return this node's identity once the server took it in; None when asked to stop before that.

    Raises JoinRefused when waiting does not help.
    """
    kept = identities.load(config.data_dir)
    wait_s, told = 0.1, ""
    while not stopping.is_set():
        try:
            return register_once(config, server, kept, body_of(config, incarnation, containers()))
        except ServerAway as error:
            if error.message != told:
                log.warning("server away, asking again: node=%s reason=%s", config.name, error.message)
            told = error.message
        stopping.wait(wait_s)
        wait_s = min(2 * wait_s, LONGEST_WAIT_S)
    return None


def register_once(config: AgentConfig, server: Server, kept: Identity | None, body: Mapping[str, Any]) -> Identity:
    """Ask once, first as the known node, then with the join token. Raises ServerAway, JoinRefused, InvalidInput."""
    if kept:
        try:
            return _accepted(config, server.register(body, token=kept.token), kept)
        except ServerRefused as error:
            if error.status not in _UNAUTHORIZED or config.join_token_file is None:
                raise _refusal(config, error, "the token in the data folder") from error
            log.warning("own token refused, joining anew: node=%s reason=%s", config.name, error.message)
    if config.join_token_file is None:
        raise InvalidInput(
            "--join-token-file",
            "is needed to join the first time",
            hint="The server keeps the token in join_token.secret.",
        )
    try:
        return _accepted(config, server.register(body, token=config.join_token_file.read_text().strip()), None)
    except ServerRefused as error:
        raise _refusal(config, error, f"the join token in {config.join_token_file}") from error


def _accepted(config: AgentConfig, answer: Mapping[str, Any], kept: Identity | None) -> Identity:
    try:
        identity = Identity(
            node=str(answer["node"]),
            token=str(answer["token"] if kept is None else answer.get("token") or kept.token),
            order_key=str(answer["order_key"]),
            queue=str(answer["queue"]),
            broker_url=str(answer["broker_url"]),
            heartbeat_s=float(answer["heartbeat_s"]),
            lease_s=float(answer["lease_s"]),
            silence_s=float(answer.get("silence_s") or 0.0),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise JoinRefused(
            f"The server's answer cannot be read: {error!r}.", hint="Use the same version on both."
        ) from error
    identities.save(config.data_dir, identity)
    return identity


def _refusal(config: AgentConfig, error: ServerRefused, token: str) -> ReliabilityError:
    if error.status in _UNAUTHORIZED:
        hint = error.hint or "Copy the token from the server and start the agent again."
        return JoinRefused(f"The server refused {token}: {error.message}", hint=hint)
    if error.status == _TAKEN:
        # Another agent of this name was heard just now; where that one is gone, waiting helps.
        return ServerAway(f"The name {config.name} is taken: {error.message}")
    return JoinRefused(f"The server refused this node: {error.message}", hint=error.hint)
