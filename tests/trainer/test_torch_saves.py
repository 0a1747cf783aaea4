"""Saves of torch states beside training: what an optimizer's own hook makes possible, and tensors spread over ranks."""

import os
import subprocess
from pathlib import Path

import pytest

from tests.trainer.node import REPO

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

HEAD = """
import os, sys
from pathlib import Path
import torch
import reliability.trainer as stepkeeper
from tests.trainer.shards import seal_all

torch.manual_seed(1)
torch.set_num_threads(1)
root = Path(os.environ["STEPKEEPER_DIR"])

def copied(state):
    return {k: copied(v) for k, v in state.items()} if isinstance(state, dict) else \\
        state.clone() if torch.is_tensor(state) else state

def same(a, b):
    if isinstance(a, dict):
        assert a.keys() == b.keys(), (a.keys(), b.keys())
        return all(same(a[k], b[k]) for k in a)
    return torch.equal(a, b) if torch.is_tensor(a) else a == b
"""

LAZY = (
    HEAD
    + """
def make(epoch, restore=""):
    env = {**os.environ, "STEPKEEPER_EPOCH": str(epoch), "STEPKEEPER_RESTORE": restore, "STEPKEEPER_SAVE_CHECK": "1"}
    run = stepkeeper.attach(env)
    model = torch.nn.Sequential(torch.nn.Linear(300, 400), torch.nn.BatchNorm1d(400), torch.nn.Linear(400, 300))
    tied = torch.nn.Linear(300, 300)
    model.append(tied); model.append(torch.nn.ReLU()); model.append(tied)
    optimizer = torch.optim.AdamW(model.parameters())
    run.register("model", model)
    run.register("optimizer", optimizer)
    run.register("random", get=torch.get_rng_state, set=torch.set_rng_state)
    return run, model, optimizer, run.restore()

run, model, optimizer, _start = make(1)
kept = {}
for step in range(1, 7):
    optimizer.zero_grad()
    model(torch.randn(64, 300)).square().mean().backward()  # changes the running statistics: they are copied at once
    optimizer.step()
    kept[step] = copied({"model": model.state_dict(), "optimizer": optimizer.state_dict()["state"]})
    run.step(step)
    assert run._tier._copying._thread is not None, "the copy runs beside training"
run.close()
assert run.problem == "" and run.snapshots_taken == 6, (run.problem, run.snapshots_taken)
seal_all(root / "mem")
for step in (5, 6):
    again, found, its_optimizer, start = make(step - 3, str(root / f"mem/e1-s{step}-r0.json"))
    assert start == step
    assert same(dict(found.state_dict()), kept[step]["model"])
    assert same(its_optimizer.state_dict()["state"], kept[step]["optimizer"])
    assert found[3].weight is found[5].weight
    again.close()
print("same")
"""
)

SPREAD = (
    HEAD
    + """
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor

meeting, rank = "file://" + os.environ["MEETING"], int(os.environ["RANK"])
dist.init_process_group("gloo", init_method=meeting, rank=rank, world_size=2)
mesh = init_device_mesh("cpu", (2,))
whole = torch.arange(400 * 300, dtype=torch.float32).reshape(400, 300)
spread = distribute_tensor(whole, mesh, [Shard(0)])
run = stepkeeper.attach({**os.environ, "STEPKEEPER_EPOCH": "1"})
run.register("weights", get=lambda: {"w": spread}, set=lambda state: None)
run.restore()
run.step(1)
run.close()
dist.barrier()
if run.rank == 0:
    seal_all(root / "mem")
dist.barrier()
size = (root / f"mem/e1-s1-r{run.rank}.snap").stat().st_size
assert size < 0.6 * whole.nbytes, "each rank keeps its own part"
blank = distribute_tensor(torch.zeros(400, 300), mesh, [Shard(0)])
found = {}
again = stepkeeper.attach({**os.environ, "STEPKEEPER_EPOCH": "2",
                           "STEPKEEPER_RESTORE": str(root / f"mem/e1-s1-r{run.rank}.json")})
again.register("weights", get=lambda: {"w": blank}, set=found.update)
assert again.restore() == 1
assert found["w"] is blank and torch.equal(blank.full_tensor(), whole)
dist.barrier()
print("same")
"""
)

