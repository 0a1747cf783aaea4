"""What does a node let another one read? A child of the agent that serves some shards of one job for a while.

It serves the shards that a signed order named, read-only, from this node's memory and SSD, to who proves that it has
the same order's token, on the node's own address alone, and ends with its time or with the agent. A shard in memory is
held while it is served to a restore, so that no rank writes it over; one that is served to a partner is not: a save
never waits for it, and what was written over meanwhile fails its digest at the other end.
"""

import contextlib
import hmac
import json
import os
import secrets
import socket
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from reliability.agent.peer_wire import PIECE_BYTES, Line, PeerGone, proof
from reliability.agent.probes import request
from reliability.errors import CopyMissing, DigestMismatch, ReliabilityError, TierUnreachable
from reliability.tiers import copying, direct, shards
from reliability.tiers.directory import DirectoryTier
from reliability.tiers.records import RecordUnusable
from reliability.tiers.slotmaps import SlotMaps

MOST_CONNECTIONS = 32
"""So many are answered at once."""
MOST_UNPROVEN = 32
"""So many may be open that proved nothing yet; one more ends the oldest of the address that has most of them."""
NEWEST = "newest"


class PeerServer:
    """Serves what one order names. `wanted`: address, job, epoch, token, limit_s, hold, shards, the folders."""

    def __init__(self, wanted: Mapping[str, Any]) -> None:
        self._token = str(wanted["token"])
        self._job, self._epoch = str(wanted["job"]), int(wanted["epoch"])
        self._hold = bool(wanted["hold"])
        self._allowed = {(str(each["tier"]), str(each["key"])) for each in wanted["shards"]}
        self._ranks = {int(rank) for rank in wanted["ranks"]}
        self._tiers = {
            "memory": DirectoryTier(Path(wanted["memory_dir"]) / self._job / "mem"),
            "partner": DirectoryTier(Path(wanted["partner_dir"]) / self._job),
            "ssd": DirectoryTier(Path(wanted["ssd_dir"]) / self._job),
        }
        self._maps = SlotMaps()
        self._end = time.monotonic() + float(wanted["limit_s"])
        self._places = threading.BoundedSemaphore(MOST_CONNECTIONS)
        self._lock = threading.Lock()
        self._unproven: dict[socket.socket, str] = {}

    def run(self, listener: socket.socket) -> None:
        """Serve until the time is over; each connection has a thread of its own, and there are only so many at once.

        Who is silent takes nobody's place: a place among those that are answered is for who proved the token.
        """
        while (left := self._end - time.monotonic()) > 0:
            listener.settimeout(left)
            with contextlib.suppress(TimeoutError):
                connection, address = listener.accept()
                self._let_in(connection, str(address[0]))
                threading.Thread(target=self._serve_one, args=(connection,), daemon=True).start()

    def _let_in(self, connection: socket.socket, address: str) -> None:
        with self._lock:
            if len(self._unproven) >= MOST_UNPROVEN:
                crowd = Counter(self._unproven.values()).most_common(1)[0][0]
                oldest = next(each for each, its_address in self._unproven.items() if its_address == crowd)
                del self._unproven[oldest]
                with contextlib.suppress(OSError):
                    oldest.shutdown(socket.SHUT_RDWR)  # its thread hears the end and closes it
            self._unproven[connection] = address

    def _serve_one(self, connection: socket.socket) -> None:
        with connection:
            try:
                with contextlib.suppress(PeerGone):
                    line = Line(connection, end=self._end)
                    asked = self._proven(line)
                    self._forget(connection)
                    if asked is not None:
                        self._serve(line, *asked)
            finally:
                self._forget(connection)

    def _forget(self, connection: socket.socket) -> None:
        with self._lock:
            self._unproven.pop(connection, None)

    def _proven(self, line: Line) -> tuple[str, str, int] | None:
        """Return (tier, key, start) of who proves that it knows the token; a stranger is told nothing at all."""
        nonce = secrets.token_hex(16)
        line.say({"nonce": nonce})
        asked = line.hear()
        tier, key, start = str(asked.get("tier")), str(asked.get("key")), asked.get("from")
        if not isinstance(start, int) or isinstance(start, bool) or start < 0:
            return None
        expected = proof(self._token, nonce, job=self._job, epoch=self._epoch, tier=tier, key=key, start=start)
        known = hmac.compare_digest(expected.encode(), str(asked.get("proof")).encode())
        return (tier, key, start) if known else None

    def _serve(self, line: Line, tier: str, key: str, start: int) -> None:
        if not self._places.acquire(blocking=False):
            line.say({"code": TierUnreachable.code, "message": f"It serves {MOST_CONNECTIONS} others at once already."})
            return
        try:
            self._answer(line, tier, key, start)
        except ReliabilityError as error:
            line.say({"code": error.code, "message": error.message})
        finally:
            self._places.release()

    def _answer(self, line: Line, tier: str, key: str, start: int) -> None:
        if (tier, key) == ("memory", NEWEST) and self._ranks:
            text = json.dumps(self._newest()).encode()
            line.say({"size_bytes": 0, "record_bytes": len(text)})
            line.send(text)
            return
        if (tier, key) not in self._allowed and not self._is_of_ranks(tier, key):
            raise TierUnreachable(f"{key} on {tier} is not among what the order lets others read.")
        store = self._tiers[tier]
        record = store.record(key)
        size = int(record["size_bytes"])
        with self._content(store.data_path(key), size, in_memory=tier == "memory") as pieces:
            text = copying.json_bytes(record)
            line.say({"size_bytes": size, "record_bytes": len(text)})
            line.send(text)
            for piece in pieces(min(start, size), size):
                line.send(piece)

    def _is_of_ranks(self, tier: str, key: str) -> bool:
        shard = shards.parse(key)
        return tier == "memory" and shard is not None and shard.flat_key == key and shard.rank in self._ranks

    def _newest(self) -> list[dict[str, Any]]:
        """Return the newest shard of each rank, but not of those that any rank's memory gives back.

        One whose record cannot be read has no digest there.
        """
        store, found = self._tiers["memory"], {}
        for shard in sorted(filter(None, map(shards.parse, store.keys("")))):
            if shard.rank in self._ranks:
                found[shard.rank] = shard
        told = []
        for shard in found.values():
            try:
                record = store.record(shard.flat_key)
            except RecordUnusable:
                record = {"digest": ""}
            except CopyMissing:
                continue
            if not _can_be_made(record.get("parts")):
                told.append({"key": shard.flat_key, "digest": record["digest"]})
        return told

    @contextlib.contextmanager
    def _content(self, path: Path, size: int, *, in_memory: bool) -> Iterator[Any]:
        """Yield a function (from, to) -> pieces of the file. Raises TierError before anything is sent.

        A file that is shorter than its record says is a DigestMismatch.
        """
        if in_memory and self._hold:
            with direct.held(path, self._maps) as view:
                _check_size(path, len(view), size)
                yield lambda start, end: (
                    view[at : min(at + PIECE_BYTES, end)] for at in range(start, end, PIECE_BYTES)
                )
            return
        handle = copying.handle(path)
        try:
            _check_size(path, os.fstat(handle).st_size, size)
            yield lambda start, end: _read(handle, path, start, end)
        finally:
            os.close(handle)


