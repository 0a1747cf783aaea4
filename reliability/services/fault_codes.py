"""Changes of the fault-code table by people. Each keeps who, when and why; the last of a code is in force."""

from collections.abc import Mapping
from typing import Any

from django.db import IntegrityError, transaction

from reliability.domain.fault_tables import MOST_CHANGED
from reliability.domain.faults import TABLE
from reliability.domain.faults.changing import changed_row, may_be_switched_off, read_code, read_values
from reliability.domain.fields import clean_text
from reliability.errors import InvalidInput, StaleProposal
from reliability.models import FaultCodeChange
from reliability.selectors import fault_codes
from reliability.services import clock, dispatch

Kind = FaultCodeChange.Kind
LONGEST_REASON = 500


def change(
    code: str, *, values: Mapping[str, Any], by: str, reason: str, seen_version: int | None = None
) -> FaultCodeChange:
    """Change what a code means or does, or add a code that is new. Values that are not given stay as they are.

    `seen_version` is the version of the code that the person saw. Raises InvalidInput, or StaleProposal when somebody
    changed the code meanwhile.
    """
    read = read_values(values)
    if not read:
        raise InvalidInput("values", "nothing is to be changed", hint="Give at least one value.")
    standing = _standing(read_code(code))
    kept = {} if standing is None else standing.values
    new = code not in TABLE and (standing is None or standing.kind == Kind.RESET)
    return _keep(code, Kind.ADD if new else Kind.CHANGE, {**kept, **read}, standing, by, reason, seen_version)


def switch(code: str, *, on: bool, by: str, reason: str, seen_version: int | None = None) -> FaultCodeChange:
    """Switch a code off, so that no line stands for it any more and it asks for nothing, or on again."""
    standing = _known(code)
    if not on:
        may_be_switched_off(TABLE.lookup(code))
    values = {**(standing.values if standing else {}), "enabled": on}
    return _keep(code, Kind.ENABLE if on else Kind.DISABLE, values, standing, by, reason, seen_version)


def reset(code: str, *, by: str, reason: str, seen_version: int | None = None) -> FaultCodeChange:
    """Take back all changes of a code: it is as shipped again; an added one is gone."""
    standing = _known(code)
    if standing is None or standing.kind == Kind.RESET:
        raise InvalidInput("code", f"{code} is as shipped", hint="There is nothing to take back.")
    return _keep(code, Kind.RESET, {}, standing, by, reason, seen_version)


def _standing(code: str) -> FaultCodeChange | None:
    return FaultCodeChange.objects.filter(code=code).order_by("-version").first()


def _known(code: str) -> FaultCodeChange | None:
    standing = _standing(code)
    gone = standing is None or standing.kind == Kind.RESET
    if gone and code not in TABLE:
        raise InvalidInput("code", f"{code!r} is no code of the table", hint="Look it up on the page of fault codes.")
    return standing


def _keep(
    code: str,
    kind: FaultCodeChange.Kind,
    values: dict[str, Any],
    standing: FaultCodeChange | None,
    by: str,
    reason: str,
    seen_version: int | None,
) -> FaultCodeChange:
    why = clean_text(reason.strip())
    if not why or len(why) > LONGEST_REASON:
        raise InvalidInput(
            "reason", f"is needed, at most {LONGEST_REASON} characters", hint="It is kept with the change."
        )
    version = standing.version if standing else 0
    if seen_version is not None and seen_version != version:
        raise _overtaken(code)
    if kind != Kind.RESET:
        changed_row(TABLE, code, values)
        _room_for(code)
    try:
        with transaction.atomic():
            kept = FaultCodeChange.objects.create(
                code=code,
                version=version + 1,
                kind=kind,
                values=values,
                reason=why,
                changed_by=by,
                changed_at=clock.now(),
            )
    except IntegrityError as error:
        raise _overtaken(code) from error
    dispatch.changed("overview")
    return kept


def _room_for(code: str) -> None:
    """Raise InvalidInput (field `code`) when more would differ than is sent to the nodes."""
    differing = fault_codes.changes_in_force()[1]
    if code not in differing and len(differing) >= MOST_CHANGED:
        hint = "Take changes back that are not needed any more."
        raise InvalidInput("code", f"{len(differing)} codes differ from the table as shipped, no more can", hint=hint)


def _overtaken(code: str) -> StaleProposal:
    return StaleProposal(f"Somebody changed {code} meanwhile.", hint="Look at it again before you change it.")
