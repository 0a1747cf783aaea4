"""Network links and InfiniBand ports: down after they were up, slower than they were, full of errors, flapping."""

from pathlib import Path

from reliability.agent.collectors.checks import infiniband, links
from tests.agent.looks import Looks, codes

PORT = "class/infiniband/mlx5_0/ports/1"
NET = "class/net/eth0"
PCI = "0000:8f:00.0"


def _port(tmp_path: Path) -> Looks:
    looks = Looks(infiniband.look, infiniband.OPTIONS, tmp_path)
    looks.write({f"devices/{PCI}/vendor": "0x15b3"})
    looks.write(
        {f"{PORT}/state": "4: ACTIVE", f"{PORT}/phys_state": "5: LinkUp", f"{PORT}/rate": "400 Gb/sec (4X NDR)"}
    )
    looks.write({f"{PORT}/counters/{name}": 0 for name in ("symbol_error", "link_downed", "port_rcv_errors")})
    looks.write({f"{PORT.replace('/1', '/2')}/state": "1: DOWN"})
    (tmp_path / "class/infiniband/mlx5_0/device").symlink_to(tmp_path / "devices" / PCI)
    looks.look()
    assert looks.look().ok
    return looks


def test_a_port_that_was_active_and_is_not_is_told_with_its_device_and_when_it_is_back(tmp_path: Path) -> None:
    looks = _port(tmp_path)
    looks.write({f"{PORT}/state": "1: DOWN", f"{PORT}/phys_state": "3: Disabled"})
    down = looks.look()
    assert codes(down) == ["ib-port-down"]
    assert down.findings[0].fields == {"device": PCI, "port": "mlx5_0/1"}
    assert "DOWN, Disabled" in down.reason
    looks.write({f"{PORT}/state": "4: ACTIVE"})
    back = looks.look()
    assert codes(back) == ["ib-port-down-over"]
    assert back.findings[0].fields == down.findings[0].fields


def test_a_port_that_is_gone_is_down_and_one_that_cannot_be_seen_is_unknown(tmp_path: Path) -> None:
    looks = _port(tmp_path)
    (tmp_path / "class/infiniband").rename(tmp_path / "class/away")
    assert codes(looks.look()) == ["ib-port-down"]
    (tmp_path / "class").rename(tmp_path / "away")
    assert looks.look().ok is None


def test_a_port_that_is_slower_than_it_was_warns_when_it_lasts(tmp_path: Path) -> None:
    looks = _port(tmp_path)
    looks.write({f"{PORT}/rate": "200 Gb/sec (4X HDR)"})
    assert looks.look().ok
    slow = looks.look(after_s=30)
    assert codes(slow) == ["ib-port-slow"]
    assert "200 Gb/s; 400 Gb/s are expected" in slow.reason


def test_as_many_ports_and_as_fast_ones_as_an_operator_says_must_be_there(tmp_path: Path) -> None:
    looks = _port(tmp_path)
    looks.options = {**looks.options, "ports": 2.0, "gbps": 800.0}
    assert codes(looks.look()) == ["ib-ports-missing"]
    assert codes(looks.look(after_s=30)) == ["ib-port-slow"]
    looks.options = {**looks.options, "ports": 1.0, "gbps": 0.0}
    assert sorted(codes(looks.look())) == ["ib-port-slow-over", "ib-ports-missing-over"]
    looks.options = {**looks.options, "ports": 2.0}
    looks.write({"class/infiniband/mlx5_0/ports/2/state": "garbage"})
    unread = looks.look()
    assert (unread.ok, codes(unread)) == (None, [])


def test_an_adapter_that_is_not_there_at_all_is_missing_where_one_must_be(tmp_path: Path) -> None:
    looks = Looks(infiniband.look, infiniband.OPTIONS, tmp_path, ports=1.0)
    assert (looks.look().ok, codes(looks.look())) == (None, [])
    (tmp_path / "class/infiniband").mkdir(parents=True)
    assert codes(looks.look()) == ["ib-ports-missing"]


def test_a_port_that_loses_its_link_again_and_again_flaps_also_when_no_look_sees_it_down(tmp_path: Path) -> None:
    looks = _port(tmp_path)
    looks.write({f"{PORT}/counters/link_downed": 2})
    assert looks.look().ok
    looks.write({f"{PORT}/counters/link_downed": 3})
    assert codes(looks.look()) == ["ib-flapping"]
    assert codes(looks.look(after_s=700)) == ["ib-flapping-over"]


def test_a_port_that_counts_many_errors_warns_and_those_of_a_start_do_not(tmp_path: Path) -> None:
    looks = _port(tmp_path)
    looks.reboot()
    looks.write({f"{PORT}/counters/symbol_error": 5000, f"{PORT}/counters/link_downed": 9})
    assert looks.look().ok
    looks.write({f"{PORT}/counters/symbol_error": 5121})
    assert codes(looks.look()) == ["ib-port-errors"]


def _link(tmp_path: Path, **changed: str) -> Looks:
    looks = Looks(links.look, links.OPTIONS, tmp_path, **changed)
    looks.write({f"{NET}/carrier": 1, f"{NET}/operstate": "up", f"{NET}/speed": 100_000, f"{NET}/device/vendor": "0x1"})
    looks.write({"class/net/lo/operstate": "unknown", "class/net/eth1/carrier": 0, "class/net/eth1/device/vendor": "1"})
    looks.write({"class/net/veth9/carrier": 1})
    looks.look()
    assert looks.look().ok
    return looks


def test_a_link_that_was_up_and_is_down_is_told_and_one_that_never_was_is_not(tmp_path: Path) -> None:
    looks = _link(tmp_path)
    looks.write({f"{NET}/carrier": 0, f"{NET}/operstate": "down", "class/net/veth9/carrier": 0})
    down = looks.look()
    assert [(each.code, each.fields["interface"]) for each in down.findings] == [("net-link-down", "eth0")]
    looks.write({f"{NET}/carrier": 1})
    assert codes(looks.look()) == ["net-link-down-over"]


def test_a_slower_link_warns_when_it_lasts_and_a_speed_of_minus_one_says_nothing(tmp_path: Path) -> None:
    looks = _link(tmp_path)
    looks.write({f"{NET}/speed": -1})
    assert looks.look(after_s=60).ok
    looks.write({f"{NET}/speed": 10_000})
    looks.look()
    assert codes(looks.look(after_s=40)) == ["net-link-slow"]


def test_an_interface_that_vanishes_was_given_away_unless_it_must_be_there(tmp_path: Path) -> None:
    looks = _link(tmp_path)
    named = Looks(links.look, links.OPTIONS, tmp_path, interfaces="eth0, bond0")
    (tmp_path / NET).rename(tmp_path / "given-away")
    assert looks.look().ok
    missing = named.look()
    assert codes(missing) == ["net-link-down", "net-link-down"]
    assert "no network interface bond0" in missing.reason
