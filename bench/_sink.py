"""A store that answers as S3 does and keeps nothing but what it must: `python -m bench._sink PORT`.

It takes bodies as fast as a loopback connection brings them, so that a measurement shows the sender. Tags are the MD5
of the content, computed as a store does. With a second argument, bytes per second, it is as slow as a network is.
"""

import hashlib
import re
import sys
import threading
import time
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

BUFFER_BYTES = 2**20


class Shelf:
    """All objects: content and tag by path. The parts of uploads are kept by number."""

    def __init__(self, bytes_per_s: float) -> None:
        self.objects: dict[str, tuple[bytes, str]] = {}
        self.uploads: dict[str, dict[int, bytes]] = {}
        self.lock = threading.Lock()
        self._bytes_per_s = bytes_per_s
        self._free_at = 0.0

    def pass_through(self, count: int) -> None:
        """Take as long as the network that all senders share would."""
        if not self._bytes_per_s:
            return
        with self.lock:
            self._free_at = max(self._free_at, time.monotonic()) + count / self._bytes_per_s
            waiting = self._free_at - time.monotonic()
        time.sleep(max(waiting, 0.0))


class Handler(BaseHTTPRequestHandler):
    """One connection."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    shelf: Shelf

    def do_PUT(self) -> None:
        """Keep an object, or one part of an upload."""
        path, query = self._where()
        content = self._body()
        tag = hashlib.md5(content, usedforsecurity=False).hexdigest()
        with self.shelf.lock:
            held = self.shelf.objects.get(path)
            wanted, refused = self.headers.get("If-Match"), self.headers.get("If-None-Match")
            if (refused and held) or (wanted and (held is None or held[1] != wanted.strip('"'))):
                self._answer(412, b"<Error><Code>PreconditionFailed</Code></Error>")
                return
            if "partNumber" in query:
                self.shelf.uploads[query["uploadId"][0]][int(query["partNumber"][0])] = content
            else:
                self.shelf.objects[path] = (content, tag)
        self._answer(200, b"", tag)

    def do_POST(self) -> None:
        """Begin or complete an upload in parts, or forget a list of objects."""
        path, query = self._where()
        said = self._body().decode()
        with self.shelf.lock:
            if "delete" in query:
                keys = re.findall("<Key>(.*?)</Key>", said)
                for key in keys:
                    self.shelf.objects.pop(f"{path.partition('/')[0]}/{key}", None)
                gone = "".join(f"<Deleted><Key>{key}</Key></Deleted>" for key in keys)
                text = f"<DeleteResult>{gone}</DeleteResult>"
            elif "uploadId" in query:
                parts = self.shelf.uploads.pop(query["uploadId"][0])
                self.shelf.objects[path] = (b"".join(parts[number] for number in sorted(parts)), f"{len(parts)}-parts")
                text = "<CompleteMultipartUploadResult><ETag>x</ETag></CompleteMultipartUploadResult>"
            else:
                upload = f"u{len(self.shelf.uploads)}-{time.monotonic_ns()}"
                self.shelf.uploads[upload] = {}
                text = f"<InitiateMultipartUploadResult><UploadId>{upload}</UploadId></InitiateMultipartUploadResult>"
        self._answer(200, text.encode())

    def do_GET(self) -> None:
        """Give an object, or the list of those below a prefix."""
        path, query = self._where()
        if "list-type" in query:
            self._answer(200, self._listing(query.get("prefix", [""])[0]).encode())
            return
        held = self.shelf.objects.get(path)
        if held is None:
            self._answer(404, b"<Error><Code>NoSuchKey</Code></Error>")
        else:
            self._answer(200, held[0], held[1])

    def do_DELETE(self) -> None:
        """Forget an object."""
        with self.shelf.lock:
            self.shelf.objects.pop(self._where()[0], None)
        self._answer(204, b"")

    def _listing(self, prefix: str) -> str:
        at = "2026-01-01T00:00:00.000Z"
        with self.shelf.lock:
            found = [(path, *held) for path, held in sorted(self.shelf.objects.items())]
        rows = (
            f'<Contents><Key>{key}</Key><LastModified>{at}</LastModified><ETag>"{tag}"</ETag>'
            f"<Size>{len(content)}</Size></Contents>"
            for path, content, tag in found
            if (key := path.partition("/")[2]).startswith(prefix)
        )
        return f"<ListBucketResult><IsTruncated>false</IsTruncated>{''.join(rows)}</ListBucketResult>"

    def _where(self) -> tuple[str, dict[str, list[str]]]:
        parts = urlsplit(self.path)
        return parts.path.lstrip("/"), parse_qs(parts.query, keep_blank_values=True)

    def _body(self) -> bytes:
        left = int(self.headers.get("Content-Length") or 0)
        content = bytearray(left)
        view = memoryview(content)
        while left:
            count = self.rfile.readinto(view[-left:][:BUFFER_BYTES])
            self.shelf.pass_through(count)
            left -= count
        return bytes(content)

    def _answer(self, status: int, body: bytes, tag: str = "") -> None:
        self.send_response(status)
        if tag:
            self.send_header("ETag", f'"{tag}"')
        self.send_header("Last-Modified", formatdate(usegmt=True))
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_words: object) -> None:
        """Say nothing."""


def main() -> None:
    """Serve until ended."""
    Handler.shelf = Shelf(float(sys.argv[2]) if len(sys.argv) > 2 else 0.0)
    ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()


if __name__ == "__main__":
    main()
