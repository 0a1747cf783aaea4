"""How is an agent told what it is? Options of the command line, each also as STEPKEEPER_AGENT_<NAME>."""

import argparse
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from reliability.agent.collectors.sources import odd_kind
from reliability.errors import InvalidInput
from reliability.tiers import opening

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,79}")
_YES = {"1", "yes", "true", "on"}
_NO = {"", "0", "no", "false", "off"}


@dataclass(frozen=True, kw_only=True)
class LogChoice:
    """Which log of the kernel is followed. `path`: of the log, or of journalctl; "" for the usual one.

    programs: whether lines count that a program wrote into it, which only root can.
    """

    kind: str
    path: str = ""
    programs: bool = True


@dataclass(frozen=True, kw_only=True)
class AgentConfig:
    """What one agent was started with, checked."""

    server: str
    name: str
    address: str
    runtime: str
    data_dir: Path
    memory_dir: Path
    ssd_dir: Path
    join_token_file: Path | None
    role: str
    tier: int
    preemptible: bool
    failure_domain: str
    docker_url: str
    storage_bytes_per_s: float
    ca_file: Path | None
    checks: bool = True
    checks_file: Path | None = None
    kernel_log: LogChoice | None = None
    program_output: bool = True


def parse(argv: Sequence[str], environ: Mapping[str, str] = os.environ) -> AgentConfig:
    """Return the checked configuration. Raises InvalidInput that names the option."""
    raw = vars(_parser(environ).parse_args(argv))
    missing = [key for key in ("server", "name", "address", "data_dir", "memory_dir", "ssd_dir") if not raw[key]]
    if missing:
        raise InvalidInput(_option(missing[0]), "is needed", hint=f"Give it, or set {_variable(missing[0])}.")
    return AgentConfig(
        server=_server(raw["server"]),
        name=_matching("name", raw["name"], _NAME, "Letters, digits, '-' and '_', at most 80, as in node-07."),
        address=_address(raw["address"]),
        runtime=_choice("runtime", raw["runtime"], ("docker", "process")),
        data_dir=_folder("data_dir", raw["data_dir"]),
        memory_dir=_folder("memory_dir", raw["memory_dir"]),
        ssd_dir=_folder("ssd_dir", raw["ssd_dir"]),
        join_token_file=_file("join_token_file", raw["join_token_file"]),
        role=_choice("role", raw["role"], ("training", "standby")),
        tier=_tier(raw["tier"]),
        preemptible=_flag("preemptible", raw["preemptible"]),
        failure_domain=_domain(raw["failure_domain"]),
        docker_url=raw["docker_url"],
        storage_bytes_per_s=_limit("storage_bytes_per_s", raw["storage_bytes_per_s"]),
        ca_file=_file("ca_file", raw["ca_file"]),
        checks=_flag("checks", raw["checks"]),
        checks_file=_file("checks_file", raw["checks_file"]),
        kernel_log=_kernel_log(raw),
        program_output=_flag("program_output", raw["program_output"]),
    )


def _parser(environ: Mapping[str, str]) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m reliability.agent",
        description="Runs on a training node: carries out the server's orders and reports what happens there.",
        epilog="Each option may be given as an environment variable, for example STEPKEEPER_AGENT_SERVER.",
    )

    def add(key: str, text: str, default: str = "") -> None:
        parser.add_argument(_option(key), default=environ.get(_variable(key), default), help=text)

    add("server", "address of the server, as in https://stepkeeper.example:8000")
    add("name", "name of this node")
    add("address", "address at which the other nodes reach this one")
    add("runtime", "docker, or process where there is no container engine", "docker")
    add("data_dir", "folder for the agent's identity, spool and records")
    add("memory_dir", "folder on tmpfs: the memory tier")
    add("ssd_dir", "folder on the local SSD: the SSD tier")
    add("join_token_file", "file with the join token; needed the first time only")
    add("role", "training or standby", "standby")
    add("tier", "priority as a standby, 1 is used first", "1")
    add("failure_domain", "what fails together with this node, as in rack-7; empty when nothing is known to")
    add("docker_url", "address of the node's container engine", "unix:///run/docker.sock")
    add("storage_bytes_per_s", "how fast snapshots may go to storage, in bytes per second; 0 means no limit", "0")
    add("ca_file", "certificates to trust for https, PEM")
    add("checks", "yes, or no to leave out all checks of the node", "yes")
    add("checks_file", "file with what is to be different about the checks, TOML; see docs/checks.md")
    add("kernel_log", "kmsg, journal, file:PATH, off, or auto: kmsg, and off for the process runtime", "auto")
    add("program_output", "no to look at what ranks print only when they have ended", "yes")
    add("kernel_log_programs", "no to pass over what programs of root wrote into the kernel's log", "yes")
    parser.add_argument(
        "--preemptible",
        nargs="?",
        const="yes",
        default=environ.get(_variable("preemptible"), ""),
        help="its own work may be stopped when the node is needed",
    )
    return parser


