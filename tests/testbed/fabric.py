"""How are the hosts joined? One bridge in a network namespace of its own, a link to each host and one to this machine.

Every card and the bridge itself have a fixed hardware address: a bridge takes that of its lowest port, so that each
host that came or went would change it, and a host that boots again would be unknown to its peers for up to a minute.
"""

from pathlib import Path

from tests.testbed.commands import attempt, run

CONTROL = 254
FIRST_HOST = 11
NAMESPACES = Path("/run/netns")


class Fabric:
    """The network of one run: 10.77.<number>.0/24."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.prefix = f"sktb{number}"
        self.namespace = f"{self.prefix}-fabric"
        self.subnet = f"10.77.{number}.0/24"
        self.control_address = self.address(CONTROL)

    def address(self, host: int) -> str:
        """Return the address of the host with this number."""
        return f"10.77.{self.number}.{host}"

    def make(self) -> None:
        """Create the bridge and join this machine to it."""
        run(["ip", "netns", "add", self.namespace])
        self._ip("link", "set", "lo", "up")
        self._ip("link", "add", "bridge", "address", self._mac(1), "type", "bridge")
        self._ip("link", "set", "bridge", "up")
        run(["ip", "link", "add", self.prefix, "address", self._mac(CONTROL), "type", "veth",
             "peer", "name", "control", "netns", self.namespace])  # fmt: skip
        self._ip("link", "set", "control", "master", "bridge", "up")
        run(["ip", "addr", "add", f"{self.control_address}/24", "dev", self.prefix])
        run(["ip", "link", "set", self.prefix, "up"])

    def remove(self) -> None:
        """Remove the bridge, all namespaces and all links of this run."""
        attempt(["ip", "link", "del", self.prefix])
        if NAMESPACES.exists():
            for path in NAMESPACES.glob(f"{self.prefix}-*"):
                attempt(["ip", "netns", "del", path.name])

    def plug_in(self, name: str, host: int) -> Path:
        """Give a host a network namespace of its own with the card eth0; return the namespace's path."""
        self.plug_out(name)
        namespace = self._of(name)
        run(["ip", "netns", "add", namespace])
        self._ip("link", "add", _port(name), "type", "veth", "peer", "name", "eth0",
                 "address", self._mac(host), "netns", namespace)  # fmt: skip
        self._ip("link", "set", _port(name), "master", "bridge", "up")
        for command in (
            ["link", "set", "lo", "up"],
            ["addr", "add", f"{self.address(host)}/24", "dev", "eth0"],
            ["link", "set", "eth0", "up"],
        ):
            run(["ip", "-n", namespace, *command])
        return NAMESPACES / namespace

    def plug_out(self, name: str) -> None:
        """Pull the cable out and forget the card, with all its rules."""
        attempt(["ip", "-n", self.namespace, "link", "del", _port(name)])
        attempt(["ip", "netns", "del", self._of(name)])

    def cut(self, name: str) -> None:
        """Take the link down: both ends see that there is no carrier."""
        self._ip("link", "set", _port(name), "down")

    def uncut(self, name: str) -> None:
        """Take the link up again."""
        self._ip("link", "set", _port(name), "up")

    def drop(self, name: str) -> None:
        """Lose every packet in both directions, silently."""
        for chain, side in (("INPUT", "-i"), ("OUTPUT", "-o")):
            self._iptables(name, "-I", chain, side, "eth0", "-j", "DROP")

    def undrop(self, name: str) -> None:
        """Lose no packets any more."""
        for chain in ("INPUT", "OUTPUT"):
            self._iptables(name, "-F", chain)

    def slow(self, name: str, rate: str) -> None:
        """Let no more than this rate (`100mbit`) pass in either direction."""
        for namespace, device in ((self._of(name), "eth0"), (self.namespace, _port(name))):
            run(["tc", "-n", namespace, "qdisc", "replace", "dev", device, "root",
                 "tbf", "rate", rate, "burst", "128kb", "latency", "100ms"])  # fmt: skip

    def unslow(self, name: str) -> None:
        """Let everything pass at full speed."""
        for namespace, device in ((self._of(name), "eth0"), (self.namespace, _port(name))):
            attempt(["tc", "-n", namespace, "qdisc", "del", "dev", device, "root"])

    def _ip(self, *arguments: str) -> None:
        run(["ip", "-n", self.namespace, *arguments])

    def _iptables(self, name: str, *arguments: str) -> None:
        run(["nsenter", f"--net={NAMESPACES / self._of(name)}", "iptables", "-w", *arguments])

    def _of(self, name: str) -> str:
        return f"{self.prefix}-{name}"

    def _mac(self, host: int) -> str:
        return f"02:77:{self.number:02x}:00:00:{host:02x}"


def _port(name: str) -> str:
    return f"p-{name}"
