"""Does torch_ddp, killed and resumed, end with every bit and every sample of a run that was never interrupted?"""

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.trainer.node import REPO, Node
from tests.trainer.recovery import EVERY_STEPS, Job, any_step, break_at, results

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

EXAMPLE = REPO / "examples" / "torch_ddp"
STEPS = 30
ENV = {"OMP_NUM_THREADS": "1"}

CODEC_PROBE = """
import sys, tempfile
from pathlib import Path
import torch
from reliability.trainer import UnsupportedState
from tests.trainer import shards

def back(value):
    with tempfile.TemporaryDirectory() as folder:
        return shards.read(shards.write(Path(folder), value))

names = "float32 float64 float16 bfloat16 complex64 bool uint8 int8 int16 int32 int64 float8_e4m3fn".split()
for name in names:
    bits = torch.arange(240, dtype=torch.uint8)
    tensor = bits.clamp(max=1).bool() if name == "bool" else bits.view(getattr(torch, name)).reshape(3, 5, -1)
    found = back(tensor)
    assert found.dtype == tensor.dtype and found.shape == tensor.shape, name
    assert torch.equal(found.reshape(-1).view(torch.uint8), tensor.reshape(-1).view(torch.uint8)), name
lazy = torch.randn(2, dtype=torch.complex64).conj()
images = torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last)
views = [torch.arange(12).reshape(3, 4).t(), torch.arange(9)[::2], images, lazy]
for tensor in [torch.tensor(3.5), torch.empty(0, 4), *views, torch.nn.Parameter(torch.ones(2))]:
    found = back(tensor)
    assert torch.equal(found, tensor) and not found.requires_grad
    dense = tensor.numel() and tensor.untyped_storage().nbytes() == tensor.numel() * tensor.element_size()
    assert not dense or found.stride() == tensor.stride(), (found.stride(), tensor.stride())
for odd in (torch.eye(3).to_sparse(), torch.empty(2, device="meta")):
    try:
        back({"x": odd})
    except UnsupportedState as error:
        assert "state['x']" in str(error)
    else:
        raise AssertionError(odd)
model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4))
optimizer = torch.optim.AdamW(model.parameters())
rates = torch.optim.lr_scheduler
schedules = [rates.MultiStepLR(optimizer, [3, 9]), rates.OneCycleLR(optimizer, 0.1, 9)]
schedules += [rates.CosineAnnealingLR(optimizer, 9), rates.ReduceLROnPlateau(optimizer)]
model(torch.randn(5, 3)).sum().backward()
optimizer.step()
for kept in (model, optimizer, *schedules):
    kept.load_state_dict(back(kept.state_dict()))
assert back(model.state_dict())._metadata == model.state_dict()._metadata
assert back(optimizer.state_dict())["state"].keys() == {0, 1, 2, 3}
print("same")
"""


def test_every_kind_of_tensor_and_the_states_of_torch_come_back(torch_python: str):
    done = subprocess.run(
        [torch_python, "-c", CODEC_PROBE], cwd=REPO, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.stdout == "same\n", done.stderr


def make_job(make_node: Callable[..., Node], python: str, name: str, out: Path, *, port: int) -> Job:
    nodes = [make_node(f"{name}-{rank}", python=python, env=ENV) for rank in range(3)]
    for node in nodes:
        ready = node.start("torch", "torch.distributed", "torch.nn.parallel", limit_s=180)
        assert ready["failed"] == {}
        assert "threads" not in node.said()
    program = [str(EXAMPLE / "train.py"), "--steps", str(STEPS), "--out", str(out), "--samples", str(out / "samples")]
    return Job(nodes, program, port=port, env=ENV)


def test_ddp_on_three_ranks_killed_and_resumed_repeats_every_bit_and_sample(
    make_node: Callable[..., Node], tmp_path: Path, torch_python: str
):
    expected_in, out = tmp_path / "uninterrupted", tmp_path / "recovered"
    job = make_job(make_node, torch_python, "node", expected_in, port=21020)
    job.start(1)
    ends = job.ends(1, 300)
    assert [end["exit_code"] for end in ends] == [0, 0, 0], ends[0]["tail"]

    # The same launchers, their preloaded PyTorch forked again, on folders that forget the first run's shards.
    for node in job.nodes:
        for shard in (node.root / "mem").iterdir():
            shard.unlink()
    program = [str(EXAMPLE / "train.py"), "--steps", str(STEPS), "--out", str(out), "--samples", str(out / "samples")]
    broken = Job(job.nodes, program, port=21021, env=ENV)
    broken.start(2)
    break_at(broken, 2, 1, any_step(EVERY_STEPS + 1, STEPS - 8))
    broken.stop(3)
    restored = broken.newest_complete()
    assert 0 < restored[1] < STEPS
    broken.start(4, restored)
    ends = broken.ends(4, 300)
    assert [end["exit_code"] for end in ends] == [0, 0, 0], ends[0]["tail"]

    expected, found = results(expected_in), results(out)
    assert len({result["weights_sha256"] for result in found}) == 1
    assert found == expected
    digests = [
        subprocess.run(
            [torch_python, str(EXAMPLE / "records.py"), str(folder / "samples")],
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        ).stdout
        for folder in (expected_in, out)
    ]
    assert digests[0] == digests[1]