def _option(key: str) -> str:
    return "--" + key.replace("_", "-")


def _variable(key: str) -> str:
    return f"STEPKEEPER_AGENT_{key.upper()}"


def _server(value: str) -> str:
    parts = urlsplit(value)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise InvalidInput("--server", f"{value!r} is not an address", hint="As in http://10.0.0.5:8000.")
    return value.rstrip("/")


def _matching(key: str, value: str, pattern: re.Pattern[str], hint: str) -> str:
    if not pattern.fullmatch(value):
        raise InvalidInput(_option(key), f"{value!r} cannot be used", hint=hint)
    return value


def _domain(value: str) -> str:
    if len(value) > 80 or not value.isprintable():
        raise InvalidInput("--failure-domain", f"{value[:80]!r} cannot be used", hint="At most 80 letters, as rack-7.")
    return value.strip()


def _address(value: str) -> str:
    if not value.strip() or any(character.isspace() or character == "/" for character in value):
        raise InvalidInput("--address", f"{value!r} is not a host", hint="An IP address or host name, without a port.")
    return value


def _choice(key: str, value: str, allowed: tuple[str, ...]) -> str:
    if value not in allowed:
        raise InvalidInput(_option(key), f"{value!r} is not known", hint=f"One of: {', '.join(allowed)}.")
    return value


def _tier(value: str) -> int:
    if not re.fullmatch("0?[1-9]|[1-9][0-9]", value):
        raise InvalidInput("--tier", f"{value!r} is not a priority", hint="A whole number from 1 (used first) to 99.")
    return int(value)


def _kernel_log(raw: Mapping[str, str]) -> LogChoice | None:
    """Nodes of the process runtime often share one machine, and so its log: it is followed there when asked for."""
    kind, _, path = raw["kernel_log"].partition(":")
    if kind == "auto":
        kind = "kmsg" if raw["runtime"] == "docker" else "off"
    hint = "One of: auto, kmsg, journal, file:/path/of/the/log, off; kmsg and journal may name a path too."
    if kind not in {"kmsg", "journal", "file", "off"} or (kind == "file") > bool(path) or (kind == "off" and path):
        raise InvalidInput("--kernel-log", f"{raw['kernel_log']!r} cannot be used", hint=hint)
    if kind == "file":
        _no_odd_kind(Path(path))
    programs = _flag("kernel_log_programs", raw["kernel_log_programs"])
    return None if kind == "off" else LogChoice(kind=kind, path=path, programs=programs)


def _no_odd_kind(path: Path) -> None:
    """A log that is not there yet, or not to be seen now, may come; what is no file will not become one."""
    try:
        kind = odd_kind(path.stat().st_mode)
    except OSError:
        return
    if kind:
        hint = "Name the log file itself, as in file:/var/log/kern.log, or kmsg for the kernel's device."
        raise InvalidInput("--kernel-log", f"{path} is {kind}", hint=hint)


def _limit(key: str, value: str) -> float:
    try:
        number = float(value)
    except ValueError:
        number = -1.0
    if not 0 <= number < 1e15:
        raise InvalidInput(_option(key), f"{value!r} is no rate", hint="Bytes per second, as in 100e6; 0 for no limit.")
    return number


def _flag(key: str, value: str) -> bool:
    if value.lower() not in _YES | _NO:
        raise InvalidInput(_option(key), f"{value!r} is neither yes nor no", hint="yes or no.")
    return value.lower() in _YES


def _file(key: str, value: str) -> Path | None:
    if not value:
        return None
    path = Path(value).absolute()
    if not os.access(path, os.R_OK) or path.is_dir():
        raise InvalidInput(_option(key), f"{path} cannot be read", hint="Name a file that the agent's user can read.")
    return path


def _folder(key: str, value: str) -> Path:
    """Make a folder for the agent's user alone, durable; one that is there already is left as it is."""
    path = Path(value).absolute()
    missing = [each for each in (path, *path.parents) if not each.exists()]
    try:
        for each in reversed(missing):
            each.mkdir(mode=0o700, exist_ok=True)
            opening.sync_folder(each.parent)
        path.mkdir(exist_ok=True)
    except OSError as error:
        raise InvalidInput(_option(key), f"{path}: {error.strerror}", hint="Name a folder that can be made.") from error
    if not os.access(path, os.W_OK | os.X_OK):
        raise InvalidInput(_option(key), f"{path} is not writable", hint="Give the agent's user the right to write.")
    return path
