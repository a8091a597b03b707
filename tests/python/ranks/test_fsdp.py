# SPDX-License-Identifier: Apache-2.0
"""A job with fully_shard() on gloo: recorded, explained, changed as advised, recorded again."""

import pytest
import torch
import torch.distributed as dist
from torch import nn

import stretto
import stretto.torch

from training import noise

fsdp = pytest.importorskip("torch.distributed.fsdp")
if not hasattr(fsdp, "fully_shard"):
    pytest.skip("this torch has no fully_shard()", allow_module_level=True)


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        return x + self.down(torch.tanh(self.up(x)))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Linear(32, 48)
        self.layers = nn.ModuleList(Block(48) for _ in range(4))
        self.head = nn.Linear(48, 8)

    def forward(self, x):
        x = self.embed(x)
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


@pytest.fixture
def folder(tmp_path):
    shared = [tmp_path]
    dist.broadcast_object_list(shared, src=0)
    return shared[0]


def recorded(model, file):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    with stretto.torch.record(file, steps=2, skip=1) as recording:
        for step in range(4):
            optimizer.zero_grad()
            model(noise(step, 16, 32)).square().mean().backward()
            optimizer.step()
    return stretto.torch.fsdp_advice(recording.analyze())


def test_advice_is_followed(folder):
    torch.manual_seed(7)
    model = Net()
    mesh = torch.distributed.device_mesh.init_device_mesh("cpu", (dist.get_world_size(),))
    for layer in model.layers:
        fsdp.fully_shard(layer, mesh=mesh)
    fsdp.fully_shard(model, mesh=mesh)
    advice = recorded(model, folder / "before.json")
    waits = {m.module: m for m in advice.modules}
    assert [m.module for m in advice.modules] == ["(root)", "layers.0", "layers.1", "layers.2", "layers.3"]
    assert waits["layers.3"].gathers == 2 and waits["layers.1"].gradient_bytes > 4 * 48 * 48 * 4
    assert 0 < advice.exposed_s <= advice.step_s
    assert advice.lines[-1] == "model.layers[3].set_reshard_after_forward(False)"
    assert all(word in str(advice) for word in ("exposed by FSDP", "layers.2", "reshard_after_forward"))
    dist.barrier()
    # Ranks measured each for itself; they must do the same.
    lines = [advice.lines]
    dist.broadcast_object_list(lines, src=0)
    for line in lines[0]:
        exec(line, {"model": model})
    after = {m.module: m for m in recorded(model, folder / "after.json").modules}
    assert after["layers.3"].gathers == 1 and after["layers.1"].gathers == 2
    dist.barrier()


def test_rules():
    """On numbers made up: which module is waited for decides what is said."""
    from stretto.torch import fsdp as advising

    def advice(**waits):
        modules = [advising.ModuleWaits(name, gathers=1, gradient_bytes=100) for name in ("(root)", "a.0", "a.1", "a.2")]
        for key, value in waits.items():
            module, what = key.split("__")
            setattr(modules[int(module[1:])], what, value)
        made = advising.FsdpAdvice(modules, 1.0, [], [])
        advising._advise(made)
        return made

    nothing = advice()
    assert nothing.lines == [] and nothing.findings == ["no module waits for more than 1% of the step: nothing to change here"]
    late = advice(m3__exposed_gather_s=0.1)
    assert late.lines == [
        "model.a[0].set_modules_to_forward_prefetch([model.a[1], model.a[2]])",
        "model.a[1].set_modules_to_forward_prefetch([model.a[2]])",
    ]
    first = advice(m1__exposed_gather_s=0.1)
    assert first.lines == [
        "model.a[2].set_modules_to_backward_prefetch([model.a[1], model.a[0]])",
        "model.a[1].set_modules_to_backward_prefetch([model.a[0]])",
    ]
    assert "backward ends with it" in str(advice(m1__exposed_scatter_s=0.1))
    assert "call fully_shard() on its parts" in str(advice(m2__exposed_scatter_s=0.1, m2__gradient_bytes=500))
    assert "wrap its larger parts" in str(advice(m0__exposed_scatter_s=0.1))
    assert "the network is behind" in str(advice(m2__exposed_scatter_s=0.1))
    assert "halves the other all_gathers: up to 100.0 ms" in str(advice(m1__exposed_gather_s=0.2, m1__gathers=2))


def test_a_recording_without_fsdp_has_no_advice(folder):
    model = nn.parallel.DistributedDataParallel(nn.Linear(32, 8))
    with pytest.raises(stretto.InvalidArgument, match="shows no module of FSDP"):
        recorded(model, folder / "ddp.json")
