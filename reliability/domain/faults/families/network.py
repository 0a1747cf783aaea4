"""Network adapters and the fabric: lines of the mlx5 driver and of InfiniBand's own watchers."""

from reliability.domain.faults.families.rows import (
    ERROR,
    FAILOVER,
    FATAL,
    HARDWARE,
    INFO,
    NETWORK,
    OBSERVE,
    THERMAL,
    UNKNOWN,
    WARNING,
    family,
    line,
    row,
)
from reliability.domain.faults.words import Origin

_CORE = r"mlx5_core (?P<device>[0-9a-f:.]+)(?: (?P<interface>[\w.@-]+))?: "
_FLAP_S = 30.0
_PORT = r"(?:mlx5_core (?P<device>[0-9a-f:.]+): |mlx5_port_module_event:\d+:\(pid \d+\): )?Port module event"

MLX5 = family(
    "mlx5",
    Origin.KERNEL,
    row(
        "link-down",
        NETWORK,
        OBSERVE,
        ERROR,
        "A network link went down.",
        "It may come back by itself; if training stops meanwhile, this node is left. Check cable and switch port.",
        line(_CORE + r"(?:\S+: )?Link down", "Link down"),
        line(r"\S+ (?P<device>[0-9a-f:.]+)(?: (?P<interface>[\w.@-]+))?: (?:\S+: )?NIC Link is Down", "Link is Down"),
        "mlx5_core 0000:8f:00.0 enp143s0f0np0: Link down",
        debounce_s=_FLAP_S,
        standing_action=FAILOVER,
    ),
    row(
        "link-up",
        NETWORK,
        OBSERVE,
        INFO,
        "A network link is up again.",
        "Nothing to do; many of them in a short time are flaps.",
        line(_CORE + r"(?:\S+: )?Link up", "Link up"),
        line(r"\S+ (?P<device>[0-9a-f:.]+)(?: (?P<interface>[\w.@-]+))?: (?:\S+: )?NIC Link is Up", "Link is Up"),
        "mlx5_core 0000:8f:00.0 enp143s0f0np0: Link up",
        clears="link-down",
    ),
    row(
        "cable-hot",
        THERMAL,
        OBSERVE,
        WARNING,
        "The transceiver of a network port is too hot.",
        "Check cooling; take the node out if it lasts.",
        line(_PORT + r"(?:\[\w+\])?: module (?P<module>\d+), .{0,60}High Temperature", "High Temperature"),
        "mlx5_port_module_event:1131:(pid 0): Port module event[error]: module 1, Cable error, High Temperature",
    ),
    row(
        "cable-error",
        NETWORK,
        FAILOVER,
        ERROR,
        "The cable or transceiver of a network port is faulty.",
        "Reseat or replace it.",
        line(
            _PORT + r"\[error\]: module (?P<module>\d+), Cable error, (?!High)(?!.{0,3}$)(?P<reason>.{4,60})",
            "Cable error",
        ),
        "mlx5_core 0000:4c:00.0: Port module event[error]: module 0, Cable error, Bus stuck (I2C or data shorted)",
        debounce_s=_FLAP_S,
    ),
    row(
        "cable-unplugged",
        NETWORK,
        OBSERVE,
        ERROR,
        "The cable of a network port was pulled.",
        "Plug it in; if training stops meanwhile, this node is left.",
        line(_PORT + r": module (?P<module>\d+), Cable unplugged", "Cable unplugged"),
        "mlx5_core 0000:4c:00.0: Port module event: module 0, Cable unplugged",
        debounce_s=_FLAP_S,
        standing_action=FAILOVER,
    ),
    row(
        "cable-plugged",
        NETWORK,
        OBSERVE,
        INFO,
        "The cable of a network port is in.",
        "Nothing to do.",
        line(_PORT + r": module (?P<module>\d+), Cable plugged", "Cable plugged"),
        "mlx5_core 0000:4c:00.0: Port module event: module 0, Cable plugged",
        clears="cable-unplugged",
    ),
    row(
        "nic-power",
        HARDWARE,
        FAILOVER,
        ERROR,
        "The slot of the network adapter gives too little power.",
        "Check the power of slot and adapter.",
        line(
            r"mlx5_core (?P<device>[0-9a-f:.]+): .{0,80}Detected insufficient power on the PCIe slot(?: "
            r"\((?P<watts>\d+)W\))?",
            "Detected insufficient power",
        ),
        "mlx5_core 0000:4c:00.0: mlx5_pcie_event:299:(pid 26826): Detected insufficient power on the PCIe slot (25W).",
    ),
    row(
        "nic-dead",
        HARDWARE,
        FAILOVER,
        FATAL,
        "The network adapter's firmware no longer answers.",
        "Power-cycle the node.",
        line(
            r"mlx5_core (?P<device>[0-9a-f:.]+): .{0,80}device's health compromised - reached miss count",
            "health compromised - reached miss count",
        ),
        "mlx5_core 0000:31:00.0: poll_health:852:(pid 0): device's health compromised - reached miss count",
    ),
    row(
        "nic-register",
        UNKNOWN,
        OBSERVE,
        INFO,
        "A watcher asked a restricted port for its registers: harmless.",
        "Leave that port out of the watcher's list.",
        line(r"mlx5_core (?P<device>[0-9a-f:.]+): mlx5_cmd_out_err.{0,60}ACCESS_REG.{0,60}failed", "mlx5_cmd_out_err"),
        "mlx5_core 0000:c2:00.0: mlx5_cmd_out_err:838:(pid 26826): ACCESS_REG(0x805) op_mod(0x1) failed, status bad "
        "resource(0x5), syndrome (0x305684), err(-22)",
    ),
)

