"""The failover state machine as data: from, event, to, and a sentence that a person reads when the row runs.

A state is a guarantee, a transition is what acts. Every step is idempotent and may be repeated until its
event is known. The same table draws the diagram in docs/method.md.
"""

from dataclasses import dataclass
from enum import StrEnum

from reliability.errors import IllegalTransition


class State(StrEnum):
    """Where a failover (or a restart in place) stands."""

    AWAITING_APPROVAL = "awaiting_approval"
    FENCING = "fencing"
    FENCE_UNCONFIRMED = "fence_unconfirmed"
    WAITING_FOR_STANDBY = "waiting_for_standby"
    VALIDATING = "validating"
    RESTORING = "restoring"
    STARTING = "starting"
    VERIFYING = "verifying"
    COMPLETED = "completed"
    SUPERSEDED = "superseded"
    REJECTED = "rejected"
    CANCELLED = "cancelled"
    FAILED = "failed"


class Kind(StrEnum):
    """Which recovery it is: the slot moves to a standby (M2), or the node keeps its place (M8)."""

    FAILOVER = "failover"
    RESTART_IN_PLACE = "restart_in_place"


class Event(StrEnum):
    """What moves a failover on."""

    APPROVED = "approved"
    REJECTED = "rejected"
    CANCELLED = "cancelled"
    SUPERSEDED = "superseded"
    FENCED = "fenced"
    FENCE_TIMED_OUT = "fence_timed_out"
    LEASE_RAN_OUT = "lease_ran_out"
    NO_STANDBY = "no_standby"
    STANDBY_FOUND = "standby_found"
    PREEMPTED = "preempted"
    STANDBY_PASSED = "standby_passed"
    STANDBY_REFUSED = "standby_refused"
    RESTORED = "restored"
    SNAPSHOT_REFUSED = "snapshot_refused"
    STARTED = "started"
    START_FAILED = "start_failed"
    VERIFIED = "verified"
    VERIFY_FAILED = "verify_failed"
    GAVE_UP = "gave_up"


@dataclass(frozen=True)
class Row:
    """One transition."""

    source: State
    event: Event
    target: State
    sentence: str


OPEN = (
    State.AWAITING_APPROVAL,
    State.FENCING,
    State.FENCE_UNCONFIRMED,
    State.WAITING_FOR_STANDBY,
    State.VALIDATING,
    State.RESTORING,
    State.STARTING,
    State.VERIFYING,
)
TERMINAL = (State.COMPLETED, State.SUPERSEDED, State.REJECTED, State.CANCELLED, State.FAILED)
RUNNING = OPEN[1:]
"""Open states in which the old attempt is fenced or being fenced: the point of no return is passed."""

TABLE: tuple[Row, ...] = (
    Row(State.AWAITING_APPROVAL, Event.APPROVED, State.FENCING, "Approved: stop every rank of the old attempt."),
    Row(State.AWAITING_APPROVAL, Event.REJECTED, State.REJECTED, "Rejected by a person: nothing was touched."),
    Row(State.AWAITING_APPROVAL, Event.CANCELLED, State.CANCELLED, "Cancelled before anything was touched."),
    Row(
        State.AWAITING_APPROVAL,
        Event.SUPERSEDED,
        State.SUPERSEDED,
        "The situation changed before a decision: another request takes this one's place.",
    ),
    Row(
        State.FENCING,
        Event.FENCED,
        State.VALIDATING,
        "The old attempt has ended or can write no more: check the standby.",
    ),
    Row(
        State.FENCING,
        Event.FENCE_TIMED_OUT,
        State.FENCE_UNCONFIRMED,
        "A node did not confirm that it stopped: wait until its lease has run out; power it off if you can.",
    ),
    Row(State.FENCE_UNCONFIRMED, Event.FENCED, State.VALIDATING, "The late confirmation came: check the standby."),
    Row(
        State.FENCE_UNCONFIRMED,
        Event.LEASE_RAN_OUT,
        State.VALIDATING,
        "What a node that did not confirm its end still writes is refused: check the standby.",
    ),
    Row(
        State.VALIDATING,
        Event.NO_STANDBY,
        State.WAITING_FOR_STANDBY,
        "No standby is fit: waiting for one; it goes on by itself as soon as one is there.",
    ),
    Row(State.WAITING_FOR_STANDBY, Event.STANDBY_FOUND, State.VALIDATING, "A standby is there: check it."),
    Row(
        State.VALIDATING,
        Event.PREEMPTED,
        State.VALIDATING,
        "The job on a standby that may be preempted was stopped: wait until its node is free.",
    ),
    Row(
        State.VALIDATING,
        Event.STANDBY_REFUSED,
        State.VALIDATING,
        "The standby did not pass: it is set aside, the next is tried.",
    ),
    Row(
        State.VALIDATING, Event.STANDBY_PASSED, State.RESTORING, "Every node is fit: bring each rank's snapshot to it."
    ),
    Row(
        State.RESTORING,
        Event.SNAPSHOT_REFUSED,
        State.RESTORING,
        "A copy could not be read or did not verify: the next older restore point is tried.",
    ),
    Row(
        State.RESTORING,
        Event.STANDBY_REFUSED,
        State.VALIDATING,
        "The standby failed while restoring: the next is tried.",
    ),
    Row(State.RESTORING, Event.RESTORED, State.STARTING, "All ranks hold the restore point: start the new attempt."),
    Row(State.STARTING, Event.STANDBY_REFUSED, State.VALIDATING, "The standby failed to start: the next is tried."),
    Row(State.STARTING, Event.START_FAILED, State.RESTORING, "The start failed: restore and start once more."),
    Row(State.STARTING, Event.STARTED, State.VERIFYING, "All ranks run: wait for the first step of each."),
    Row(
        State.VERIFYING,
        Event.VERIFY_FAILED,
        State.RESTORING,
        "A rank did not reach its first step: fall back and try again.",
    ),
    Row(
        State.VERIFYING,
        Event.STANDBY_REFUSED,
        State.VALIDATING,
        "The standby failed at its first step: the next is tried.",
    ),
    Row(State.VERIFYING, Event.VERIFIED, State.COMPLETED, "Every rank is past its first step: the job goes on."),
    *(
        Row(state, Event.SUPERSEDED, State.SUPERSEDED, "It can no longer answer what is known: another takes over.")
        for state in RUNNING
    ),
    *(
        Row(state, Event.CANCELLED, State.CANCELLED, "The job was stopped by a person: the recovery ends.")
        for state in RUNNING
    ),
    *(Row(state, Event.GAVE_UP, State.FAILED, "The recovery cannot go on: a person must act.") for state in OPEN),
)

_INDEX = {(row.source, row.event): row for row in TABLE}


def row_for(state: State, event: Event) -> Row:
    """Return the row for an event in a state. Raises IllegalTransition when the table has none."""
    row = _INDEX.get((state, event))
    if row is None:
        raise IllegalTransition(f"A failover in state {state} cannot take the event {event}.")
    return row


def mermaid() -> str:
    """Return the table as a Mermaid state diagram, one line a row, in table order."""
    lines = ["stateDiagram-v2", f"    [*] --> {State.AWAITING_APPROVAL}"]
    lines += [f"    {row.source} --> {row.target}: {row.event}" for row in TABLE]
    lines += [f"    {state} --> [*]" for state in TERMINAL]
    return "\n".join(lines)
