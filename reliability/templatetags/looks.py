"""Which colour and shape stand for a state; the shape says the same as the colour."""

from typing import Any

from reliability.domain import precision
from reliability.domain.failover import Kind, State
from reliability.domain.faults import Action, FaultClass
from reliability.domain.health import NodeHealth
from reliability.domain.ledger import Standing
from reliability.domain.modes import Mode
from reliability.domain.room import Level
from reliability.domain.standby import Verdict

HEALTH_LOOK = {
    NodeHealth.HEALTHY: ("ok", "check"),
    NodeHealth.DEGRADED: ("warn", "exclaim"),
    NodeHealth.UNHEALTHY: ("bad", "x"),
    NodeHealth.UNREACHABLE: ("mute", "plug-off"),
    NodeHealth.UNKNOWN: ("mute", "question"),
}
STATE_LOOK = {
    "pending": ("mute", "clock"),
    "starting": ("info", "refresh"),
    "running": ("ok", "jobs"),
    "recovering": ("warn", "refresh"),
    "waiting": ("bad", "hand"),
    "completed": ("ok", "check"),
    "recovered": ("ok", "check"),
    "unharmed": ("ok", "check"),
    "failed": ("bad", "x"),
    "stopped": ("mute", "stop"),
    "exited": ("ok", "check"),
    State.AWAITING_APPROVAL: ("bad", "hand"),
    State.FENCE_UNCONFIRMED: ("warn", "exclaim"),
    State.WAITING_FOR_STANDBY: ("warn", "clock"),
    State.SUPERSEDED: ("mute", "arrow"),
    State.REJECTED: ("mute", "x"),
    State.CANCELLED: ("mute", "stop"),
    "refused": ("bad", "x"),
    "expired": ("warn", "clock"),
    "done": ("ok", "check"),
}
CLASS_LOOK = {
    FaultClass.HARDWARE: ("bad", "nodes"),
    FaultClass.SOFTWARE: ("warn", "api"),
    FaultClass.APPLICATION: ("warn", "api"),
    FaultClass.NETWORK: ("warn", "plug-off"),
    FaultClass.STORAGE: ("warn", "snapshots"),
    FaultClass.THERMAL: ("bad", "flame"),
    FaultClass.UNKNOWN: ("mute", "question"),
}
ACTION_LOOK = {
    Action.OBSERVE: ("mute", "info"),
    Action.HOLD: ("warn", "lock"),
    Action.RESTART_IN_PLACE: ("info", "restore"),
    Action.FAILOVER: ("bad", "failovers"),
}
MODE_LOOK = {
    Mode.SHADOW: ("mute", "info"),
    Mode.PROPOSE: ("warn", "hand"),
    Mode.AUTOMATIC: ("info", "refresh"),
}
JUDGED_LOOK = {
    precision.Verdict.RIGHT: ("ok", "check"),
    precision.Verdict.WRONG: ("bad", "x"),
    precision.Verdict.UNCLEAR: ("mute", "question"),
}
KIND_LOOK = {Kind.FAILOVER: ("info", "failovers"), Kind.RESTART_IN_PLACE: ("info", "restore")}
VERDICT_LOOK = {
    Verdict.PASS: ("ok", "check"),
    Verdict.FAIL: ("bad", "x"),
    Verdict.CRASH: ("bad", "bolt"),
    Verdict.TIMEOUT: ("warn", "clock"),
}
STANDING_LOOK = {
    Standing.ABSENT: ("mute", "circle-dashed"),
    Standing.WRITING: ("info", "refresh"),
    Standing.COMMITTED: ("info", "check"),
    Standing.VERIFIED: ("ok", "circle-check"),
    Standing.TRIAL_RESTORED: ("ok", "restore"),
    Standing.SUPERSEDED: ("mute", "arrow"),
    Standing.CORRUPT: ("bad", "x"),
    Standing.LOST: ("warn", "plug-off"),
    Standing.REMOVED: ("mute", "stop"),
    Standing.ABANDONED: ("mute", "x"),
}
STANDING_WORD = {Standing.ABSENT: "not there", Standing.TRIAL_RESTORED: "trial-restored"}
ROOM_LOOK = {Level.LOW: ("warn", "exclaim"), Level.FULL: ("bad", "x")}
CHECK_LOOK = {
    "passes": ("ok", "check"),
    "fails": ("bad", "x"),
    "no result": ("warn", "question"),
    "out of date": ("warn", "clock"),
    "awaited": ("mute", "clock"),
}
LOOKS: dict[str, dict[Any, tuple[str, str]]] = {
    "health": HEALTH_LOOK,
    "check": CHECK_LOOK,
    "state": STATE_LOOK,
    "class": CLASS_LOOK,
    "action": ACTION_LOOK,
    "kind": KIND_LOOK,
    "mode": MODE_LOOK,
    "judged": JUDGED_LOOK,
    "verdict": VERDICT_LOOK,
    "standing": STANDING_LOOK,
    "room": ROOM_LOOK,
}