def _can_be_made(parts: object) -> bool:
    return isinstance(parts, dict) and not parts.get("sharded_bytes") and bool(parts.get("shared_bytes"))


def _check_size(path: Path, found: int, told: int) -> None:
    if found < told:
        raise DigestMismatch(f"{path} holds {found} of the {told} bytes that were committed.")


def _read(handle: int, path: Path, start: int, end: int) -> Iterator[bytes]:
    """Yield a stretch of an opened file, as long as it has its name: a slot loses it before it is written over."""
    while start < end:
        piece = os.pread(handle, min(PIECE_BYTES, end - start), start)
        if not piece or not _named(handle, path):
            raise PeerGone(f"{path} was written over meanwhile")
        start += len(piece)
        yield piece


def _named(handle: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(handle), path.lstat())
    except OSError:
        return False


def main() -> None:
    """Listen on the node's own address, answer with the port, serve."""
    _mode, wanted = request.take(("serve",))
    try:
        listener = socket.create_server((str(wanted["address"]), 0), backlog=MOST_CONNECTIONS, family=_family(wanted))
    except OSError as error:
        request.answer({"error": f"{wanted['address']} cannot be listened on: {error}"})
        return
    with listener:
        request.answer({"port": listener.getsockname()[1]})
        PeerServer(wanted).run(listener)


def _family(wanted: Mapping[str, Any]) -> socket.AddressFamily:
    return socket.getaddrinfo(str(wanted["address"]), None, type=socket.SOCK_STREAM)[0][0]


if __name__ == "__main__":
    main()
