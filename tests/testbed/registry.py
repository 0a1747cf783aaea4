"""Where do hosts pull images from? Debian's docker-registry, on the control address of the fleet's network."""

import json
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from urllib.request import urlopen

from tests.testbed.commands import TestbedError, wait_until
from tests.testbed.host import Host

PORT = 23100


@dataclass
class Registry:
    """A running registry; `address` is what an image reference begins with."""

    address: str
    folder: Path
    process: "subprocess.Popen[bytes] | None" = None

    def start(self) -> None:
        """Start it and wait until it answers."""
        config = self.folder / "config.json"
        config.write_text(json.dumps({
            "version": "0.1",
            "log": {"level": "warn"},
            "storage": {"filesystem": {"rootdirectory": str(self.folder / "images")}},
            "http": {"addr": self.address},
        }))  # fmt: skip
        if not shutil.which("docker-registry"):
            raise TestbedError("docker-registry is not installed (Debian package docker-registry)")
        with (self.folder / "registry.log").open("ab") as log:
            self.process = subprocess.Popen(["docker-registry", "serve", str(config)], stdout=log, stderr=log)
        wait_until(self._answers, limit_s=20, what="the registry answers", every_s=0.05)

    def stop(self) -> None:
        """End it."""
        if self.process is not None:
            self.process.kill()
            self.process.wait(timeout=10)

    def push(self, host: Host, image: str, name: str) -> str:
        """Push an image from a host's engine; return its reference by digest."""
        repository = f"{self.address}/{name}"
        host.docker.images.get(image).tag(repository, tag="pushed")
        lines = [*host.docker.api.push(repository, tag="pushed", stream=True, decode=True)]
        problems = [line["error"] for line in lines if "error" in line]
        if problems:
            raise TestbedError(f"{repository} cannot be pushed: {problems[0]}")
        digest = next(line["aux"]["Digest"] for line in lines if "aux" in line)
        host.docker.images.remove(f"{repository}:pushed")
        return f"{repository}@{digest}"

    def _answers(self) -> bool:
        if self.process is None or self.process.poll() is not None:
            raise TestbedError(f"the registry ended:\n{(self.folder / 'registry.log').read_text()[-2000:]}")
        try:
            with urlopen(f"http://{self.address}/v2/", timeout=2) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False