DEVICE = (
    HEAD
    + """
from contextlib import contextmanager
from types import SimpleNamespace as Made
from reliability.trainer import arrays, copier
from reliability.trainer.folder import JobFolder
from reliability.trainer.snapshots import MemoryTier, Saving

# No GPU here: its streams are played, and tensors of this processor stand for those of the device.
calls = []
stream = Made(wait_stream=lambda other: calls.append("wait for training"))
event = Made(record=lambda on: calls.append("record"), synchronize=lambda: calls.append("synchronize"))

@contextmanager
def on(_stream):
    yield

register = Made(cudaHostRegister=lambda address, size, flags: calls.append("pin"))
torch.cuda.Stream, torch.cuda.Event = lambda: stream, lambda: event
torch.cuda.current_stream, torch.cuda.stream, torch.cuda.cudart = lambda: None, on, lambda: register
torch.Tensor.record_stream = lambda self, on: calls.append("keep")
real = arrays.tensor_buffer

def of_device(value, where):
    node, buffer = real(value, where)
    return node, arrays.Buffer(buffer.size, 0, value, where, True, value)

arrays.tensor_buffer = of_device
folder = JobFolder(root)
tier = MemoryTier(folder, job="job", epoch=1, rank=0, saving=Saving())
state = {"w": torch.arange(50_000.0).reshape(250, 200), "b": torch.ones(7, dtype=torch.bfloat16)}
for step, lazy in ((1, True), (2, False)):
    tier.save(step, state, lazy=lazy)
    tier.settle()
assert calls[:5] == ["pin", "wait for training", "keep", "keep", "record"] and calls[5] == "synchronize", calls
seal_all(folder.memory)
from tests.trainer.shards import read
for step in (1, 2):
    assert same(read(folder.memory / f"e1-s{step}-r0.json"), state)
print("same")
"""
)

REMEMBERED = (
    HEAD
    + """
import gc, weakref
from reliability.trainer.arrays import Known
from reliability.trainer.tree import Encoder

known = Known()

def told():
    again, afresh = Encoder(known=known), Encoder()
    assert again.encode({"t": t}) == afresh.encode({"t": t}), "what is remembered of a tensor is what it is"
    one, other = again.buffers[0], afresh.buffers[0]
    assert (one.size, one.lazy, one.owner is t) == (other.size, other.lazy, other.owner is t)
    assert one.address == other.address or one.owner is not t

t = torch.rand(64, 300)
changes = [
    lambda: t.add_(1), lambda: t.transpose_(0, 1), lambda: t.resize_(10, 20), lambda: t.unsqueeze_(0),
    lambda: t.squeeze_(), lambda: setattr(t, "data", torch.rand(5, 5)), lambda: t.set_(torch.rand(300, 400)),
    lambda: setattr(t, "data", torch.rand(5, 5, dtype=torch.float64)),
    lambda: setattr(t, "data", t.data.view(torch.int64)),
]
for change in changes:
    told(), told(), change(), told()
gone = weakref.ref(t)
del t
gc.collect()
assert gone() is None, "nothing is kept alive by it"
print("same")
"""
)


def environment(root: Path, rank: int, **more: str) -> dict[str, str]:
    named = {"STEPKEEPER_DIR": str(root), "STEPKEEPER_JOB": "job", "RANK": str(rank), "WORLD_SIZE": "2"}
    return {**os.environ, **named, "PYTHONPATH": str(REPO), "OMP_NUM_THREADS": "1", **more}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for part in ("ctl", "mem", "run", "log"):
        (tmp_path / "job" / part).mkdir(parents=True)
    plan = '{"version": 1, "plan": [{"from_step": 0, "every_steps": 1}]}'
    (tmp_path / "job" / "ctl" / "period.json").write_text(plan)
    return tmp_path / "job"


def test_a_torch_program_with_a_registered_optimizer_saves_beside_training_and_nothing_tears(
    torch_python: str, root: Path
) -> None:
    argv = [torch_python, "-c", LAZY]
    done = subprocess.run(argv, env=environment(root, 0), capture_output=True, text=True, timeout=300, check=False)
    assert done.stdout == "same\n", done.stderr


def test_a_tensor_that_is_changed_in_place_in_any_way_is_described_as_it_is_now(torch_python: str, root: Path) -> None:
    argv = [torch_python, "-c", REMEMBERED]
    done = subprocess.run(argv, env=environment(root, 0), capture_output=True, text=True, timeout=300, check=False)
    assert done.stdout == "same\n", done.stderr


def test_the_order_in_which_a_device_is_asked_to_copy_with_its_streams_played(torch_python: str, root: Path) -> None:
    argv = [torch_python, "-c", DEVICE]
    done = subprocess.run(argv, env=environment(root, 0), capture_output=True, text=True, timeout=300, check=False)
    assert done.stdout == "same\n", done.stderr


def test_of_a_tensor_that_is_spread_over_ranks_each_saves_and_fills_its_own_part(torch_python: str, root: Path) -> None:
    ranks = [
        subprocess.Popen(
            [torch_python, "-c", SPREAD],
            env=environment(root, rank, MEETING=str(root / "meeting")),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    for rank in ranks:
        said, errors = rank.communicate(timeout=300)
        assert said == "same\n", errors
