"""Is this a job that can be run? Reads a submitted description field by field and says what is wrong."""

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reliability.domain import class_actions, program_folders
from reliability.domain import fields as f
from reliability.domain.faults import Action
from reliability.domain.fields import Reader
from reliability.domain.planner.steps import MOST_STEPS
from reliability.domain.policy import Approval, LeaseRule
from reliability.domain.reports import RUNTIMES
from reliability.errors import InvalidInput
from reliability.models import Job
from reliability.tiers import choosing

_text = f.text(most=255)


def _argv(value: object, path: str) -> list[str]:
    words: list[str] = f.list_of(f.text(most=4000), most=1000)(value, path)
    if not words or not words[0].strip():
        raise InvalidInput(
            path, "is empty", hint='Give the command as a list, for example ["train.py", "--lr", "0.1"].'
        )
    return words


def _environment(value: object, path: str) -> dict[str, str]:
    raw = f.mapping(value, path)
    for name, content in raw.items():
        if not name or "=" in name or not isinstance(content, str):
            raise InvalidInput(f"{path}.{name}", "is not a variable", hint="Names without '=', values as text.")
        if name.startswith("STEPKEEPER_"):
            raise InvalidInput(f"{path}.{name}", "is set by Stepkeeper itself", hint="Leave it out.")
    return {name: f.clean_text(content) for name, content in raw.items()}


_MOUNT = f.record(
    {
        "source": (f.text(most=255, least=1), True),
        "target": (f.text(most=255, least=1), True),
        "read_only": (f.nullable(f.boolean, False), False),
    }
)


def _mounts(value: object, path: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = f.list_of(_MOUNT, most=100)(value, path)
    for place, mount in enumerate(found):
        for end in ("source", "target"):
            if not Path(mount[end]).is_absolute():
                raise InvalidInput(f"{path}.{place}.{end}", "is not absolute", hint="Give the full path of a folder.")
        if mount["target"].rstrip("/") in {"", "/stepkeeper", "/stepkeeper-snapshots"}:
            raise InvalidInput(f"{path}.{place}.target", "is not free", hint="Name another folder in the container.")
    return found


_RESOURCES = f.record(
    {
        "memory_bytes": (f.nullable(f.integer(), 0), False),
        "cpus": (f.nullable(f.number(least=0, most=100_000), 0.0), False),
        "shm_bytes": (f.nullable(f.integer(), 0), False),
    }
)


@dataclass(frozen=True)
class _Field:
    """How a field is read, and what it is when it is missing; `...` means that it must be given."""

    read: Reader
    default: Any = ...


FIELDS: Mapping[str, _Field] = {
    "name": _Field(f.name),
    "nodes": _Field(f.integer(least=1, most=100_000)),
    "ranks_per_node": _Field(f.integer(least=1, most=1024), 1),
    "runtime": _Field(f.one_of(*RUNTIMES)),
    "image": _Field(_text, ""),
    "program": _Field(_argv),
    "mode": _Field(f.one_of(*Job.Mode.values), Job.Mode.FORK.value),
    "preload": _Field(f.list_of(_text, most=100), []),
    "env": _Field(_environment, {}),
    "workdir": _Field(_text, ""),
    "mounts": _Field(_mounts, []),
    "resources": _Field(_RESOURCES, {}),
    "snapshot_folder": _Field(program_folders.read, None),
    "storage_dir": _Field(f.text(most=255, least=1)),
    "master_port": _Field(f.integer(least=1024, most=65_000), 29_500),
    "approval": _Field(f.one_of(*Approval), Approval.MANUAL.value),
    "unknown_action": _Field(
        f.one_of(Action.HOLD, Action.RESTART_IN_PLACE, Action.FAILOVER), Action.RESTART_IN_PLACE.value
    ),
    "class_actions": _Field(class_actions.read, {}),
    "lease_rule": _Field(f.one_of(*LeaseRule), LeaseRule.STOP_WHEN_STUCK.value),
    "restart_budget": _Field(f.integer(most=10_000), 5),
    "warn_full_within_s": _Field(f.nullable(f.number(least=0, most=31_536_000)), None),
    "warn_free_share": _Field(f.nullable(f.number(least=0, most=0.95)), None),
    "partner_copies": _Field(f.boolean, False),
    "partner_bytes_per_s": _Field(f.number(least=0, most=1e15), 0.0),
    "every_steps": _Field(f.integer(least=1, most=MOST_STEPS), 20),
}


def read(spec: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a job. Raises InvalidInput naming the first field that is wrong, and the others below."""
    raw = f.mapping(spec, "job")
    wrong = [_unknown(str(name)) for name in raw if name not in FIELDS]
    values: dict[str, Any] = {}
    for name, field in FIELDS.items():
        try:
            values[name] = _value(name, field, raw)
        except InvalidInput as error:
            wrong.append(error)
    if wrong:
        raise _all_of(wrong)
    _check_together(values)
    return values


def _unknown(name: str) -> InvalidInput:
    return InvalidInput(name, "is no field of a job", hint=f"Fields: {', '.join(FIELDS)}.")


def _all_of(wrong: Sequence[InvalidInput]) -> InvalidInput:
    """Return the first error; its hint tells the others too, so that a file is mended in one go."""
    first, *others = wrong
    lines = [first.hint, *(f"{error.message}. {error.hint}".strip() for error in others)]
    return InvalidInput(first.field, first.message.removeprefix(f"{first.field}: "), hint="\n  ".join(lines))


def _value(name: str, field: _Field, raw: Mapping[str, Any]) -> Any:
    if name in raw:
        return field.read(raw[name], name)
    if field.default is ...:
        raise InvalidInput(name, "is missing", hint="Every job needs it.")
    return field.default


def _check_together(values: Mapping[str, Any]) -> None:
    if values["runtime"] == "docker" and not values["image"]:
        raise InvalidInput("image", "is missing", hint="A job in containers needs an image, best by digest.")
    if values["runtime"] == "process" and values["image"]:
        raise InvalidInput("image", "means nothing to the process runtime", hint="Leave it out, or use docker.")
    if values["runtime"] == "process" and values["mounts"]:
        raise InvalidInput("mounts", "mean nothing to the process runtime", hint="Its ranks see the node's own paths.")
    if values["partner_copies"] and values["nodes"] < 2:
        raise InvalidInput("partner_copies", "need a second node", hint="Leave it out for a job on one node.")
    if values["workdir"] and not Path(values["workdir"]).is_absolute():
        raise InvalidInput("workdir", "is not absolute", hint="Give the full path as the program sees it.")
    if Job.objects.filter(name=values["name"]).exists():
        raise InvalidInput("name", f"{values['name']} is taken", hint="Give the job a name that no other job has had.")
    check_storage(values["storage_dir"])


def check_storage(folder: str) -> None:
    """Raise InvalidInput when the storage cannot be written, as far as this machine can tell.

    A folder whose parent does not exist here is mounted on the nodes alone, and they alone hold the credentials of
    an object store: they report what is wrong with it.
    """
    path = choosing.folder_of(folder)
    if path is None:
        return
    if path.exists() and not path.is_dir():
        raise InvalidInput("storage_dir", f"{folder} is not a folder", hint="Name a folder that all nodes share.")
    if not path.parent.is_dir():
        return
    try:
        path.mkdir(exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=path, prefix=".stepkeeper-"):
            pass
    except OSError as error:
        raise InvalidInput(
            "storage_dir",
            f"{folder} cannot be written ({error.strerror})",
            hint="Give the server's and the agents' user the right to write there, or name another folder.",
        ) from error
