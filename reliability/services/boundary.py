"""How does one poison row not stop the others? Each piece of periodic work runs behind this boundary."""

import logging
from collections.abc import Callable
from typing import Any

log = logging.getLogger(__name__)


def apart(what: str, work: Callable[..., Any], *args: Any, **context: Any) -> bool:
    """Run one piece of work; log a failure with its context and go on. Returns whether it succeeded."""
    try:
        work(*args)
    except Exception:
        log.exception("%s failed; it is tried again by the next reconciliation. %s", what, context or "")
        return False
    return True
