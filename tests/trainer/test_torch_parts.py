"""Which part tensors of torch are, and that what data-parallel ranks hold alike is the same bits."""

import json
import subprocess
from pathlib import Path

import pytest

from tests.trainer.node import REPO
from tests.trainer.test_torch_saves import HEAD, environment, root

__all__ = ["root"]
pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

PARTS = (
    HEAD
    + """
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, Shard, distribute_tensor
from torch.nn.parallel import DistributedDataParallel

meeting, rank = "file://" + os.environ["MEETING"], int(os.environ["RANK"])
dist.init_process_group("gloo", init_method=meeting, rank=rank, world_size=2)
mesh = init_device_mesh("cpu", (2,))
whole = torch.arange(400 * 300, dtype=torch.float32).reshape(400, 300)
run = stepkeeper.attach({**os.environ, "STEPKEEPER_EPOCH": "1"})
if os.environ["WHAT"] == "spread":
    tensors = {"own": distribute_tensor(whole, mesh, [Shard(0)]), "all": distribute_tensor(whole, mesh, [Replicate()])}
    run.register("weights", get=lambda: tensors, set=lambda state: None, part="replicated")
    run.restore()
    run.step(1)
else:
    model = torch.nn.Sequential(torch.nn.Linear(300, 200), torch.nn.ReLU(), torch.nn.Linear(200, 1))
    optimizer = torch.optim.AdamW(model.parameters())
    parallel = DistributedDataParallel(model)
    run.register("model", model, part="replicated")
    run.register("optimizer", optimizer, part="replicated")
    run.register("random", get=torch.get_rng_state, set=torch.set_rng_state, part="local")
    run.restore()
    torch.manual_seed(rank)
    for step in range(1, 6):
        optimizer.zero_grad()
        parallel(torch.randn(64, 300)).square().mean().backward()
        optimizer.step()
        run.step(step)
run.close()
dist.barrier()
if rank == 0:
    seal_all(root / "mem")
dist.barrier()
assert run.problem == "", run.problem
print("same")
"""
)


def records(root: Path, python: str, what: str) -> list[dict]:
    """Run two ranks; return the newest commit record of each."""
    env = {"MEETING": str(root / "meeting"), "WHAT": what}
    ranks = [
        subprocess.Popen(
            [python, "-c", PARTS], cwd=REPO, env=environment(root, rank, **env), stdout=subprocess.PIPE, text=True
        )
        for rank in (0, 1)
    ]
    assert [rank.communicate(timeout=300)[0] for rank in ranks] == ["same\n", "same\n"]
    found = [[json.loads(path.read_text()) for path in (root / "mem").glob(f"*-r{rank}.json")] for rank in (0, 1)]
    return [max(each, key=lambda record: record["step"]) for each in found]


def test_what_data_parallel_ranks_hold_after_some_updates_is_the_same_bits(root: Path, torch_python: str) -> None:
    first, second = records(root, torch_python, "alike")
    assert first["step"] == second["step"] == 5
    assert first["parts"]["shared_digest"] == second["parts"]["shared_digest"]
    assert first["parts"]["shared_bytes"] > 3 * 4 * 300 * 200
    assert first["parts"]["sharded_bytes"] == 0
    assert first["digest"] != second["digest"], "each has its own random numbers"
    for rank in (0, 1):
        assert 0 < (root / "mem" / f"e1-s5-r{rank}.head").stat().st_size < 64 * 1024


def test_a_spread_tensor_is_sharded_and_a_replicated_one_is_not(root: Path, torch_python: str) -> None:
    for record in (found := records(root, torch_python, "spread")):
        assert record["parts"]["sharded_bytes"] == 4 * 200 * 300
        assert record["parts"]["shared_bytes"] >= 4 * 400 * 300
    assert len({record["parts"]["shared_digest"] for record in found}) == 1
