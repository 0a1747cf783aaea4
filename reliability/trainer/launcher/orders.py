"""What does the agent want this launcher to run? Reads the epoch files of the job's folder."""

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_EPOCH_FILE = re.compile(r"epoch-(\d+)\.json")
MODES = ("fork", "plain")


class BadOrder(ValueError):
    """An epoch file does not say what it must. The message names the field."""


@dataclass(frozen=True, kw_only=True)
class RankOrder:
    """One rank to run and what its environment holds beyond the launcher's own."""

    rank: int
    local_rank: int
    env: dict[str, str]


@dataclass(frozen=True, kw_only=True)
class EpochOrder:
    """One attempt: end everything older, then run `ranks` (none when `stop`)."""

    epoch: int
    stop: bool
    program: tuple[str, ...]
    mode: str
    workdir: str
    ranks: tuple[RankOrder, ...]


def parse(raw: Any, epoch: int) -> EpochOrder:
    """Return the order in a decoded epoch file. Raises BadOrder."""
    if not isinstance(raw, dict):
        raise BadOrder("must be an object")
    if _whole(raw.get("epoch"), "epoch") != epoch:
        raise BadOrder(f"epoch must be {epoch}, as in the file name, not {raw['epoch']}")
    stop = raw.get("stop", False)
    if not isinstance(stop, bool):
        raise BadOrder(f"stop must be true or false, not {stop!r}")
    if stop:
        return EpochOrder(epoch=epoch, stop=True, program=(), mode="fork", workdir="", ranks=())
    return EpochOrder(
        epoch=epoch,
        stop=False,
        program=_program(raw.get("program")),
        mode=_mode(raw.get("mode", "fork")),
        workdir=_text(raw.get("workdir") or "", "workdir"),
        ranks=_ranks(raw.get("ranks")),
    )


def _whole(value: Any, where: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise BadOrder(f"{where} must be a whole number, not {value!r}")
    return value


def _text(value: Any, where: str) -> str:
    if not isinstance(value, str) or "\0" in value:
        raise BadOrder(f"{where} must be text, not {value!r}")
    return value


def _mode(value: Any) -> str:
    if value not in MODES:
        raise BadOrder(f"mode must be one of {', '.join(MODES)}, not {value!r}")
    return str(value)


def _program(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list) or not value:
        raise BadOrder("program must be a list of at least one word")
    return tuple(_text(word, f"program[{index}]") for index, word in enumerate(value))


def _ranks(value: Any) -> tuple[RankOrder, ...]:
    if not isinstance(value, list) or not value:
        raise BadOrder("ranks must be a list of at least one rank")
    ranks = tuple(_rank(item, f"ranks[{index}]") for index, item in enumerate(value))
    if len({rank.rank for rank in ranks}) < len(ranks):
        raise BadOrder("ranks names a rank twice")
    return ranks


def _rank(value: Any, where: str) -> RankOrder:
    if not isinstance(value, dict):
        raise BadOrder(f"{where} must be an object")
    env = value.get("env", {})
    if not isinstance(env, dict):
        raise BadOrder(f"{where}.env must be an object")
    return RankOrder(
        rank=_whole(value.get("rank"), f"{where}.rank"),
        local_rank=_whole(value.get("local_rank"), f"{where}.local_rank"),
        env={_variable(name, where): _text(text, f"{where}.env.{name}") for name, text in env.items()},
    )


def _variable(name: str, where: str) -> str:
    if not name or "=" in name or "\0" in name:
        raise BadOrder(f"{where}.env has the impossible name {name!r}")
    return name


class OrderBook:
    """Finds the highest readable epoch file; remembers what was wrong with the others to say it once."""

    def __init__(self, ctl: Path) -> None:
        self._ctl = ctl
        self._said: dict[int, str] = {}
        self.complaints: list[str] = []

    def newest(self, *, above: int) -> EpochOrder | None:
        """Return the order with the highest epoch that is greater than `above`, or None."""
        for epoch in sorted(self._epochs(), reverse=True):
            if epoch <= above:
                return None
            order = self._read(epoch)
            if order is not None:
                return order
        return None

    def taken_up(self) -> int:
        """Return the highest epoch that left traces of having run, 0 when there is none.

        A launcher that comes up in a new container must not run an attempt again that has run already.
        """
        traces = (re.match(r"(?:run|exit)-(\d+)[.-]", path.name) for path in self._ctl.glob("*.json"))
        return max((int(trace[1]) for trace in traces if trace), default=0)

    def _epochs(self) -> list[int]:
        names = (_EPOCH_FILE.fullmatch(path.name) for path in self._ctl.iterdir())
        return [int(name[1]) for name in names if name]

    def _read(self, epoch: int) -> EpochOrder | None:
        path = self._ctl / f"epoch-{epoch}.json"
        try:
            return parse(json.loads(path.read_bytes()), epoch)
        except (OSError, ValueError, RecursionError) as error:
            complaint = f"{path.name} is ignored: {error}"
            if self._said.get(epoch) != complaint:
                self._said[epoch] = complaint
                self.complaints.append(complaint)
            return None
