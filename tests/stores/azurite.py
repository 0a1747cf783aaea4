"""Microsoft's own emulator of Azure's blob storage, for whoever has it: STEPKEEPER_AZURITE names its folder.

    npm install --prefix FOLDER azurite@3.37.0
    STEPKEEPER_AZURITE=FOLDER python -m pytest tests/contract/test_tiers.py

It is 360 MB of JavaScript, so the suite does not install it.
"""

import base64
import hashlib
import hmac
import http.client
import os
import shutil
import socket
import subprocess
from email.utils import formatdate
from pathlib import Path

from tests.agent.ingest import until

FOLDER = os.environ.get("STEPKEEPER_AZURITE", "")
CONTAINER = "snapshots"
PORTS = range(24811, 24831)
_ACCOUNT = "devstoreaccount1"
_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="  # everybody's
_MAIN = "node_modules/azurite/dist/src/blob/main.js"
_VERSION = "2023-11-03"


class Azurite:
    """The emulator on a free port, with one container, all of it in memory."""

    def __init__(self) -> None:
        self.port = next(port for port in PORTS if not _listens(port))
        node = shutil.which("node")
        assert node, "Azurite needs Node.js"
        argv = [node, str(Path(FOLDER) / _MAIN), "--inMemoryPersistence", "--silent", "--skipApiVersionCheck"]
        argv += ["--blobHost", "127.0.0.1", "--blobPort", str(self.port)]
        self._process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        until(lambda: _listens(self.port), 60)
        self._make_container()

    @property
    def environment(self) -> dict[str, str]:
        """What a process needs to use it, by the provider's own names."""
        return {
            "AZURE_STORAGE_USE_EMULATOR": "true",
            "AZURITE_BLOB_STORAGE_URL": f"http://127.0.0.1:{self.port}",
            "AZURE_ALLOW_HTTP": "true",
        }

    def stop(self) -> None:
        self._process.kill()
        self._process.wait(20)

    def _make_container(self) -> None:
        """The library for tiers makes none; signed by hand, as Azure's REST reference says."""
        headers = {"x-ms-date": formatdate(usegmt=True), "x-ms-version": _VERSION}
        path = f"/{_ACCOUNT}/{CONTAINER}"
        canonical = "".join(f"{name}:{value}\n" for name, value in sorted(headers.items()))
        twelve = "\n" * 12
        text = f"PUT{twelve}{canonical}/{_ACCOUNT}{path}\nrestype:container"
        signed = base64.b64encode(hmac.digest(base64.b64decode(_KEY), text.encode(), hashlib.sha256)).decode()
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)
        headers["Authorization"] = f"SharedKey {_ACCOUNT}:{signed}"
        connection.request("PUT", f"{path}?restype=container", headers={**headers, "Content-Length": "0"})
        answer = connection.getresponse()
        assert answer.status == 201, answer.read()
        connection.close()


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
