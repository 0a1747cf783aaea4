"""Weights that are spread over the ranks (a DTensor each), saved and loaded by torch.distributed.checkpoint."""

import argparse
import os
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from stepkeeper.integrations.distributed_checkpoint import Checkpoints
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor

WIDTH = 64


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--losses", type=Path)
    given = parser.parse_args()
    os.environ.setdefault("RANK", "0")
    os.environ.setdefault("WORLD_SIZE", "1")
    os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
    os.environ.setdefault("MASTER_PORT", "29511")
    dist.init_process_group("gloo")
    torch.manual_seed(5)
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    weights = distribute_tensor(torch.randn(WIDTH, WIDTH) / WIDTH, mesh, [Shard(0)])
    moment = distribute_tensor(torch.zeros(WIDTH, WIDTH), mesh, [Shard(0)])
    state: dict[str, Any] = {"weights": weights, "moment": moment, "random": torch.get_rng_state()}
    checkpoints = Checkpoints()
    start = checkpoints.load(state)
    torch.set_rng_state(state["random"])
    for step in range(start + 1, given.steps + 1):
        batch = torch.randn(8, WIDTH)  # the same on every rank
        local, kept = weights.to_local(), moment.to_local()
        output = batch @ local.T
        loss = (output - batch[:, : output.shape[1]]).square().mean()
        kept.mul_(0.9).add_((output - batch[:, : output.shape[1]]).T @ batch, alpha=0.1)
        local.sub_(kept, alpha=1e-3)
        if given.losses is not None and dist.get_rank() == 0:
            with given.losses.open("a") as file:
                print(step, float(loss).hex(), file=file)
        state["random"] = torch.get_rng_state()
        checkpoints.step(step, state, loss=loss)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
