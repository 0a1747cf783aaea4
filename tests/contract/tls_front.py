"""An engine behind TLS: a small front with certificates of its own authority, before the engine's unix socket."""

import contextlib
import socket
import ssl
import subprocess
import threading
from pathlib import Path
from types import TracebackType

NAME = "127.0.0.1"
KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")


class TlsFront:
    """Listens on a port of this machine, asks for a client certificate, and passes bytes on to the engine."""

    def __init__(self, engine: Path, folder: Path) -> None:
        self._engine = engine
        self.client_folder = folder / "client"
        self.foreign_authority = folder / "foreign" / "ca.pem"
        for name in ("own", "foreign", "client"):
            (folder / name).mkdir()
        authority(folder / "own")
        authority(folder / "foreign")
        certificate(folder / "own", folder / "own" / "server")
        certificate(folder / "own", self.client_folder / "cert")
        (self.client_folder / "cert.key").rename(self.client_folder / "key.pem")
        (self.client_folder / "ca.pem").write_bytes((folder / "own" / "ca.pem").read_bytes())
        self._context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(folder / "own" / "ca.pem"))
        self._context.verify_mode = ssl.CERT_REQUIRED
        self._context.load_cert_chain(folder / "own" / "server.pem", folder / "own" / "server.key")
        self._listener = socket.create_server((NAME, 0))
        self.url = f"tcp://{NAME}:{self._listener.getsockname()[1]}"

    def __enter__(self) -> "TlsFront":
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        engine = socket.socket(socket.AF_UNIX)
        with (
            contextlib.suppress(OSError),
            client,
            engine,
            self._context.wrap_socket(client, server_side=True) as secured,
        ):
            engine.connect(str(self._engine))
            back = threading.Thread(target=pass_on, args=(engine, secured), daemon=True)
            back.start()
            pass_on(secured, engine)
            back.join(5)


def pass_on(source: socket.socket, target: socket.socket) -> None:
    """Copy bytes until the source ends, then end the target's side too."""
    with contextlib.suppress(OSError):
        while data := source.recv(65536):
            target.sendall(data)
    with contextlib.suppress(OSError):
        target.shutdown(socket.SHUT_RDWR)


def authority(folder: Path) -> None:
    """Make an authority: ca.pem and ca.key."""
    openssl("req", "-x509", *KEY, "-days", "2", "-subj", f"/CN={folder.name}",
            "-keyout", folder / "ca.key", "-out", folder / "ca.pem",
            "-addext", "keyUsage=critical,keyCertSign,cRLSign")  # fmt: skip


def certificate(signer: Path, target: Path) -> None:
    """Make a certificate for this machine's address, signed by an authority: TARGET.pem and TARGET.key."""
    key, request, extensions = (target.with_suffix(suffix) for suffix in (".key", ".csr", ".ext"))
    extensions.write_text(f"subjectAltName=IP:{NAME}\n")
    openssl("req", *KEY, "-subj", f"/CN={NAME}", "-keyout", key, "-out", request)
    openssl("x509", "-req", "-in", request, "-CA", signer / "ca.pem", "-CAkey", signer / "ca.key", "-CAcreateserial",
            "-days", "2", "-extfile", extensions, "-out", target.with_suffix(".pem"))  # fmt: skip


def openssl(*arguments: str | Path) -> None:
    """Run openssl."""
    subprocess.run(["openssl", *map(str, arguments)], check=True, capture_output=True, timeout=30)
