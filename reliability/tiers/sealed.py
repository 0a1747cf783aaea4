"""How is a small JSON file on storage guarded, so that a flipped bit is noticed before anything in it is believed?"""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

CHECK = "check"


def composed(body: Mapping[str, Any]) -> bytes:
    """Return the bytes of a file that carries a digest of what it says."""
    return json.dumps({CHECK: _check(body), **body}, separators=(",", ":")).encode()


def parsed(raw: bytes) -> dict[str, Any] | None:
    """Return what such a file says; None when it is not what was written."""
    try:
        body = json.loads(raw)
        said = body.pop(CHECK)
    except (ValueError, RecursionError, KeyError, AttributeError, TypeError):
        return None
    if not isinstance(body, dict) or said != _check(body) or composed(body) != raw:
        return None
    return body


def _check(body: Mapping[str, Any]) -> str:
    text = json.dumps(body, separators=(",", ":"), sort_keys=True).encode()
    return hashlib.blake2b(text, digest_size=16).hexdigest()