INFINIBAND = family(
    "infiniband",
    Origin.TOOL,
    row(
        "ib-flapping",
        NETWORK,
        OBSERVE,
        WARNING,
        "A network port goes up and down.",
        "Check its cable; it counts as well again when it was stable for a while.",
        line(r"device\(s\) flapping between ACTIVE<>DOWN: (?P<device>\S+)", "flapping between ACTIVE<>DOWN"),
        "device(s) flapping between ACTIVE<>DOWN: mlx5_4",
        standing_action=FAILOVER,
    ),
    row(
        "ib-ports-missing",
        NETWORK,
        FAILOVER,
        ERROR,
        "Fewer network ports are active than the node needs.",
        "Check cables and switch ports.",
        line(
            r"only (?P<active>\d+) port\(s\) are active(?: and >=\d+ Gb/s)?(?:, expect >=(?P<expected>\d+) port\(s\))?"
            r"(?:; device\(s\) down too long: (?P<device>[\w, ]+))?",
            "port(s) are active",
        ),
        "only 7 port(s) are active and >=400 Gb/s, expect >=8 port(s); device(s) down too long: mlx5_4",
        debounce_s=_FLAP_S,
    ),
    row(
        "ib-link-down",
        NETWORK,
        OBSERVE,
        WARNING,
        "A link of the fabric went down; both its ends are named.",
        "One incident for the link; switch the port off if it repeats.",
        line(
            r"Link went down: \((?P<end>[^)\s]{1,80})\) - \((?P<peer>[^)\s]{1,80})\)",
            "Link went down: (",
        ),
        line(r"Link went down: \(Switch:", "Link went down: ("),
        "Link went down: (Switch:leaf-02:1/3/1) - (Switch:spine-01:1/4/2)",
    ),
    row(
        "ib-port-isolated",
        NETWORK,
        OBSERVE,
        ERROR,
        "The fabric's master has isolated a port.",
        "Take the nodes behind it out and look at the port.",
        line(
            r"(?:Peer )?Port (?P<device>\S+) is considered by SM as unhealthy due to (?P<reason>\w+)",
            "is considered by SM as unhealthy",
        ),
        "Peer Port leaf-02:1/3/1 is considered by SM as unhealthy due to FLAPPING.",
        standing_action=FAILOVER,
    ),
)

ROWS = (*MLX5, *INFINIBAND)
