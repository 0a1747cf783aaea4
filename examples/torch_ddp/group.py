"""Joins the other ranks over gloo, quickly, and wraps the model so that a restart repeats every bit."""

import fcntl
import os
import socket
import struct
import time
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn

_SIOCGIFADDR = 0x8915


def join(timeout_s: float) -> None:
    """Make the process group that RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT describe; on its own, a group of one.

    Gloo names a peer by the address of the interface it is told; without one it asks the name service, which
    costs seconds where that does not answer. The interface is the one that leads to rank 0.
    """
    os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
    os.environ.setdefault("MASTER_PORT", "29500")
    os.environ.setdefault("RANK", "0")
    os.environ.setdefault("WORLD_SIZE", "1")
    address, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    os.environ.setdefault("GLOO_SOCKET_IFNAME", _interface_towards(address, port))
    if os.environ["RANK"] != "0":
        _wait_for_listener(address, port, timeout_s)
    dist.init_process_group("gloo", init_method="env://", timeout=timedelta(seconds=timeout_s))


def guard_layout(model: nn.Module) -> nn.parallel.DistributedDataParallel:
    """Wrap the model for data parallelism with a gradient layout that never changes.

    By default DDP sorts its gradient buckets anew after the first backward pass of each process. The first step after a
    restart then adds the ranks' gradients up in another order than an uninterrupted run does in the same step, and with
    three or more ranks the last bits differ (with two they cannot: a + b = b + a). With find_unused_parameters=True
    DDP keeps the buckets it made first. It costs one walk over the autograd graph in each step, and a warning in the
    log that there are no unused parameters.
    """
    return nn.parallel.DistributedDataParallel(model, find_unused_parameters=True)


def mean(value: torch.Tensor) -> float:
    """Return the mean of a scalar over all ranks."""
    total = value.detach().clone()
    dist.all_reduce(total)
    return float(total) / dist.get_world_size()


def _interface_towards(address: str, port: int) -> str:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((address, port))  # sends nothing: the kernel only chooses the way
        own = probe.getsockname()[0]
        if own.startswith("127."):
            return "lo"
        for _index, name in socket.if_nameindex():
            request = struct.pack("256s", name.encode()[:15])
            try:
                answer = fcntl.ioctl(probe.fileno(), _SIOCGIFADDR, request)
            except OSError:
                continue  # an interface without an address
            if socket.inet_ntoa(answer[20:24]) == own:
                return name
    raise RuntimeError(f"no network interface has the address {own}, from which {address} is reached")


def _wait_for_listener(address: str, port: int, timeout_s: float) -> None:
    """Rank 0 may start a moment later. Torch would wait half a second or more before it tries again."""
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            socket.create_connection((address, port), timeout=1.0).close()
        except OSError as error:
            if time.monotonic() > deadline:
                raise ConnectionError(f"rank 0 at {address}:{port} cannot be reached: {error}") from error
            time.sleep(0.005)
        else:
            return
