"""Shards with commit records, as a trainer leaves them, for tests of what happens to them later."""

import hashlib
import json
import time
from pathlib import Path
from typing import Any

from reliability.tiers.shards import Shard


def digest(content: bytes) -> str:
    return f"blake2b:{hashlib.blake2b(content, digest_size=16).hexdigest()}"


def commit(folder: Path, shard: Shard, content: bytes, *, stored: bool = False, job: str = "lm") -> dict[str, Any]:
    """Write a shard and its record; return it as a source of a restore order."""
    key = shard.stored_key if stored else shard.flat_key
    data = folder / f"{key}.snap"
    data.parent.mkdir(parents=True, exist_ok=True)
    data.write_bytes(content)
    record = {
        "job": job,
        "epoch": shard.epoch,
        "step": shard.step,
        "rank": shard.rank,
        "size_bytes": len(content),
        "digest": digest(content),
        "taken_at": time.time(),
        "stall_s": 0.001,
        "format": "stepkeeper-1",
    }
    data.with_suffix(".json").write_text(json.dumps(record))
    return {"path": str(data), "digest": record["digest"], "size_bytes": len(content)}


def damage(path: str) -> None:
    """Flip one bit of a file and keep its size."""
    file = Path(path)
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(bytes(content))
